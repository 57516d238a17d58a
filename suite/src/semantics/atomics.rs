//! Atomic operations on the memory of peers: `fi_atomic(3)`.

use super::prelude::*;

/// The longest operations that tests post to other providers. Each provider has a limit of its own, and all
/// known ones take this many bytes.
pub(super) const MODEST_BYTES: usize = 1024;

pub(super) const SUM_OF_BYTES: (AtomicOp, Datatype) = (AtomicOp::Sum, Datatype::Uint8);
pub(super) const SUM: (AtomicOp, Datatype) = (AtomicOp::Sum, Datatype::Uint64);

pub(super) fn encode_number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

/// Opens a region that is filled with zeros.
pub(super) fn open_cleared_region(party: &Party, len_bytes: usize, kind: MemoryKind) -> Region {
    let region = party.open_region(len_bytes, kind, KEY);
    region.clear();
    region
}

/// Returns a call that adds to the number at the beginning of a region.
pub(super) fn make_add_call(
    kind: AtomicKind,
    party: &Party,
    region: &Region,
    summand: u64,
    context: u64,
) -> AtomicCall {
    AtomicCall::new(kind, SUM, encode_number(summand), party.peer(), region, context)
}

pub(super) fn expected_flags(kind: AtomicKind) -> CompletionFlags {
    let direction = if kind.fetches() { CompletionFlags::READ } else { CompletionFlags::WRITE };
    CompletionFlags::ATOMIC | direction
}

/// Waits for the completion of the last posted operation.
#[track_caller]
pub(super) fn expect_completion(party: &Party, kind: AtomicKind, context: u64) -> Completion {
    let completion = party.next_completion();
    assert_eq!(completion.context, context);
    if party.is_homespun() {
        assert_eq!(completion.flags, expected_flags(kind));
        assert_eq!((completion.len_bytes, completion.data, completion.tag.0), (0, 0, 0));
    } else {
        // `fi_cq(3)` does not say whether a fetching operation is a read or a write.
        assert!(completion.flags.contains(CompletionFlags::ATOMIC));
        assert!(completion.flags.intersects(CompletionFlags::READ | CompletionFlags::WRITE));
    }
    completion
}

/// Posts an operation, waits for it, and returns the fetched bytes.
#[track_caller]
pub(super) fn perform_and_wait(party: &Party, call: AtomicCall) -> Vec<u8> {
    let (kind, context) = (call.kind, call.context);
    party.endpoint.atomic(call).unwrap();
    let completion = expect_completion(party, kind, context);
    if kind.fetches() { received_bytes(&completion.buffer) } else { Vec::new() }
}

/// Does what an addition to bytes in a region does.
fn add_to(bytes: &mut [u8], summands: &[u8]) {
    bytes.iter_mut().zip(summands).for_each(|(byte, summand)| *byte = byte.wrapping_add(*summand));
}

/// Shows fi_cq/reports-ends-of-transfers, fi_cq/context-of-operation, fi_cq/context-is-always-there,
/// fi_cq/flags-field, fi_cq/flag-atomic, fi_cq/flag-read-write, fi_atomic/fetch-returns-initial-value,
/// fi_atomic/atomic-context-comes-back, fi_atomic/results-before-completion.
#[over(all)]
fn every_atomic_call_updates_the_region(net: &Net) {
    const LEN_BYTES: usize = 60;
    let (alice, bob) = net.open_pair();
    let ways = [AtomicBy::Single, AtomicBy::Vector, AtomicBy::Message, AtomicBy::Raw];
    let mut context = 0;
    for memory_kind in net.memory_kinds() {
        let region = bob.open_region(100, memory_kind, KEY);
        for (kind, by) in AtomicKind::ALL.into_iter().flat_map(|kind| ways.map(|by| (kind, by))) {
            context += 1;
            let what = format!("{by:?} {kind} on {memory_kind:?}");
            let count = if by == AtomicBy::Single { 1 } else { 3 };
            let before = payload(context, 100);
            region.write_at(0, &before);
            let (found, operand) = (before.slice(20..20 + LEN_BYTES), payload(context + 1000, LEN_BYTES));
            let (mut op, mut compares, mut inside) = (SUM_OF_BYTES, Vec::new(), found.to_vec());
            if kind == AtomicKind::Compare {
                // Two compare values differ from their elements, so these two elements are not swapped.
                let mut compare = found.to_vec();
                inside.copy_from_slice(&operand);
                for other in [7, LEN_BYTES - 1] {
                    compare[other] ^= 1;
                    inside[other] = found[other];
                }
                op.0 = AtomicOp::Cswap;
                compares = split_unevenly(&Bytes::from(compare), count);
            } else {
                add_to(&mut inside, &operand);
            }
            let call = AtomicCall::new(kind, op, operand.clone(), alice.peer(), &region, context);
            let operands = split_unevenly(&operand, count);
            let results_bytes = match count {
                3 if kind.fetches() => vec![5, LEN_BYTES - 5],
                _ => call.results_bytes.clone(),
            };
            let call = call.at_address(region.address_at(20));
            let call = AtomicCall { by, operands, compares, results_bytes, ..call };
            let posted = alice.endpoint.atomic(call.clone()).unwrap();
            let completion = expect_completion(&alice, kind, context);
            let expected = [&before[..20], &inside, &before[20 + LEN_BYTES..]].concat();
            region.expect_content(&alice, &expected, &what);
            let fetched = match posted {
                Some(room) => Some(room.into_filled_bytes(completion.context, LEN_BYTES)),
                None => kind.fetches().then(|| received_bytes(&completion.buffer)),
            };
            assert!(fetched.is_none_or(|fetched| fetched == found), "{what}");
            assert_buffers_returned(by, &call, &completion.buffer);
        }
    }
}

/// Checks that the completion returns the buffers of its call.
fn assert_buffers_returned(by: AtomicBy, call: &AtomicCall, buffer: &Buffer) {
    let sent = |pieces: &[Bytes]| match by {
        AtomicBy::Single => Buffer::Sent(pieces.concat().into()),
        _ => Buffer::SentVector(pieces.to_vec()),
    };
    match (by, call.kind) {
        (AtomicBy::Raw, _) => assert_eq!(*buffer, Buffer::None),
        (_, AtomicKind::Base) => assert_eq!(*buffer, sent(&call.operands)),
        (_, kind) => {
            let fetched = buffer.clone().into_fetched().expect("what was fetched");
            assert_eq!(fetched.operand, sent(&call.operands));
            let compare = if kind == AtomicKind::Compare { sent(&call.compares) } else { Buffer::None };
            assert_eq!(fetched.compare, compare);
            let lens_bytes: Vec<usize> = match fetched.result {
                Buffer::Received(result) if by == AtomicBy::Single => vec![result.len()],
                Buffer::ReceivedVector(results) => results.iter().map(BytesMut::len).collect(),
                other => panic!("not as it was posted: {other:?}"),
            };
            assert_eq!(lens_bytes, call.results_bytes);
        }
    }
}

/// Returns a small, non-negative number as an element.
pub(super) fn encode_element(value: i64, datatype: Datatype) -> Vec<u8> {
    let real = |size_bytes: usize| match size_bytes {
        4 => (value as f32).to_le_bytes().to_vec(),
        8 => (value as f64).to_le_bytes().to_vec(),
        // An 80-bit number: the highest bit of the significand is set, and the exponent of 1 is 16,383.
        _ if value == 0 => vec![0; 16],
        _ => {
            let shift = value.cast_unsigned().leading_zeros();
            let significand = value.cast_unsigned() << shift;
            let exponent = (16_383 + 63 - shift) as u16;
            [&significand.to_le_bytes()[..], &exponent.to_le_bytes(), &[0; 6]].concat()
        }
    };
    let size_bytes = datatype.size_bytes();
    match datatype {
        Datatype::Float | Datatype::Double | Datatype::LongDouble => real(size_bytes),
        Datatype::FloatComplex | Datatype::DoubleComplex | Datatype::LongDoubleComplex => {
            [real(size_bytes / 2), vec![0; size_bytes / 2]].concat()
        }
        _ => i128::from(value).to_le_bytes()[..size_bytes].to_vec(),
    }
}

/// Returns the result of an operation on small numbers that are not negative, as `fi_atomic(3)` defines it.
fn apply_atomic(op: AtomicOp, [element, operand, compare]: [i64; 3]) -> i64 {
    let swapped_if = |is_so: bool| if is_so { operand } else { element };
    match op {
        AtomicOp::Min => element.min(operand),
        AtomicOp::Max => element.max(operand),
        AtomicOp::Sum => element + operand,
        AtomicOp::Prod => element * operand,
        AtomicOp::Lor => i64::from(element != 0 || operand != 0),
        AtomicOp::Land => i64::from(element != 0 && operand != 0),
        AtomicOp::Bor => element | operand,
        AtomicOp::Band => element & operand,
        AtomicOp::Lxor => i64::from((element != 0) != (operand != 0)),
        AtomicOp::Bxor => element ^ operand,
        AtomicOp::Read => element,
        AtomicOp::Write => operand,
        AtomicOp::Cswap => swapped_if(compare == element),
        AtomicOp::CswapNe => swapped_if(compare != element),
        AtomicOp::CswapLe => swapped_if(compare <= element),
        AtomicOp::CswapLt => swapped_if(compare < element),
        AtomicOp::CswapGe => swapped_if(compare >= element),
        AtomicOp::CswapGt => swapped_if(compare > element),
        AtomicOp::Mswap => operand & compare | element & !compare,
    }
}

/// Shows fi_atomic/datatypes, fi_atomic/atomic-read-needs-no-operand.
#[over(all)]
fn every_operation_updates_every_datatype(net: &Net) {
    const VALUES: [[i64; 3]; 6] = [[6, 3, 6], [3, 6, 5], [0, 5, 7], [5, 0, 1], [11, 7, 12], [0, 0, 0]];
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(VALUES.len() * 32 + 8, MemoryKind::Owned, KEY);
    let (mut context, mut applied) = (0, 0);
    for datatype in Datatype::ALL {
        let is_padded = matches!(datatype, Datatype::LongDouble | Datatype::LongDoubleComplex);
        if is_padded && !alice.is_homespun() {
            // Providers need not keep the padding of an element.
            continue;
        }
        let len_bytes = VALUES.len() * datatype.size_bytes();
        let column = |place: usize| -> Vec<u8> {
            VALUES.iter().flat_map(|values| encode_element(values[place], datatype)).collect()
        };
        for (op, kind) in AtomicOp::ALL.into_iter().flat_map(|op| AtomicKind::ALL.map(|kind| (op, kind))) {
            let Some(count_max) = kind.count_max(op, datatype) else { continue };
            assert!(count_max >= VALUES.len());
            context += 1;
            region.write_at(8, &column(0));
            let mut expected = region.content();
            let operand = if op == AtomicOp::Read { Bytes::new() } else { column(1).into() };
            let mut call = AtomicCall::new(kind, (op, datatype), operand, alice.peer(), &region, context);
            call.results_bytes.iter_mut().for_each(|room_bytes| *room_bytes = len_bytes);
            call.compares.iter_mut().for_each(|compare| *compare = column(2).into());
            let is_refused = |error: &Error| error.errno() == Errno::EOPNOTSUPP && !alice.is_homespun();
            match alice.endpoint.atomic(call.at_address(region.address_at(8))) {
                Err(error) if is_refused(&error) => continue,
                posted => _ = posted.unwrap(),
            }
            let completion = expect_completion(&alice, kind, context);
            let what = format!("{kind} {op} of {datatype}");
            assert!(!kind.fetches() || received_bytes(&completion.buffer) == column(0), "{what}");
            let result = |values: &[i64; 3]| encode_element(apply_atomic(op, *values), datatype);
            let results: Vec<u8> = VALUES.iter().flat_map(result).collect();
            expected[8..8 + len_bytes].copy_from_slice(&results);
            region.expect_content(&alice, &expected, &what);
            applied += 1;
        }
    }
    assert!(applied > 0, "no operation is offered, though the capability is");
}

/// Shows fi_atomic/arrays-are-updated-completely.
#[over(all)]
fn arrays_of_every_length_are_updated_completely(net: &Net) {
    let (alice, bob) = net.open_pair();
    for memory_kind in net.memory_kinds() {
        let region = bob.open_region(ATOMIC_MAX_BYTES + 20, memory_kind, KEY);
        let counts = [1, 2, 7, 8, 100, 1024, 1500, ATOMIC_MAX_BYTES / 8];
        for (context, (count, at)) in (1..).zip(counts.into_iter().zip([0, 8, 3, 1, 16, 0, 7, 20])) {
            let len_bytes = count * 8;
            if len_bytes > MODEST_BYTES && !alice.is_homespun() {
                continue;
            }
            let before = payload(context, ATOMIC_MAX_BYTES + 20);
            region.write_at(0, &before);
            let (operand, inside) = (payload(context + 99, len_bytes), &before[at..at + len_bytes]);
            let (kind, what) = (AtomicKind::Compare, (AtomicOp::Mswap, Datatype::Uint64));
            let call = AtomicCall::new(kind, what, operand.clone(), alice.peer(), &region, context);
            let mask = payload(context + 999, len_bytes);
            let call = AtomicCall { compares: vec![mask.clone()], ..call.at_address(region.address_at(at)) };
            assert!(perform_and_wait(&alice, call) == *inside, "{count} elements at {at} of {memory_kind:?}");
            let mut masked = inside.to_vec();
            for (byte, (operand, mask)) in masked.iter_mut().zip(operand.iter().zip(&mask)) {
                *byte = operand & mask | *byte & !mask;
            }
            let expected = [&before[..at], &masked, &before[at + len_bytes..]].concat();
            assert!(region.content() == expected, "{count} elements at {at} of {memory_kind:?}");
        }
    }
}

/// Shows fi_atomic/inject-atomic-frees-and-hides.
#[over(all)]
fn injected_atomics_apply_in_order_and_report_nothing(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = open_cleared_region(&bob, INJECT_MAX_BYTES, MemoryKind::Raw);
    let mut expected = vec![0; INJECT_MAX_BYTES];
    let inject_size_bytes = alice.endpoint.info().tx.inject_size_bytes;
    let max_bytes = if alice.is_homespun() { INJECT_MAX_BYTES } else { inject_size_bytes.min(MODEST_BYTES) };
    for len_bytes in [1, 8, 200, INJECT_MAX_BYTES].into_iter().filter(|len_bytes| *len_bytes <= max_bytes) {
        let operand = payload(len_bytes as u64, len_bytes);
        let call = AtomicCall::new(AtomicKind::Base, SUM_OF_BYTES, operand.clone(), alice.peer(), &region, 0);
        alice.endpoint.atomic(AtomicCall { by: AtomicBy::Inject, ..call }).unwrap();
        add_to(&mut expected, &operand);
    }
    // A fetching call may inject its operands, too.
    let flags = OpFlags::INJECT;
    let call = AtomicCall::new(AtomicKind::Fetch, SUM_OF_BYTES, payload(7, 20), alice.peer(), &region, 5);
    let fetched = perform_and_wait(&alice, AtomicCall { by: AtomicBy::Message, flags, ..call });
    if alice.is_homespun() {
        assert!(fetched == expected[..20], "nothing is heard of the others, and they came first");
    }
    add_to(&mut expected, &payload(7, 20));
    region.expect_content(&alice, &expected, "the injected operations");
    alice.assert_no_completion();
}

/// Shows fi_cq/delivery-is-default-for-fetches.
#[over(driven, own)]
fn accesses_and_atomics_wait_for_a_sleeping_target(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::default(), Setup::asleep());
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    region.write_at(0, &encode_number(40));
    let other = bob.open_region(100_000, MemoryKind::Raw, KEY + 1);
    [RmaBy::Write, RmaBy::Read].into_iter().for_each(|by| post_access(by, &alice, &other, 3, 0, 100_000));
    alice.endpoint.atomic(make_add_call(AtomicKind::Base, &alice, &region, 1, 1)).unwrap();
    alice.endpoint.atomic(make_add_call(AtomicKind::Fetch, &alice, &region, 1, 2)).unwrap();
    alice.assert_no_completion();
    assert_eq!(region.content(), *encode_number(40));
    net.start_driving(&bob);
    let mut ended = [(); 4].map(|()| alice.next_completion());
    ended.sort_by_key(|completion| completion.context);
    assert_eq!(ended.each_ref().map(|completion| completion.context), [1, 2, 3, 3]);
    assert_eq!(received_bytes(&ended[1].buffer), *encode_number(41));
    assert!(other.content() == payload(3, 100_000));
}

#[over(all)]
fn atomics_take_effect_in_posting_order(net: &Net) {
    const COUNT: u64 = 200;
    let (alice, bob) = net.open_pair();
    let region = open_cleared_region(&bob, 8, MemoryKind::Raw);
    // Each operation must find the result of the previous one. A later message must arrive after all of
    // them.
    for value in 0..COUNT {
        let what = (AtomicOp::Cswap, Datatype::Uint64);
        let next = encode_number(value + 1);
        let call = AtomicCall::new(AtomicKind::Compare, what, next, alice.peer(), &region, value);
        let compares = vec![encode_number(value)];
        alice.endpoint.atomic(AtomicCall { compares, ..call }).unwrap();
    }
    alice.post_send(COUNT, 8, OpFlags::empty());
    bob.receive(1, 8);
    assert_eq!(region.content(), *encode_number(COUNT));
    alice.expect_each(0..=COUNT);
}

/// Shows fi_cq/fence-delays, fi_atomic/fenced-transfer-tells-of-atomic, fi_atomic/atomic-fence-defers.
#[over(all)]
fn fence_waits_for_preceding_atomics(net: &Net) {
    const COUNT: u64 = 20;
    let (alice, bob) = net.open_pair();
    let region = open_cleared_region(&bob, 8, MemoryKind::Owned);
    for round in 1..4 {
        for context in 0..COUNT {
            alice.endpoint.atomic(make_add_call(AtomicKind::Base, &alice, &region, 1, context)).unwrap();
        }
        let flags = OpFlags::FENCE;
        // A fenced read and a fenced atomic operation must find the effects of all these operations. When a
        // fenced message arrives, the memory of its receiver must have these effects, too.
        let read = RmaCall::new(RmaBy::Readmsg, encode_number(0), alice.peer(), &region, 50);
        alice.endpoint.rma(RmaCall { flags, ..read }).unwrap();
        let fenced = make_add_call(AtomicKind::Fetch, &alice, &region, 1, 60);
        alice.endpoint.atomic(AtomicCall { by: AtomicBy::Message, flags, ..fenced }).unwrap();
        alice.post_send(70, 0, flags);
        bob.receive(7, 0);
        let before = round * (COUNT + 1) - 1;
        assert_eq!(region.content(), *encode_number(before + 1));
        alice.expect_each(0..COUNT);
        alice.expect_message(50, &encode_number(before));
        alice.expect_message(60, &encode_number(before));
        assert_eq!(alice.next_completion().context, 70);
    }
}

/// Shows fi_cq/silent-access-as-initiator-level.
#[over(all)]
fn atomics_complete_at_every_level(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = open_cleared_region(&bob, 8, MemoryKind::Owned);
    for (context, flags) in (0..).zip(LEVELS) {
        let call = make_add_call(AtomicKind::Base, &alice, &region, 1, context);
        alice.endpoint.atomic(AtomicCall { by: AtomicBy::Message, flags, ..call }).unwrap();
        expect_completion(&alice, AtomicKind::Base, context);
        let expected = encode_number(context + 1);
        if alice.is_homespun() || [OpFlags::DELIVERY_COMPLETE, OpFlags::MATCH_COMPLETE].contains(&flags) {
            assert_eq!(region.content(), *expected, "{flags:?}");
        } else {
            // A lower level does not say that the operation was carried out.
            region.expect_content(&alice, &expected, &format!("{flags:?}"));
        }
    }
}

/// Shows fi_cq/errors-are-always-reported, fi_atomic/atomic-completion-flag.
#[over(all)]
fn selective_completion_hides_success_and_reports_failure(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::selective(), Setup::default());
    let region = open_cleared_region(&bob, 8, MemoryKind::Owned);
    let call = |kind, context| make_add_call(kind, &alice, &region, 1, context);
    alice.endpoint.atomic(call(AtomicKind::Base, 1)).unwrap();
    alice.endpoint.atomic(call(AtomicKind::Fetch, 2)).unwrap();
    let flags = OpFlags::COMPLETION;
    for (context, kind) in [(3, AtomicKind::Base), (4, AtomicKind::Fetch)] {
        let call = AtomicCall { by: AtomicBy::Message, flags, ..call(kind, context) };
        alice.endpoint.atomic(call).unwrap();
        expect_completion(&alice, kind, context);
    }
    let mut ways = vec![(AtomicBy::Single, AtomicKind::Fetch)];
    if alice.is_homespun() {
        // With another provider, a base operation may have completed before it is refused.
        ways.extend([(AtomicBy::Single, AtomicKind::Base), (AtomicBy::Inject, AtomicKind::Base)]);
    }
    for (by, kind) in ways {
        let mut call = AtomicCall { by, ..call(kind, 5) };
        call.target.memory.key = 1;
        alice.endpoint.atomic(call).unwrap();
        // Injected operations have no context.
        let context = if by == AtomicBy::Single { 5 } else { 0 };
        assert_eq!(alice.next_failure().completion.context, context);
    }
    alice.assert_no_completion();
    region.expect_content(&alice, &encode_number(4), "the operations that succeed");
}
