//! Deferred work of endpoints that share a receive context: `fi_trigger(3)`.

use homespun::endpoint::RecvMsg;
use homespun::flags::{Caps, CounterEvents};
use homespun::trigger::{DeferredAction, DeferredWork, Operation, Trigger};
use homespun::{Buffer, Counter, CounterAttr, Errno};

use crate::shared_contexts::{ANY, Sharers};
use homespun_suite::payload::{marked_buffer, payload};
use homespun_suite::{Deadline, Net};

fn open_counter(sharers: &Sharers<'_>) -> Counter {
    sharers.domain.open_counter(&CounterAttr::default()).unwrap()
}

pub(crate) fn post_to_the_context_counts_towards_deferred_work(net: &Net) {
    let mut sharers = Sharers::new(net, 2);
    let (received, done) = (open_counter(&sharers), open_counter(&sharers));
    sharers.members[1].endpoint.bind_counter(&received, CounterEvents::RECV).unwrap();
    let (peer, _) = sharers.open_peer();
    sharers.deliver(&peer, 1, payload(1, 8), None);
    sharers.drive_repeatedly();
    let work = DeferredWork {
        context: 1,
        trigger: Trigger { counter: received.clone(), threshold: 1 },
        action: DeferredAction::Add { counter: done.clone(), value: 3 },
        completion: None,
    };
    sharers.domain.queue_work(work).unwrap();
    assert!(done.is_in_use(), "nothing was received");
    sharers.context.recv(marked_buffer(8), ANY, 1).unwrap();
    // No progress is needed: the posting thread runs the due work.
    let deadline = Deadline::new();
    while done.is_in_use() {
        deadline.yield_or_panic("the work");
    }
    while done.read() != 3 {
        deadline.yield_or_panic("the change of a counter");
    }
    sharers.members.clear();
}

pub(crate) fn deferred_receive_with_a_shared_context_is_refused(net: &Net) {
    let mut sharers = Sharers::new(net, 0);
    for caps in [&mut sharers.info.caps, &mut sharers.info.tx.caps, &mut sharers.info.rx.caps] {
        *caps |= Caps::TRIGGER;
    }
    sharers.join();
    let (waited_for, endpoint) = (open_counter(&sharers), sharers.members[0].endpoint.clone());
    let trigger = Trigger { counter: waited_for.clone(), threshold: 1 };
    let receive = || Operation::Receive(RecvMsg { buffers: vec![marked_buffer(8)], ..RecvMsg::default() });
    let back = Buffer::ReceivedVector(vec![marked_buffer(8)]);
    let rejected = endpoint.trigger(&trigger, receive()).unwrap_err();
    assert_eq!((rejected.error.errno(), rejected.returned), (Errno::ENOSYS, back.clone()));
    let action = DeferredAction::Post { endpoint, operation: receive() };
    let work = DeferredWork { context: 1, trigger, action, completion: None };
    let rejected = sharers.domain.queue_work(work).unwrap_err();
    assert_eq!((rejected.error.errno(), rejected.returned), (Errno::ENOSYS, back));
    assert!(!waited_for.is_in_use());
}
