//! Triggered operations and deferred work: `fi_trigger(3)`.

use homespun::endpoint::AtomicMsg;

use super::atomics::encode_number;
use super::counters::make_region_spec;
use super::prelude::*;
/// The context of a work that the test does not cancel.
pub(crate) const ANY_WORK: u64 = 0;

pub(crate) fn triggering_setup(net: &Net) -> Setup {
    Setup { caps: net.info().caps | Caps::TRIGGER, counts: true, ..Setup::default() }
}

pub(crate) fn open_triggering_pair(net: &Net) -> (Party, Party) {
    net.open_equal_pair(triggering_setup(net))
}

/// Opens a pair, and counters of their domain.
pub(crate) fn open_pair_with_counters<const N: usize>(net: &Net) -> (Party, Party, [Counter; N]) {
    let (alice, bob) = open_triggering_pair(net);
    let counters = [(); N].map(|()| open_counter(&alice));
    (alice, bob, counters)
}

pub(crate) fn open_counter(party: &Party) -> Counter {
    super::prelude::open_counter(party.local_domain(), WaitObject::None)
}

pub(crate) fn trigger_at(counter: &Counter, threshold: u64) -> Trigger {
    Trigger { counter: counter.clone(), threshold }
}

/// Returns a work that adds to a counter when its trigger is reached.
pub(crate) fn make_add_work(trigger: Trigger, counter: &Counter, value: u64) -> DeferredWork {
    let action = DeferredAction::Add { counter: counter.clone(), value };
    DeferredWork { context: ANY_WORK, trigger, action, completion: None }
}

/// Returns a work that posts an operation of an endpoint.
pub(crate) fn make_post_work(
    trigger: Trigger,
    endpoint: &Endpoint,
    operation: Operation,
    completion: &Counter,
) -> DeferredWork {
    let action = DeferredAction::Post { endpoint: endpoint.clone(), operation };
    DeferredWork { context: ANY_WORK, trigger, action, completion: Some(completion.clone()) }
}

pub(crate) fn send_operation(party: &Party, context: u64, flags: OpFlags) -> Operation {
    Operation::Send(party.message(context, 8, flags))
}

/// Returns a receive of 8 bytes from any source.
pub(crate) fn receive_operation(context: u64, flags: OpFlags) -> Operation {
    let buffers = vec![marked_buffer(8)];
    Operation::Receive(RecvMsg { buffers, context, flags, ..RecvMsg::default() })
}

pub(crate) fn queue_work(party: &Party, work: DeferredWork) {
    party.local_domain().queue_work(work).unwrap();
}

/// Queues an operation of a party's endpoint until a counter has reached a threshold.
pub(crate) fn defer(
    party: &Party,
    (counter, threshold): (&Counter, u64),
    operation: Operation,
    completion: &Counter,
) {
    let trigger = trigger_at(counter, threshold);
    queue_work(party, make_post_work(trigger, &party.endpoint, operation, completion));
}

/// Queues an addition to a counter until another has reached a threshold.
pub(crate) fn defer_add(party: &Party, (counter, threshold): (&Counter, u64), changed: &Counter, value: u64) {
    queue_work(party, make_add_work(trigger_at(counter, threshold), changed, value));
}

/// Drives all parties until a counter has this value and error value.
#[track_caller]
pub(crate) fn await_counts(party: &Party, counter: &Counter, expected: (u64, u64)) {
    drive_until_counts(counter, expected, || party.progress_all());
}

/// Shows fi_trigger/work-waits-for-threshold, fi_trigger/work-counts-completion,
/// fi_trigger/counter-work-counts-nothing.
#[over(one_process, automatic)]
fn every_kind_of_deferred_work_waits_for_its_threshold(net: &Net) {
    let (alice, bob, [trigger, done, added, set]) = open_pair_with_counters(net);
    let region = bob.register(make_region_spec(64, MemoryKind::Owned)).unwrap();
    let flags = OpFlags::COMPLETION;
    let target = |at, op| AtomicTarget {
        peer: alice.peer(),
        memory: RemoteMemory { address: region.address_at(at), key: region.key() },
        datatype: Datatype::Uint64,
        op,
    };
    let tagged = Some(Tag(7).into());
    let room = || vec![marked_buffer(8)];
    let tagged_receive = RecvMsg { buffers: room(), tagged, context: 2, flags, ..RecvMsg::default() };
    let send = SendMsg { tag: Some(Tag(7)), data: Some(9), ..alice.message(4, 8, flags) };
    let (to, memory) = (alice.peer(), target(0, AtomicOp::Read).memory);
    let (delivery, fenced) = (flags | OpFlags::DELIVERY_COMPLETE, flags | OpFlags::FENCE);
    let buffers = vec![payload(5, 8)];
    let write = WriteMsg { buffers, to, memory, data: None, context: 5, flags: delivery };
    let read = ReadMsg { buffers: room(), from: to, memory, context: 6, flags: fenced };
    let words = |word| vec![encode_number(word)];
    let base = AtomicMsg { operands: words(40), target: target(8, AtomicOp::Write), context: 7, flags };
    let (operands, sum) = (words(2), target(8, AtomicOp::Sum));
    let fetch = FetchAtomicMsg { operands, results: room(), target: sum, context: 8, flags: fenced };
    let compare = CompareAtomicMsg {
        operands: words(1),
        compares: words(42),
        results: room(),
        target: target(8, AtomicOp::Cswap),
        context: 9,
        flags: fenced,
    };
    let operations = [
        receive_operation(1, flags),
        Operation::Receive(tagged_receive),
        send_operation(&alice, 3, flags),
        Operation::Send(send),
        Operation::Write(write),
        Operation::Read(read),
        Operation::Atomic(base),
        Operation::FetchAtomic(fetch),
        Operation::CompareAtomic(compare),
    ];
    let count = operations.len() as u64;
    operations.into_iter().for_each(|operation| defer(&alice, (&trigger, 3), operation, &done));
    defer_add(&alice, (&trigger, 3), &added, 5);
    let action = DeferredAction::Set { counter: set.clone(), value: 6 };
    queue_work(&alice, DeferredWork { action, ..make_add_work(trigger_at(&trigger, 3), &set, 0) });
    // The deferred receives are not posted before the threshold. So messages that arrive earlier wait.
    for (tag, context) in [(None, 1), (Some(7), 2)] {
        let tag = tag.map(Tag);
        bob.send_and_wait_for_delivery(SendMsg { tag, ..bob.message(context, 8, OpFlags::empty()) });
        bob.post_receive(10 + context, 8, tag, OpFlags::empty());
    }
    trigger.add(2);
    alice.assert_no_completion();
    bob.assert_no_completion();
    assert_eq!((done.read(), added.read(), set.read()), (0, 0, 0));
    trigger.add(1);
    await_counts(&alice, &done, (count, 0));
    assert_eq!((added.read(), set.read(), trigger.read()), (5, 6, 3));
    let mut ended: Vec<_> = (0..count).map(|_| alice.next_completion()).collect();
    ended.sort_by_key(|completion| completion.context);
    assert!(ended.iter().map(|completion| completion.context).eq(1..=count), "{ended:?}");
    let results = [0, 1, 5, 7, 8].map(|place: usize| received_bytes(&ended[place].buffer));
    assert_eq!(results, [payload(1, 8), payload(2, 8), payload(5, 8), encode_number(40), encode_number(42)]);
    assert_eq!(ended[2].buffer, Buffer::SentVector(vec![payload(3, 8)]));
    let mut heard = [(); 2].map(|()| bob.next_completion());
    heard.sort_by_key(|completion| completion.context);
    assert_eq!(heard.each_ref().map(|ended| received_bytes(&ended.buffer)), [payload(3, 8), payload(4, 8)]);
    assert_eq!(heard[1].data, 9);
    assert_eq!(region.read_at(0, 16), [&payload(5, 8)[..], &1_u64.to_le_bytes()].concat());
}

/// Shows fi_trigger/work-is-silent, fi_trigger/work-reports-on-request.
#[over(one_process)]
fn work_is_reported_only_on_request(net: &Net) {
    let (alice, bob, [trigger, done]) = open_pair_with_counters(net);
    for (context, flags, reported) in [(1, OpFlags::empty(), 0), (2, OpFlags::COMPLETION, 1)] {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        defer(&alice, (&trigger, context), send_operation(&alice, context, flags), &done);
        trigger.add(1);
        await_counts(&alice, &done, (context, 0));
        bob.expect_message(context, &payload(context, 8));
        alice.wait_for_exact_counts(&[(SEND, (reported, 0))]);
        alice.expect_in_order((reported > 0).then_some(context));
        alice.assert_no_completion();
    }
    // Whether a receive is reported depends on the same flags.
    for (context, flags, reported) in [(3, OpFlags::empty(), 2), (4, OpFlags::COMPLETION, 3)] {
        defer(&bob, (&trigger, 0), receive_operation(context, flags), &done);
        alice.send(context, payload(context, 8));
        await_counts(&bob, &done, (context, 0));
        bob.expect_in_order((!flags.is_empty()).then_some(context));
        bob.assert_no_completion();
        bob.wait_for_exact_counts(&[(RECV, (reported, 0))]);
    }
}

/// Shows fi_trigger/triggered-in-submission-order.
#[over(one_process)]
fn works_run_in_threshold_order(net: &Net) {
    let (alice, bob, [trigger, done]) = open_pair_with_counters(net);
    bob.post_receives(0..6, 8);
    for (context, threshold) in [(4, 9), (0, 2), (2, 5), (3, 5), (1, 4), (5, 10)] {
        defer(&alice, (&trigger, threshold), send_operation(&alice, context, OpFlags::empty()), &done);
    }
    trigger.set(9);
    for context in 0..5 {
        bob.expect_message(context, &payload(context, 8));
    }
    await_counts(&alice, &done, (5, 0));
    bob.assert_no_completion();
    trigger.add(1);
    bob.expect_message(5, &payload(5, 8));
}

/// Shows fi_trigger/work-at-once.
#[over(one_process)]
fn work_with_a_reached_threshold_runs_at_once(net: &Net) {
    let (alice, _bob, [trigger, changed]) = open_pair_with_counters(net);
    trigger.add(3);
    for threshold in 0..4 {
        defer_add(&alice, (&trigger, threshold), &changed, 1);
        await_counts(&alice, &changed, (threshold + 1, 0));
    }
    defer_add(&alice, (&trigger, 4), &changed, 1);
    assert_eq!(changed.read(), 4);
    trigger.set(0);
    trigger.set(5);
    await_counts(&alice, &changed, (5, 0));
}

/// Shows fi_trigger/work-counts-completion.
#[over(one_process)]
fn work_that_reports_to_its_endpoints_own_counter_counts_once(net: &Net) {
    let (alice, bob, [trigger]) = open_pair_with_counters(net);
    let [sent, heard] = [SEND, RECV].map(|events| alice.local_counter(events).clone());
    let flags = OpFlags::COMPLETION;
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    defer(&alice, (&trigger, 0), send_operation(&alice, 1, flags), &sent);
    assert_eq!((alice.next_completion().context, bob.next_completion().context), (1, 1));
    alice.wait_for_exact_counts(&[(SEND, (1, 0))]);
    defer(&alice, (&trigger, 0), receive_operation(2, flags), &heard);
    bob.endpoint.send(payload(2, 8), bob.peer(), 2).unwrap();
    assert_eq!((alice.next_completion().context, bob.next_completion().context), (2, 2));
    alice.wait_for_exact_counts(&[(SEND, (1, 0)), (RECV, (1, 0))]);
    // The counter counts a failure, and a refusal.
    defer(&alice, (&trigger, 0), receive_operation(3, flags), &heard);
    alice.endpoint.cancel(3).unwrap();
    assert_eq!(alice.next_failure().completion.context, 3);
    let gone = alice.insert(bob.endpoint.name().unwrap());
    let send = SendMsg { to: gone, ..alice.message(4, 8, flags) };
    defer(&alice, (&trigger, 1), Operation::Send(send), &sent);
    alice.av.remove(&[gone]);
    trigger.add(1);
    assert_eq!(alice.next_failure().completion.context, 4);
    alice.wait_for_exact_counts(&[(SEND, (1, 1)), (RECV, (1, 1))]);
    // The completion counter of this work counts receives of the endpoint. The counter must count this send,
    // too.
    bob.endpoint.recv(marked_buffer(8), ANY, 5).unwrap();
    defer(&alice, (&trigger, 0), send_operation(&alice, 5, flags), &heard);
    assert_eq!((alice.next_completion().context, bob.next_completion().context), (5, 5));
    alice.wait_for_exact_counts(&[(SEND, (2, 1)), (RECV, (2, 1))]);
}

#[over(one_process, automatic)]
fn completed_work_triggers_further_work(net: &Net) {
    const LINKS: u64 = 1000;
    let (alice, bob, [trigger, done]) = open_pair_with_counters(net);
    // Each work makes the next one due.
    (1..=LINKS).for_each(|link| defer_add(&alice, (&trigger, link), &trigger, 1));
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    defer(&alice, (&trigger, LINKS + 1), send_operation(&alice, 1, OpFlags::empty()), &done);
    defer(&alice, (&done, 1), send_operation(&alice, 2, OpFlags::empty()), &done);
    defer_add(&alice, (&done, 2), &trigger, 5);
    trigger.add(1);
    assert_eq!(received_bytes(&bob.next_completion().buffer), payload(1, 8));
    bob.receive_message(2, 8, &payload(2, 8));
    await_counts(&alice, &done, (2, 0));
    await_counts(&alice, &trigger, (LINKS + 6, 0));
}

#[over(one_process, automatic)]
fn endpoint_and_region_events_trigger_work(net: &Net) {
    for kind in [MemoryKind::Owned, MemoryKind::Shareable] {
        let (alice, bob, [changed, done]) = open_pair_with_counters(net);
        let region = bob.register(make_region_spec(8, kind)).unwrap();
        defer_add(&bob, (bob.local_counter(REMOTE_WRITE), 2), &changed, 1);
        defer_add(&alice, (alice.local_counter(SEND), 1), &changed, 10);
        defer(&bob, (bob.local_counter(REMOTE_WRITE), 1), send_operation(&bob, 7, OpFlags::empty()), &done);
        alice.endpoint.recv(marked_buffer(8), ANY, 7).unwrap();
        (1..3).for_each(|context| post_access(RmaBy::Write, &alice, &region, context, 0, 8));
        alice.expect_each([1, 2, 7]);
        await_counts(&bob, &changed, (1, 0));
        bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        alice.endpoint.send(payload(1, 8), alice.peer(), 3).unwrap();
        await_counts(&alice, &changed, (11, 0));
        await_counts(&bob, &done, (1, 0));
    }
}

/// Shows fi_trigger/errors-count-for-work.
#[over(one_process)]
fn work_stays_due_when_its_counter_is_lowered(net: &Net) {
    const WORKS: u64 = 6;
    let (alice, bob) =
        net.open_pair_with(Setup { tx_depth_ops: 2, ..triggering_setup(net) }, triggering_setup(net));
    let (trigger, done) = (open_counter(&alice), open_counter(&alice));
    for context in 0..WORKS {
        let operation = send_operation(&alice, context, OpFlags::MATCH_COMPLETE);
        defer(&alice, (&trigger, 1 + context % 2), operation, &done);
    }
    // Most works find no room. Half of them are triggered by errors.
    trigger.add(1);
    trigger.add_error(1);
    trigger.set(0);
    trigger.set_error(0);
    defer(&alice, (&trigger, 1), send_operation(&alice, WORKS, OpFlags::empty()), &done);
    for context in [0, 2, 4, 1, 3, 5] {
        bob.receive_message(context, 8, &payload(context, 8));
    }
    await_counts(&alice, &done, (WORKS, 0));
    assert!(trigger.is_in_use(), "what was queued after the counter was set back waits");
}

/// Shows fi_cq/reports-ends-of-transfers, fi_trigger/triggered-waits-for-threshold.
#[over(one_process)]
fn triggered_operations_complete_as_ordinary_ones(net: &Net) {
    let (alice, bob, [trigger]) = open_pair_with_counters(net);
    let endpoint = alice.endpoint.expect_local();
    endpoint.trigger(&trigger_at(&trigger, 1), send_operation(&alice, 1, OpFlags::INJECT)).unwrap();
    endpoint.trigger(&trigger_at(&trigger, 2), receive_operation(2, OpFlags::empty())).unwrap();
    alice.assert_no_completion();
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    trigger.add(1);
    assert_eq!(alice.next_completion().context, 1);
    bob.expect_message(1, &payload(1, 8));
    trigger.add(1);
    bob.endpoint.send(payload(2, 8), bob.peer(), 3).unwrap();
    alice.expect_message(2, &payload(2, 8));
    alice.wait_for_exact_counts(&[(SEND, (1, 0)), (RECV, (1, 0))]);
    // A flush leaves the triggered operation, which belongs to its endpoint.
    bob.endpoint.recv(marked_buffer(8), ANY, 4).unwrap();
    endpoint.trigger(&trigger_at(&trigger, 3), send_operation(&alice, 4, OpFlags::empty())).unwrap();
    alice.local_domain().flush_work(None);
    trigger.add(1);
    assert_eq!(alice.next_completion().context, 4);
}

#[over(one_process)]
fn triggered_operation_is_cancelled_by_its_context(net: &Net) {
    let (alice, _bob, [trigger, done]) = open_pair_with_counters(net);
    let endpoint = alice.endpoint.expect_local();
    endpoint.trigger(&trigger_at(&trigger, 1), send_operation(&alice, 1, OpFlags::empty())).unwrap();
    endpoint.trigger(&trigger_at(&trigger, 2), receive_operation(2, OpFlags::empty())).unwrap();
    alice.endpoint.cancel(1).unwrap();
    let failed = alice.next_failure();
    assert_eq!((failed.completion.context, failed.error), (1, OperationError::Cancelled));
    assert_eq!(failed.completion.buffer, Buffer::SentVector(vec![payload(1, 8)]));
    assert_eq!(alice.endpoint.cancel(1).unwrap_err().errno(), Errno::ENOENT);
    // This operation was already posted when it is cancelled.
    trigger.add(2);
    alice.endpoint.cancel(2).unwrap();
    assert_eq!(alice.next_failure().completion.context, 2);
    alice.wait_for_exact_counts(&[(SEND, (0, 1)), (RECV, (0, 1))]);
    // When deferred work is due, it becomes an operation of its endpoint. If the operation fails, the work
    // fails.
    defer(&alice, (&trigger, 0), receive_operation(3, OpFlags::empty()), &done);
    alice.endpoint.cancel(3).unwrap();
    assert_eq!(alice.next_failure().completion.context, 3);
    await_counts(&alice, &done, (0, 1));
    alice.wait_for_exact_counts(&[(SEND, (0, 1)), (RECV, (0, 1))]);
}

/// A thread sleeps on a queue or a counter. Work becomes due when other threads change counters, when
/// messages arrive, and when the thread's own endpoint has events. The buffers of the work are memory of the
/// caller.
#[over(one_process, automatic)]
fn blocked_readers_wake_for_triggered_work(net: &Net) {
    for wait in BLOCKING_WAIT_OBJECTS {
        let (alice, bob) = net.open_equal_pair(Setup { asleep: true, wait, ..triggering_setup(net) });
        let [trigger, done] = [(); 2].map(|()| super::prelude::open_counter(alice.local_domain(), wait));
        let mut filled = [0; 8];
        let is_over = AtomicBool::new(false);
        // Only bob's wait receives this message. The message completes a deferred receive, and the
        // completion makes another work due.
        let room = [SegmentMut { address: filled.as_mut_ptr(), len_bytes: 8 }];
        let receive = RecvMsg { buffers: &room[..], context: 1, ..RecvMsg::default() };
        let (endpoint, operation) = (bob.endpoint.expect_local().clone(), Operation::Receive(receive));
        let action = DeferredAction::Post { endpoint, operation };
        let (context, completion) = (ANY_WORK, Some(done.clone()));
        let work = DeferredWork { context, trigger: trigger_at(&trigger, 1), action, completion };
        // SAFETY: the test waits until the receive has ended. Until then nothing else uses the memory.
        unsafe { bob.local_domain().queue_raw_work(work) }.unwrap();
        defer(&bob, (&done, 1), send_operation(&bob, 2, OpFlags::COMPLETION), &done);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                wait_for_threshold(&done, 2);
                drive_counter_until(&done, &is_over);
            });
            let _over = StopOnDrop(&is_over);
            let_threads_fall_asleep();
            trigger.add(1);
            let_threads_fall_asleep();
            alice.post_receives([3], 8);
            alice.endpoint.send(payload(1, 8), alice.peer(), 4).unwrap();
            let ended = [(); 2].map(|()| {
                sleep_until_operation_ends(alice.local_cq()).expect("no operation fails").0.context
            });
            assert_eq!(BTreeSet::from(ended), BTreeSet::from([3, 4]));
            // The wait for the counter has returned.
            await_counts(&bob, &done, (2, 0));
            is_over.store(true, Ordering::SeqCst);
            sleeper.join().unwrap();
        });
        assert_eq!(filled, payload(1, 8)[..]);
        assert_eq!(bob.next_completion().context, 2);
        start_driving_both(net, [&alice, &bob]);
    }
}
