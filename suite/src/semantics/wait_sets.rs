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
    net.open_party_with(Setup {
        asleep: true,
        separate_queues: true,
        counts: true,
        wait,
        wait_set,
        ..Setup::default()
    })
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

/// Shows fi_cq/wait-set, fi_cq/wait-set-is-signaled, fi_cntr/counter-in-wait-set, fi_poll/wait-set-objects.
#[over(one_process, automatic)]
fn wait_set_wakes_for_events_of_any_member(net: &Net) {
    const MESSAGES: u64 = 30;
    for object in WAIT_OBJECTS {
        let set = net.fabric.open_wait_set(object).expect("a wait set");
        let alice = net.open_party_with(Setup { asleep: true, wait: WaitObject::Unspec, ..Setup::default() });
        let bob = open_set_member(net, &set);
        let (to_bob, to_alice) = (alice.insert_address_of(&bob), bob.insert_address_of(&alice));
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
                    for context in answered..arrived {
                        bob.endpoint.send(payload(context, 8), to_alice, context).unwrap();
                    }
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
                alice.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
                alice.endpoint.send(payload(context, LEN_BYTES), to_bob, context).unwrap();
                if context % 3 == 0 {
                    let_threads_fall_asleep();
                }
                for _ in 0..2 {
                    sleeping::sleep_until_operation_ends(alice.local_cq()).expect("no operation fails");
                }
            }
        });
        net.start_driving(&alice);
        net.start_driving(&bob);
    }
}

/// An application that polls the descriptors of two sets first arms both sets, as it would arm two queues.
#[over(one_process)]
fn two_wait_set_descriptors_are_polled_at_once(net: &Net) {
    let sets = [(); 2].map(|()| net.fabric.open_wait_set(WaitObject::Fd).expect("a wait set"));
    let [alice, bob] = sets.each_ref().map(|set| open_set_member(net, set));
    let (to_bob, _) = (alice.insert_address_of(&bob), bob.insert_address_of(&alice));
    let both: [&dyn Waitable; 2] = [&sets[0], &sets[1]];
    let deadline = Deadline::new();
    if net.can_sleep() {
        while net.fabric.try_wait(&both) != Ok(true) {
            deadline.yield_or_panic("two idle sets");
        }
        // `try_wait` of any member has the result of the whole set.
        alice.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        alice.endpoint.cancel(1).unwrap();
        assert_eq!(alice.local_counter(SEND).try_wait(), Ok(false), "there is an entry in a queue");
        assert!(bob.local_cq().try_wait().unwrap());
        alice.local_receive_cq().read_error().unwrap().expect("a receive that was cancelled");
    } else {
        assert_eq!(net.fabric.try_wait(&both), Ok(false), "they are polled");
    }
    bob.endpoint.recv(marked_buffer(LEN_BYTES), ANY, 0).unwrap();
    alice.endpoint.send(payload(0, LEN_BYTES), to_bob, 0).unwrap();
    let (mut has_arrived, mut is_sent) = (false, false);
    while !has_arrived || !is_sent {
        for set in &sets {
            // A wait drives only the members of its own set.
            let _ = set.wait(Some(Duration::from_millis(1)));
        }
        has_arrived |= read_and_count_messages(&bob) == 1;
        is_sent |= alice.poll_completion().is_some();
        deadline.yield_or_panic("a message from set to set");
    }
    net.start_driving(&alice);
    net.start_driving(&bob);
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
    let alice = net.open_party_with(Setup { asleep: true, wait: WaitObject::Unspec, ..Setup::default() });
    let bob = open_set_member(net, &set);
    let (to_bob, _) = (alice.insert_address_of(&bob), bob.insert_address_of(&alice));
    bob.endpoint.recv(marked_buffer(LEN_BYTES), ANY, 0).unwrap();
    alice.endpoint.send(payload(0, LEN_BYTES), to_bob, 0).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Deadline::new();
            while read_and_count_messages(&bob) == 0 {
                if set.try_wait() == Ok(true) {
                    let mut events = [MaybeUninit::uninit(); 1];
                    let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
                    let (woken, _) = epoll::wait(&outer, &mut events, Some(&minute)).expect("a descriptor");
                    assert!(!woken.is_empty(), "the message wakes no waiter");
                }
                deadline.yield_or_panic("the message");
            }
        });
        sleeping::sleep_until_operation_ends(alice.local_cq()).expect("the send does not fail");
    });
    net.start_driving(&alice);
    net.start_driving(&bob);
}

/// Shows fi_cq/wait-set, fi_eq/eq-in-wait-set.
#[over(connected, automatic)]
fn wait_set_wakes_for_events_and_completions(net: &Net) {
    for object in WAIT_OBJECTS {
        let set = net.fabric.open_wait_set(object).expect("a wait set");
        let client = Side::open_with_wait_objects(net, WaitObject::Unspec, WaitObject::Unspec);
        let server = Side::open_with_wait_set(net, &set);
        let listener = server.open_listener(LISTENER);
        let name = listener.name().unwrap();
        let next_event_of_first_side = || {
            let deadline = Deadline::new();
            loop {
                sleep_on_wait_set(&set);
                match server.poll_event() {
                    Some(heard) => break heard.expect("nothing fails"),
                    None => deadline.yield_or_panic("an event"),
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let ConnectionEvent::Request(request) = next_event_of_first_side() else {
                    panic!("not a request")
                };
                let_threads_fall_asleep();
                let accepting = server.accept(&request, b"");
                accepting.recv(marked_buffer(8), ANY, 1).unwrap();
                assert!(matches!(next_event_of_first_side(), ConnectionEvent::Connected { .. }));
                let deadline = Deadline::new();
                let arrived = loop {
                    sleep_on_wait_set(&set);
                    match server.cq.read() {
                        Ok(Some(arrived)) => break arrived,
                        Ok(None) => deadline.yield_or_panic("a message"),
                        Err(error) => panic!("{error}"),
                    }
                };
                assert_eq!(received_bytes(&arrived.buffer), payload(1, 8));
                assert!(matches!(next_event_of_first_side(), ConnectionEvent::Shutdown { .. }));
            });
            let connecting = client.open_endpoint(CLIENT);
            connecting.connect(name, b"").unwrap();
            let connected = crate::connecting::sleep_until_event(&client);
            assert!(matches!(connected, Ok(ConnectionEvent::Connected { .. })), "{connected:?}");
            let_threads_fall_asleep();
            connecting.send(payload(1, 8), ANY, 1).unwrap();
            sleeping::sleep_until_operation_ends(&client.cq).expect("no failure");
            let_threads_fall_asleep();
            connecting.shutdown().unwrap();
        });
    }
}
