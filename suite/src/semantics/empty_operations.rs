//! Accesses without bytes and atomic operations without elements: `fi_rma(3)`, `fi_atomic(3)`.

use super::atomics::expected_flags;
use super::prelude::*;

const KINDS: [(AtomicKind, AtomicOp); 4] = [
    (AtomicKind::Base, AtomicOp::Sum),
    (AtomicKind::Fetch, AtomicOp::Sum),
    (AtomicKind::Fetch, AtomicOp::Read),
    (AtomicKind::Compare, AtomicOp::Cswap),
];

/// `fi_atomic(3)` allows no operation on no elements.
#[over(all, own)]
fn atomic_on_no_elements_completes_without_effect(net: &Net) {
    let (alice, bob) = net.open_pair();
    let ways = [AtomicBy::Single, AtomicBy::Vector, AtomicBy::Message, AtomicBy::Raw];
    for memory_kind in net.memory_kinds() {
        let region = bob.open_region(8, memory_kind, KEY);
        region.write_at(0, &[7; 8]);
        let call = |(kind, op), by| {
            let what = (op, Datatype::Uint64);
            AtomicCall { by, ..AtomicCall::new(kind, what, Bytes::new(), alice.peer(), &region, 0) }
        };
        for what in KINDS {
            let mut calls: Vec<_> = ways.map(|by| call(what, by)).into();
            // Without buffers, without a region, and beyond the region.
            let (operands, compares, results_bytes) = (Vec::new(), Vec::new(), Vec::new());
            let bare = AtomicCall { operands, compares, results_bytes, ..call(what, AtomicBy::Single) };
            calls.extend(ways[1..].iter().map(|&by| AtomicCall { by, ..bare.clone() }));
            calls.push(call(what, AtomicBy::Single).at_address(region.address_at(9)));
            let mut nowhere = call(what, AtomicBy::Single);
            nowhere.target.memory = RemoteMemory::default();
            calls.push(nowhere);
            for (context, call) in (1..).zip(calls) {
                let by = call.by;
                let _room = alice.endpoint.atomic(AtomicCall { context, ..call }).unwrap();
                let ended = alice.next_completion();
                let expected = (context, expected_flags(what.0), 0);
                assert_eq!((ended.context, ended.flags, ended.len_bytes), expected, "{what:?}, {by:?}");
            }
        }
        alice.endpoint.atomic(call(KINDS[0], AtomicBy::Inject)).unwrap();
        alice.exchange_long_messages(&bob);
        assert_eq!(region.content(), [7; 8]);
    }
    alice.assert_no_completion();
    bob.assert_no_completion();
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
            alice.access(call(context));
            if alice.is_homespun() {
                alice.access(RmaCall { address: region.address_at(9), ..call(context + 1) });
                alice.access(RmaCall { address: 0, key: 0, ..call(context + 2) });
            }
        }
        assert_eq!(region.content(), marked_buffer(8));
    }
    alice.exchange_long_messages(&bob);
}
