//! Waiting for several queues and counters at once: `fi_poll(3)`.

use std::mem::MaybeUninit;

use rustix::event::{Timespec, epoll};

use super::prelude::*;
use crate::sleeping::sleep_on_wait_set;

/// A length that exceeds the bytes that transports buffer for an idle peer.
const LEN_BYTES: usize = 100_000;

/// Opens a party with a queue for each direction and a counter for each kind of event. All of these queues
/// and counters are members of the set.
fn open_set_member(net: &Net, set: &WaitSet) -> Party {
    let (wait, wait_set) = (WaitObject::Set, Some(set.clone()));
    net.open_party_with(Setup { separate_queues: true, counts: true, wait, wait_set, ..Setup::asleep() })
}

/// Reads both queues. Returns the number of messages that have arrived.
fn read_and_count_messages(party: &Party) -> u64 {
    while let Some(ended) = party.poll_completion() {
        ended.expect("no send fails");
    }
    let mut count = 0;
    while let Some(completion) = party.local_receive_cq().read().unwrap() {
        assert!(received_bytes(&completion.buffer) == payload(completion.context, LEN_BYTES));
        count += 1;
    }
    count
}

/// Shows fi_cq/wait-set-field, fi_poll/close-wait-set-ebusy.
#[over(one_process)]
fn wait_set_is_in_use_by_queues_that_wait_by_it(net: &Net) {
    let set = net.fabric.open_wait_set(WaitObject::Unspec).expect("a wait set");
    let domain = net.open_other_domain();
    let open = |wait| domain.open_cq(&CqAttr { wait, wait_set: Some(set.clone()), ..CqAttr::default() });
    let _other = open(WaitObject::Fd).unwrap();
    let member = open(WaitObject::Set).unwrap();
    expect_busy(set.clone().close());
    drop(member);
    set.close().expect("it has no member");
}

/// Shows fi_cq/wait-set, fi_cq/wait-set-is-signaled, fi_cntr/counter-in-wait-set, fi_poll/wait-set-objects.
#[over(one_process, automatic)]
fn wait_set_wakes_for_events_of_any_member(net: &Net) {
    const MESSAGES: u64 = 30;
    for object in WAIT_OBJECTS {
        let set = net.fabric.open_wait_set(object).expect("a wait set");
        let alice = net.open_party_with(Setup { wait: WaitObject::Unspec, ..Setup::asleep() });
        let bob = open_set_member(net, &set);
        alice.meet(&bob);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut arrived, mut answered) = (0, 0);
                bob.post_receives(0..MESSAGES, LEN_BYTES);
                let deadline = Deadline::new();
                // The counters count the same events that the queues report. Wait until both show all
                // events.
                while bob.read_counter(RECV) != (MESSAGES, 0) || bob.read_counter(SEND) != (MESSAGES, 0) {
                    sleep_on_wait_set(&set);
                    arrived += read_and_count_messages(&bob);
                    (answered..arrived).for_each(|context| bob.post_send(context, 8, OpFlags::empty()));
                    answered = arrived;
                    deadline.yield_or_panic("messages and answers to be counted");
                }
                while !is_over.load(Ordering::SeqCst) {
                    let _ = set.wait(Some(Duration::from_millis(1)));
                    read_and_count_messages(&bob);
                }
            });
            let _over = StopOnDrop(&is_over);
            for context in 0..MESSAGES {
                alice.post_receives([context], 8);
                alice.post_send(context, LEN_BYTES, OpFlags::empty());
                if context % 3 == 0 {
                    let_threads_fall_asleep();
                }
                for _ in 0..2 {
                    sleeping::sleep_until_operation_ends(alice.local_cq()).expect("no operation fails");
                }
            }
        });
        start_driving_both(net, [&alice, &bob]);
    }
}

/// The kernel limits how deep epoll descriptors nest. Here the transport, the queue, the set and the
/// application each have one.
/// Shows fi_cq/wait-fd, fi_poll/wait-set-objects, fi_poll/wait-set-descriptor.
#[over(one_process)]
fn wait_set_wakes_an_epoll_set(net: &Net) {
    let set = net.fabric.open_wait_set(WaitObject::Fd).expect("a wait set");
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    let inner = set.wait_fd().expect("the set has a descriptor");
    epoll::add(&outer, inner, epoll::EventData::new_u64(0), epoll::EventFlags::IN).expect("a shallow set");
    let alice = net.open_party_with(Setup { wait: WaitObject::Unspec, ..Setup::asleep() });
    let bob = open_set_member(net, &set);
    alice.meet(&bob);
    bob.post_receives([0], LEN_BYTES);
    alice.post_send(0, LEN_BYTES, OpFlags::empty());
    thread::scope(|scope| {
        scope.spawn(|| {
            poll_until("the message", || {
                if set.try_wait() == Ok(true) {
                    let mut events = [MaybeUninit::uninit(); 1];
                    let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
                    let (woken, _) = epoll::wait(&outer, &mut events, Some(&minute)).expect("a descriptor");
                    assert!(!woken.is_empty(), "the message wakes no waiter");
                }
                (read_and_count_messages(&bob) > 0).then_some(())
            });
        });
        sleeping::sleep_until_operation_ends(alice.local_cq()).expect("the send does not fail");
    });
    start_driving_both(net, [&alice, &bob]);
}

/// Shows fi_cq/wait-set, fi_eq/eq-in-wait-set.
#[over(connected, automatic, native)]
fn wait_set_wakes_for_events_and_completions(net: &Net) {
    for object in WAIT_OBJECTS {
        let set = net.fabric.open_wait_set(object).expect("a wait set");
        let client = Side::open_with_wait_objects(net, WaitObject::Unspec, WaitObject::Unspec);
        let server = Side::open_with_wait_set(net, &set);
        let listener = server.open_listener(LISTENER);
        let next_event = || {
            let heard = poll_until("an event", || {
                sleep_on_wait_set(&set);
                server.poll_event()
            });
            heard.expect("nothing fails")
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let ConnectionEvent::Request(request) = next_event() else { panic!("not a request") };
                let_threads_fall_asleep();
                let accepting = server.accept(&request, b"");
                accepting.recv(marked_buffer(8), ANY, 1).unwrap();
                assert!(matches!(next_event(), ConnectionEvent::Connected { .. }));
                let arrived = poll_until("a message", || {
                    sleep_on_wait_set(&set);
                    server.cq.read().expect("no failure")
                });
                assert_eq!(received_bytes(&arrived.buffer), payload(1, 8));
                assert!(matches!(next_event(), ConnectionEvent::Shutdown { .. }));
            });
            let connecting = client.connect(CLIENT, &listener, b"");
            let connected = sleep_until_event(&client);
            assert!(matches!(connected, Ok(ConnectionEvent::Connected { .. })), "{connected:?}");
            let_threads_fall_asleep();
            connecting.send(payload(1, 8), ANY, 1).unwrap();
            sleeping::sleep_until_operation_ends(&client.cq).expect("no failure");
            let_threads_fall_asleep();
            connecting.shutdown().unwrap();
        });
    }
}
