//! Deferred work of endpoints that share a receive context: `fi_trigger(3)`.

use super::prelude::*;
use super::shared_contexts::Sharers;
use super::triggered::trigger_at;

/// Opens a context for triggered receives, with this many endpoints.
fn open_triggering_context(net: &Net, members: usize) -> Sharers<'_> {
    let caps = net.info().rx.caps | Caps::TRIGGER;
    let mut sharers = Sharers::open_empty(net, &RxAttr { caps, ..RxAttr::default() });
    for caps in [&mut sharers.info.caps, &mut sharers.info.tx.caps, &mut sharers.info.rx.caps] {
        *caps |= Caps::TRIGGER;
    }
    (0..members).for_each(|_| sharers.add_member());
    sharers
}

fn make_receive(context: u64, len_bytes: usize, flags: OpFlags) -> RecvMsg {
    RecvMsg { buffers: vec![marked_buffer(len_bytes)], context, flags, ..RecvMsg::default() }
}

/// Returns deferred work that posts a receive to a context.
fn make_receive_work(
    trigger: Trigger,
    receive_context: &SharedReceiveContext,
    receive: RecvMsg,
    completion: &Counter,
) -> DeferredWork {
    let action = DeferredAction::Receive { receive_context: receive_context.clone(), receive };
    DeferredWork { context: 100, trigger, action, completion: Some(completion.clone()) }
}

/// Waits until a counter has this value and this error value. Drives all parties meanwhile.
#[track_caller]
fn await_counts(sharers: &Sharers<'_>, counter: &Counter, expected: (u64, u64)) {
    drive_until_counts(counter, expected, || {
        sharers.members.iter().for_each(|member| member.cq.progress());
        sharers.net.progress();
    });
}

#[track_caller]
fn assert_no_completion(sharers: &Sharers<'_>) {
    sharers.drive_repeatedly();
    for member in &sharers.members {
        assert_eq!(poll_completion(&member.cq), None);
    }
}

fn open_counter(sharers: &Sharers<'_>) -> Counter {
    super::prelude::open_counter(&sharers.domain, WaitObject::None)
}

#[over(one_process, automatic)]
fn waiting_receives_of_a_context_are_cancelled(net: &Net) {
    let sharers = open_triggering_context(net, 2);
    let (counter, done) = (open_counter(&sharers), open_counter(&sharers));
    let receive = |context| make_receive(context, 8, OpFlags::empty());
    sharers.context.trigger(&trigger_at(&counter, 1), receive(1)).unwrap();
    sharers.context.cancel(1).unwrap();
    let failed = sharers.next_ended(0).expect_err("it was cancelled");
    assert_eq!((failed.completion.context, &failed.error), (1, &OperationError::Cancelled));
    assert_eq!(failed.completion.buffer, Buffer::ReceivedVector(vec![marked_buffer(8)]));
    assert_eq!(sharers.context.cancel(1).unwrap_err().errno(), Errno::ENOENT);
    // Deferred work that waits is cancelled without a report.
    let work = make_receive_work(trigger_at(&counter, 1), &sharers.context, receive(2), &done);
    sharers.domain.queue_work(work.clone()).unwrap();
    assert_eq!(sharers.context.cancel(2).unwrap_err().errno(), Errno::ENOENT, "it was not posted");
    sharers.domain.cancel_work(100).unwrap();
    assert!(!done.is_in_use());
    // When the deferred work is due, it becomes a receive of the context. If the receive fails, the work
    // fails.
    sharers.domain.queue_work(work).unwrap();
    counter.add(1);
    assert_eq!(sharers.domain.cancel_work(100).unwrap_err().errno(), Errno::ENOENT);
    sharers.context.cancel(2).unwrap();
    assert_eq!(sharers.next_ended(0).expect_err("it was cancelled").completion.context, 2);
    await_counts(&sharers, &done, (0, 1));
    assert_no_completion(&sharers);
}

#[over(one_process, automatic)]
fn triggered_claim_of_a_context_receives_the_claimed_message(net: &Net) {
    let sharers = open_triggering_context(net, 2);
    let counter = open_counter(&sharers);
    let (peer, _) = sharers.open_peer();
    sharers.deliver(&peer, 1, payload(1, 300), Some(7));
    let look = RecvMsg { tagged: Some(Tag(7).into()), context: 5, ..RecvMsg::default() };
    let peek = RecvMsg { flags: OpFlags::PEEK | OpFlags::CLAIM, ..look.clone() };
    let claim = RecvMsg { buffers: vec![marked_buffer(300)], flags: OpFlags::CLAIM, ..look };
    sharers.context.trigger(&trigger_at(&counter, 1), peek).unwrap();
    sharers.context.trigger(&trigger_at(&counter, 2), claim).unwrap();
    assert_no_completion(&sharers);
    counter.add(1);
    let found = sharers.next_receive_completion(1);
    assert_eq!((found.context, found.tag, found.len_bytes), (5, Tag(7), 300));
    assert_no_completion(&sharers);
    counter.add(1);
    let received = sharers.next_receive_completion(1);
    assert_eq!((received.context, received_bytes(&received.buffer)), (5, payload(1, 300).to_vec()));
}

#[over(one_process, automatic)]
fn dropping_the_last_handle_of_a_context_discards_its_work(net: &Net) {
    let sharers = open_triggering_context(net, 0);
    let (counter, done) = (open_counter(&sharers), open_counter(&sharers));
    let context = sharers.domain.shared_receive_context(sharers.context.attr()).unwrap();
    let receive = |number| make_receive(number, 8, OpFlags::empty());
    for threshold in [0, 1] {
        let work = make_receive_work(trigger_at(&counter, threshold), &context, receive(threshold), &done);
        sharers.domain.queue_work(work).unwrap();
    }
    context.trigger(&trigger_at(&counter, 1), receive(2)).unwrap();
    assert!(counter.is_in_use() && done.is_in_use());
    context.close().unwrap();
    assert!(!counter.is_in_use() && !done.is_in_use());
    counter.add(1);
    assert_eq!((done.read(), done.read_error()), (0, 0));
}

#[over(one_process, automatic)]
fn invalid_waiting_receive_of_a_context_is_refused(net: &Net) {
    let sharers = open_triggering_context(net, 1);
    let plain = Sharers::new(net, 0);
    let (counter, done) = (open_counter(&sharers), open_counter(&sharers));
    let back = || Buffer::ReceivedVector(vec![marked_buffer(8)]);
    let refused = |context: &SharedReceiveContext, flags| {
        let receive = make_receive(1, 8, flags);
        let rejected =
            sharers.domain.queue_work(make_receive_work(trigger_at(&counter, 1), context, receive, &done));
        let rejected = rejected.expect_err("it cannot wait");
        assert_eq!(rejected.returned, back(), "{flags:?}");
        rejected.error.errno()
    };
    assert_eq!(refused(&plain.context, OpFlags::empty()), Errno::EDOMAIN);
    let own = sharers.domain.shared_receive_context(&RxAttr::default()).unwrap();
    assert_eq!(refused(&own, OpFlags::empty()), Errno::EOPNOTSUPP);
    let rejected = own.trigger(&trigger_at(&counter, 1), make_receive(1, 8, OpFlags::empty())).unwrap_err();
    assert_eq!((rejected.error.errno(), rejected.returned), (Errno::EOPNOTSUPP, back()));
    // Endpoints with a shared context take no receives of their own.
    let endpoint = sharers.members[0].endpoint.clone();
    let receive = || Operation::Receive(make_receive(1, 8, OpFlags::empty()));
    let rejected = endpoint.trigger(&trigger_at(&counter, 1), receive()).unwrap_err();
    assert_eq!((rejected.error.errno(), rejected.returned), (Errno::ENOSYS, back()));
    let action = DeferredAction::Post { endpoint, operation: receive() };
    let work = DeferredWork { context: 1, trigger: trigger_at(&counter, 1), action, completion: None };
    let rejected = sharers.domain.queue_work(work).unwrap_err();
    assert_eq!((rejected.error.errno(), rejected.returned), (Errno::ENOSYS, back()));
    assert!(!counter.is_in_use() && !done.is_in_use());
}

#[over(one_process, automatic)]
fn deferred_claim_of_a_context_receives_the_claimed_message(net: &Net) {
    let sharers = open_triggering_context(net, 2);
    let (counter, done) = (open_counter(&sharers), open_counter(&sharers));
    let received: Vec<_> = (0..2).map(|_| open_counter(&sharers)).collect();
    for (member, received) in sharers.members.iter().zip(&received) {
        member.endpoint.bind_counter(received, CounterEvents::RECV).unwrap();
    }
    let (peer, _) = sharers.open_peer();
    let look = RecvMsg { tagged: Some(Tag(7).into()), context: 5, ..RecvMsg::default() };
    let peek = |flags| RecvMsg { flags: OpFlags::COMPLETION | OpFlags::PEEK | flags, ..look.clone() };
    let (buffers, flags) = (vec![marked_buffer(300)], OpFlags::COMPLETION | OpFlags::CLAIM);
    let claim = RecvMsg { buffers, flags, ..look.clone() };
    for (threshold, receive) in [(1, peek(OpFlags::CLAIM)), (2, claim), (3, peek(OpFlags::empty()))] {
        let work = make_receive_work(trigger_at(&counter, threshold), &sharers.context, receive, &done);
        sharers.domain.queue_work(work).unwrap();
    }
    sharers.deliver(&peer, 1, payload(1, 300), Some(7));
    for step in 1..=2 {
        assert_no_completion(&sharers);
        counter.add(1);
        let completion = sharers.next_receive_completion(1);
        assert_eq!((completion.context, completion.tag, completion.len_bytes), (5, Tag(7), 300));
        await_counts(&sharers, &done, (step, 0));
        if step == 2 {
            assert_eq!(received_bytes(&completion.buffer), payload(1, 300));
        }
    }
    counter.add(1);
    let failed = sharers.next_ended(0).expect_err("no message is left");
    assert_eq!((failed.completion.context, failed.error), (5, OperationError::NoMessage));
    await_counts(&sharers, &done, (2, 1));
    assert_no_completion(&sharers);
    let counts: Vec<_> = received.iter().map(|counter| (counter.read(), counter.read_error())).collect();
    assert_eq!(counts, [(0, 0), (1, 0)]);
}
