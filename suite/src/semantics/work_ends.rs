//! Deferred work that does not succeed: it fails, or is cancelled, discarded or refused (`fi_trigger(3)`).

use super::counters::make_region_spec;
use super::prelude::*;
use super::triggered::{
    await_counts, defer, defer_add, make_add_work, make_post_work, open_pair_with_counters, queue_work,
    receive_operation, send_operation, trigger_at,
};

#[over(one_process)]
fn cancel_does_not_mistake_work_numbers_for_contexts(net: &Net) {
    let (alice, bob, [trigger, done]) = open_pair_with_counters(net);
    for context in [1001, 1002] {
        defer(&alice, (&trigger, 0), receive_operation(context, OpFlags::empty()), &done);
    }
    for context in 0..16 {
        assert_eq!(alice.endpoint.cancel(context).unwrap_err().errno(), Errno::ENOENT, "{context}");
    }
    // These operations have contexts that could also be the numbers of works.
    alice.post_receives(0..16, 8);
    alice.endpoint.cancel(1002).unwrap();
    assert_eq!(alice.next_failure().completion.context, 1002);
    bob.endpoint.send(payload(1, 8), bob.peer(), 1).unwrap();
    await_counts(&alice, &done, (1, 1));
    bob.endpoint.send(payload(2, 8), bob.peer(), 2).unwrap();
    assert_eq!(alice.next_completion().context, 0);
}

#[over(one_process)]
fn cancelled_and_flushed_work_never_runs(net: &Net) {
    let (alice, bob, [trigger, other, changed, done]) = open_pair_with_counters(net);
    let domain = alice.local_domain();
    let work = |context, trigger, value| DeferredWork { context, ..make_add_work(trigger, &changed, value) };
    for (context, value) in [(1, 1), (2, 10), (2, 100), (3, 1000)] {
        queue_work(&alice, work(context, trigger_at(&trigger, 1), value));
    }
    domain.cancel_work(2).unwrap();
    expect_error(domain.cancel_work(4), Errno::ENOENT);
    trigger.add(1);
    // The call has cancelled the older of the two works with this context.
    await_counts(&alice, &changed, (1101, 0));
    assert_eq!(domain.cancel_work(1).unwrap_err().errno(), Errno::ENOENT, "it was done");

    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    defer(&alice, (&trigger, 2), send_operation(&alice, 1, OpFlags::COMPLETION), &done);
    queue_work(&alice, work(5, trigger_at(&other, 1), 1));
    domain.flush_work(Some(&trigger));
    assert!(!trigger.is_in_use() && !done.is_in_use() && other.is_in_use());
    trigger.add(5);
    other.add(1);
    await_counts(&alice, &changed, (1102, 0));
    assert_eq!(done.read(), 0);
    queue_work(&alice, work(6, trigger_at(&other, 2), 1));
    queue_work(&alice, work(6, trigger_at(&trigger, 9), 1));
    domain.flush_work(None);
    other.add(100);
    trigger.add(100);
    alice.assert_no_completion();
    bob.assert_no_completion();
    assert_eq!((changed.read(), done.read()), (1102, 0));
}

#[over(one_process)]
fn work_that_is_refused_when_due_fails(net: &Net) {
    let (alice, bob, [trigger, done]) = open_pair_with_counters(net);
    let gone = alice.insert(bob.endpoint.name().unwrap());
    let to_gone = |context, flags| Operation::Send(SendMsg { to: gone, ..alice.message(context, 8, flags) });
    defer(&alice, (&trigger, 1), to_gone(1, OpFlags::empty()), &done);
    defer(&alice, (&trigger, 2), to_gone(2, OpFlags::COMPLETION), &done);
    alice.endpoint.expect_local().trigger(&trigger_at(&trigger, 3), to_gone(3, OpFlags::empty())).unwrap();
    alice.av.remove(&[gone]);
    for (context, errors, counted) in [(1, 1, 0), (2, 2, 1), (3, 2, 2)] {
        trigger.add(1);
        let failed = alice.expect_failure(context, Errno::EINVAL);
        assert_eq!(failed.error, OperationError::Deferred(Box::new(Misuse::UnknownAddress(gone.0))));
        assert_eq!(failed.completion.buffer, Buffer::SentVector(vec![payload(context, 8)]));
        await_counts(&alice, &done, (0, errors));
        alice.wait_for_exact_counts(&[(SEND, (0, counted))]);
    }
}

#[over(one_process)]
fn work_that_fails_is_counted_and_reported(net: &Net) {
    let (alice, bob, [trigger, done]) = open_pair_with_counters(net);
    let region = bob.register(make_region_spec(8, MemoryKind::Owned)).unwrap();
    let memory = RemoteMemory { address: region.address_at(0), key: region.key() + 1 };
    let (buffers, to) = (vec![payload(1, 8)], alice.peer());
    let write = WriteMsg { buffers, to, memory, context: 1, ..WriteMsg::default() };
    defer(&alice, (&trigger, 1), Operation::Write(write), &done);
    trigger.add(1);
    alice.expect_failure(1, Errno::EKEYREJECTED);
    await_counts(&alice, &done, (0, 1));
    alice.wait_for_exact_counts(&[]);
    // The message is too long for the deferred receive.
    let receive = RecvMsg { buffers: vec![marked_buffer(4)], context: 2, ..RecvMsg::default() };
    defer(&alice, (&trigger, 1), Operation::Receive(receive), &done);
    bob.endpoint.send(payload(2, 8), bob.peer(), 3).unwrap();
    alice.expect_failure(2, Errno::ETRUNC);
    await_counts(&alice, &done, (0, 2));
}

/// Drives all parties until no work depends on a counter. Then closes the counter.
#[track_caller]
fn close_unused(party: &Party, counter: Counter) {
    poll_until("the end of the works that use a counter", || {
        party.progress_all();
        (!counter.is_in_use()).then_some(())
    });
    counter.close().unwrap();
}

#[over(one_process)]
fn close_of_a_counter_that_work_depends_on_fails_with_ebusy(net: &Net) {
    let (alice, bob, [trigger, done, changed]) = open_pair_with_counters(net);
    defer_add(&alice, (&trigger, 1), &changed, 1);
    defer(&alice, (&trigger, 1), send_operation(&alice, 1, OpFlags::MATCH_COMPLETE), &done);
    let [trigger, done, changed] = [trigger, done, changed].map(|counter| expect_busy(counter.close()));
    trigger.add(1);
    close_unused(&alice, trigger);
    close_unused(&alice, changed);
    // The send is outstanding until it is matched.
    alice.assert_no_completion();
    let done = expect_busy(done.close());
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    await_counts(&alice, &done, (1, 0));
    close_unused(&alice, done);
}

#[over(one_process)]
fn closing_an_endpoint_discards_its_work(net: &Net) {
    let (alice, bob, [trigger, done, changed]) = open_pair_with_counters(net);
    let send = send_operation(&alice, 1, OpFlags::empty());
    queue_work(&bob, make_post_work(trigger_at(&trigger, 1), &alice.endpoint, send, &done));
    defer_add(&bob, (&trigger, 1), &changed, 1);
    let receive = receive_operation(1, OpFlags::empty());
    queue_work(&bob, make_post_work(trigger_at(&changed, 0), &alice.endpoint, receive, &done));
    let triggered = send_operation(&alice, 2, OpFlags::empty());
    alice.endpoint.expect_local().trigger(&trigger_at(&trigger, 1), triggered).unwrap();
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    let another = alice.endpoint.expect_local().clone();
    drop(alice.endpoint);
    drop(another);
    assert!(!done.is_in_use(), "the waiting work and the posted one have gone");
    trigger.add(1);
    bob.assert_no_completion();
    assert_eq!((done.read(), done.read_error(), changed.read()), (0, 0, 1));
    assert!(!trigger.is_in_use());
}

#[over(one_process)]
fn work_that_holds_the_last_endpoint_handle_is_discarded(net: &Net) {
    let (alice, bob, [trigger, done]) = open_pair_with_counters(net);
    let send = send_operation(&alice, 1, OpFlags::empty());
    let work = make_post_work(trigger_at(&trigger, 1), &alice.endpoint, send, &done);
    drop(alice.endpoint);
    queue_work(&bob, work);
    assert!(!trigger.is_in_use() && !done.is_in_use());
    trigger.add(1);
    bob.assert_no_completion();
    assert_eq!((done.read(), done.read_error()), (0, 0));
}

/// Shows fi_trigger/trigger-capability.
#[over(one_process)]
fn invalid_deferred_work_is_refused(net: &Net) {
    let (alice, _bob, [trigger, done]) = open_pair_with_counters(net);
    let without = net.open_party();
    let stranger = net.open_other_domain().open_counter(&CounterAttr::default()).unwrap();
    let domain = alice.local_domain();
    let at_one = || trigger_at(&trigger, 1);
    let operation = || send_operation(&alice, 1, OpFlags::empty());
    let send = |party: &Party| make_post_work(at_one(), &party.endpoint, operation(), &done);
    let completion = Some(done.clone());
    let buffers = vec![payload(1, alice.endpoint.info().tx.inject_size_bytes + 1)];
    let (to, flags) = (alice.peer(), OpFlags::INJECT);
    let long = SendMsg { buffers: buffers.clone(), to, flags, ..SendMsg::default() };
    let endpoint = domain.endpoint(alice.endpoint.info()).unwrap();
    let of_disabled = DeferredAction::Post { endpoint, operation: operation() };
    let back = || Buffer::SentVector(vec![payload(1, 8)]);
    for (work, errno, returned) in [
        (send(&without), Errno::EOPNOTSUPP, back()),
        (DeferredWork { trigger: trigger_at(&stranger, 1), ..send(&alice) }, Errno::EDOMAIN, back()),
        (DeferredWork { completion: Some(stranger.clone()), ..send(&alice) }, Errno::EDOMAIN, back()),
        (DeferredWork { completion, ..make_add_work(at_one(), &done, 1) }, Errno::EINVAL, Buffer::None),
        (make_add_work(at_one(), &stranger, 1), Errno::EDOMAIN, Buffer::None),
        (
            make_post_work(at_one(), &alice.endpoint, Operation::Send(long), &done),
            Errno::EMSGSIZE,
            Buffer::SentVector(buffers),
        ),
        (DeferredWork { action: of_disabled, ..send(&alice) }, Errno::EOPBADSTATE, back()),
    ] {
        expect_rejected(domain.queue_work(work), errno, returned);
    }
    let rejected = without.endpoint.expect_local().trigger(&trigger_at(&trigger, 0), operation());
    assert_eq!(rejected.map_err(|rejected| rejected.returned), Err(back()));
    // No work was queued.
    assert!(!trigger.is_in_use() && !done.is_in_use() && !stranger.is_in_use());
    // An alias may have `FI_TRIGGER` as a default flag if its endpoint has the capability. Then calls that
    // post plain operations are refused.
    let (alias, plain) = (alice.endpoint.expect_local().alias(), without.endpoint.expect_local().alias());
    assert_eq!(plain.set_tx_op_flags(OpFlags::TRIGGER).unwrap_err().errno(), Errno::EBADFLAGS);
    alias.set_tx_op_flags(OpFlags::TRIGGER).unwrap();
    assert_eq!(alice.endpoint.tx_op_flags() & OpFlags::TRIGGER, OpFlags::empty());
    let sent = alias.send(payload(1, 8), alice.peer(), 1);
    assert_eq!(sent.map_err(|rejected| rejected.errno()), Err(Errno::EBADFLAGS));
}
