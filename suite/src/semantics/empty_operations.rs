//! Accesses without bytes and atomic operations without elements: `fi_rma(3)`, `fi_atomic(3)`.

use super::prelude::*;

const KINDS: [(AtomicKind, AtomicOp); 4] = [
    (AtomicKind::Base, AtomicOp::Sum),
    (AtomicKind::Fetch, AtomicOp::Sum),
    (AtomicKind::Fetch, AtomicOp::Read),
    (AtomicKind::Compare, AtomicOp::Cswap),
];

/// Returns an operation on no elements, at the beginning of a region.
fn make_empty_atomic(
    party: &Party,
    (kind, op): (AtomicKind, AtomicOp),
    region: &Region,
    context: u64,
) -> AtomicCall {
    AtomicCall::new(kind, (op, Datatype::Uint64), Bytes::new(), party.peer(), region, context)
}

/// Removes the buffers of a call.
fn strip_buffers(mut call: AtomicCall) -> AtomicCall {
    (call.operands, call.compares, call.results_bytes) = (Vec::new(), Vec::new(), Vec::new());
    call
}

/// `fi_atomic(3)` allows no operation on no elements.
#[over(all, own)]
fn atomic_on_no_elements_completes_without_effect(net: &Net) {
    let (alice, bob) = net.open_pair();
    for memory_kind in net.memory_kinds() {
        let region = bob.open_region(8, memory_kind, KEY);
        region.write_at(0, &[7; 8]);
        for (what, context) in KINDS.into_iter().zip((1..).step_by(10)) {
            let call = |by, context| AtomicCall { by, ..make_empty_atomic(&alice, what, &region, context) };
            for call in [
                call(AtomicBy::Single, context),
                call(AtomicBy::Vector, context + 1),
                call(AtomicBy::Message, context + 2),
                call(AtomicBy::Raw, context + 3),
                strip_buffers(call(AtomicBy::Vector, context + 4)),
                strip_buffers(call(AtomicBy::Message, context + 5)),
                strip_buffers(call(AtomicBy::Raw, context + 6)),
            ] {
                let (by, context) = (call.by, call.context);
                let _room = alice.endpoint.atomic(call).unwrap();
                let ended = alice.next_completion();
                let direction = if what.0.fetches() { CompletionFlags::READ } else { CompletionFlags::WRITE };
                let flags = CompletionFlags::ATOMIC | direction;
                assert_eq!(
                    (ended.context, ended.flags, ended.len_bytes),
                    (context, flags, 0),
                    "{what:?}, {by:?}"
                );
            }
        }
        let inject = AtomicCall { by: AtomicBy::Inject, ..make_empty_atomic(&alice, KINDS[0], &region, 0) };
        alice.endpoint.atomic(inject).unwrap();
        alice.exchange_long_messages(&bob);
        assert_eq!(region.content(), [7; 8]);
    }
    alice.assert_no_completion();
    bob.assert_no_completion();
}

#[over(all, own)]
fn atomic_on_no_elements_needs_no_region(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    let beyond = region.address_at(9);
    for (context, what) in (1..).zip(KINDS) {
        let call = make_empty_atomic(&alice, what, &region, context);
        let mut nowhere = call.clone();
        nowhere.target.memory = RemoteMemory::default();
        let mut outside = call;
        outside.target.memory.address = beyond;
        for call in [nowhere, outside] {
            alice.endpoint.atomic(call).unwrap();
            assert_eq!(alice.next_completion().context, context);
        }
    }
    alice.exchange_long_messages(&bob);
}

/// Shows fi_atomic/unsupported-atomic-eopnotsupp.
#[over(all, own)]
fn atomic_on_no_elements_that_is_not_offered_is_refused(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    for (kind, op) in [
        (AtomicKind::Base, AtomicOp::Read),
        (AtomicKind::Base, AtomicOp::Cswap),
        (AtomicKind::Fetch, AtomicOp::Mswap),
        (AtomicKind::Compare, AtomicOp::Sum),
    ] {
        let refused = alice.endpoint.atomic(make_empty_atomic(&alice, (kind, op), &region, 1)).err();
        assert_eq!(refused.map(|error| error.errno()), Some(Errno::EOPNOTSUPP));
    }
    alice.assert_no_completion();
}

#[over(all, own)]
fn fence_waits_for_empty_operations(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    for (round, what) in (1..).zip(KINDS) {
        alice.endpoint.atomic(make_empty_atomic(&alice, what, &region, round)).unwrap();
        let read = RmaCall::new(RmaBy::Read, Bytes::new(), alice.peer(), &region, round + 10);
        alice.endpoint.rma(read).unwrap();
        let (to, flags) = (alice.peer(), OpFlags::FENCE);
        bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        let buffers = vec![payload(round, 8)];
        alice.endpoint.sendmsg(SendMsg { buffers, to, context: 99, flags, ..SendMsg::default() }).unwrap();
        let contexts = [(); 3].map(|()| alice.next_completion().context);
        assert!(contexts[..2].contains(&round) && contexts[..2].contains(&(round + 10)));
        assert_eq!(contexts[2], 99);
        assert_eq!(received_bytes(&bob.next_completion().buffer), payload(round, 8));
    }
}

#[over(all)]
fn access_of_no_bytes_needs_no_region(net: &Net) {
    let (alice, bob) = net.open_pair();
    let kinds = [MemoryKind::Owned, MemoryKind::Shareable];
    for kind in net.memory_kinds().filter(|kind| kinds.contains(kind)) {
        let region = bob.open_region(8, kind, KEY);
        let ways =
            [RmaBy::Write, RmaBy::Writev, RmaBy::Writemsg, RmaBy::WriteRaw, RmaBy::Read, RmaBy::Readmsg];
        for (by, context) in ways.into_iter().zip((1..).step_by(3)) {
            let call = |context| RmaCall::new(by, Bytes::new(), alice.peer(), &region, context);
            let beyond = RmaCall { address: region.address_at(9), ..call(context + 1) };
            let nowhere = RmaCall { address: 0, key: 0, ..call(context + 2) };
            let mut calls = vec![call(context)];
            if alice.is_homespun() {
                calls.extend([beyond, nowhere]);
            }
            for call in calls {
                let context = call.context;
                alice.endpoint.rma(call).unwrap();
                assert_eq!(alice.next_completion().context, context, "{by:?}");
            }
        }
        if alice.is_homespun() {
            // An access of one byte is refused.
            let one = RmaCall::new(RmaBy::Writemsg, payload(1, 1), alice.peer(), &region, 77);
            alice.endpoint.rma(RmaCall { key: KEY + 1, ..one }).unwrap();
            assert_eq!(alice.next_failure().errno(), Errno::EKEYREJECTED);
        }
        assert_eq!(region.content(), marked_buffer(8));
    }
    alice.exchange_long_messages(&bob);
}

#[over(all)]
fn remote_data_with_no_bytes_and_no_region_arrives(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    let (flags, data) = (OpFlags::REMOTE_CQ_DATA, Some(5));
    let mut call = RmaCall::new(RmaBy::Writemsg, Bytes::new(), alice.peer(), &region, 1);
    if alice.is_homespun() {
        (call.address, call.key) = (0, 0);
    }
    alice.endpoint.rma(RmaCall { data, flags, ..call }).unwrap();
    assert_eq!(alice.next_completion().context, 1);
    let told = bob.next_completion();
    let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
    assert_eq!((told.context, told.flags, told.len_bytes, told.data), (0, flags, 0, 5));
    alice.exchange_long_messages(&bob);
}
