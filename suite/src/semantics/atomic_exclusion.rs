//! Concurrent atomic operations on an element exclude each other, whichever endpoints begin them:
//! `fi_atomic(3)`.

use super::atomics::{encode_element, encode_number, make_add_call, open_cleared_region};
use super::prelude::*;
use crate::TransportKind;

/// Several parties add one to the same elements. Each value must be fetched exactly once.
/// Shows fi_atomic/atomic-per-element.
#[over(all)]
fn concurrent_updates_by_all_parties_are_each_applied_once(net: &Net) {
    const PARTIES: usize = 4;
    const ROUNDS: usize = 30;
    let target = net.open_party();
    let parties: Vec<Party> = (0..PARTIES).map(|_| net.open_party()).collect();
    parties.iter().for_each(|party| _ = party.meet(&target));
    for memory_kind in net.memory_kinds() {
        let region = open_cleared_region(&target, 96, memory_kind);
        // Elements that are aligned, or misaligned, or longer than the processor can update at once. If the
        // memory is raw, some elements lie in two segments. Other providers are asked for the first two.
        let mut places = vec![
            (Datatype::Uint64, 0),
            (Datatype::Uint16, 8),
            (Datatype::Uint32, 13),
            (Datatype::Uint64, 28),
            (Datatype::Uint128, 48),
            (Datatype::Int128, 71),
        ];
        if !target.is_homespun() {
            places.truncate(2);
        }
        let mut fetched = vec![Vec::new(); places.len()];
        for _ in 0..ROUNDS {
            for party in &parties {
                for (context, &(datatype, at)) in (0..).zip(&places) {
                    let one = Bytes::from(encode_element(1, datatype));
                    let what = (AtomicOp::Sum, datatype);
                    let call = AtomicCall::new(AtomicKind::Fetch, what, one, party.peer(), &region, context);
                    party.endpoint.atomic(call.at_address(region.address_at(at))).unwrap();
                }
            }
        }
        for party in &parties {
            for _ in 0..ROUNDS * places.len() {
                let completion = party.next_completion();
                let mut bytes = received_bytes(&completion.buffer);
                bytes.resize(16, 0);
                fetched[completion.context as usize].push(u128::from_le_bytes(bytes.try_into().unwrap()));
            }
        }
        let all: Vec<u128> = (0..(PARTIES * ROUNDS) as u128).collect();
        for (fetched, place) in fetched.iter_mut().zip(&places) {
            fetched.sort_unstable();
            assert_eq!(*fetched, all, "{place:?} of {memory_kind:?}");
        }
    }
}

/// Threads with their own endpoints add to the same memory over two transports. Each transport has a region
/// of its own for the memory.
/// Shows fi_atomic/atomic-per-element, fi_atomic/one-actor-at-a-time.
#[over(one_process)]
fn concurrent_updates_over_two_transports_are_each_applied_once(net: &Net) {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 200;
    const REGION_BYTES: usize = 24;
    let other = Net::new(&TransportKind::Tcp4, Turns::Threads);
    let (target, second, elsewhere) = (net.open_party(), net.open_party(), other.open_party());
    let region = open_cleared_region(&target, REGION_BYTES, MemoryKind::Raw);
    let again = elsewhere.register_again(&region, EVERYTHING, KEY + 1).unwrap();
    let known_as = [(net, &target, &region), (net, &second, &region), (&other, &elsewhere, &again)];
    let mut initiators = Vec::new();
    for (net, target, region) in (0..THREADS).flat_map(|_| known_as) {
        let party = net.open_party();
        party.meet(target);
        initiators.push((party, region));
    }
    // The threads add to two numbers: an aligned one, and a misaligned one that lies within one segment.
    let add = |party: &Party, region: &Region| {
        for _ in 0..ROUNDS {
            for at in [0, 9] {
                let call = make_add_call(AtomicKind::Fetch, party, region, 1, 1);
                party.endpoint.atomic(call.at_address(region.address_at(at))).unwrap();
                party.next_completion();
            }
        }
    };
    std::thread::scope(|scope| {
        for (party, region) in &initiators {
            scope.spawn(|| add(party, region));
        }
    });
    drop(initiators);
    drop(again);
    let (content, _) = region.close_raw();
    let total = encode_number(3 * THREADS * ROUNDS);
    assert_eq!(content[..8], total);
    assert_eq!(content[9..17], total);
}
