//! Which atomic operations an endpoint may begin or accept, and how others are refused: `fi_atomic(3)`.

use super::atomics::{
    MODEST_BYTES, SUM, SUM_OF_BYTES, encode_number, expect_completion, expected_flags, make_add_call,
    open_cleared_region, perform_and_wait,
};
use super::prelude::*;

/// Waits until the target has refused an operation of this kind. Returns `None` if the operation completed
/// before: the completion of a base operation says only that its buffers are free (`fi_atomic(3)`).
#[track_caller]
fn next_refusal(party: &Party, kind: AtomicKind) -> Option<CompletionError> {
    match party.next_ended() {
        Err(failed) => Some(failed),
        Ok(_) if kind == AtomicKind::Base && !party.is_homespun() => None,
        Ok((completion, _)) => panic!("an operation did not fail: {completion:?}"),
    }
}

/// Shows fi_atomic/atomic-needs-rights, fi_mr/access-rights.
#[over(all)]
fn access_beyond_rights_or_bounds_is_refused_and_the_next_succeeds(net: &Net) {
    let (alice, bob) = net.open_pair();
    for memory_kind in net.memory_kinds() {
        let of = |access, key| RegionSpec { access, key, ..RegionSpec::new(100, memory_kind, KEY) };
        let region = bob.register(of(EVERYTHING, KEY)).unwrap();
        let unreadable = bob.register(of(MrAccess::REMOTE_WRITE, 2)).unwrap();
        let unwritable = bob.register(of(MrAccess::REMOTE_READ, 3)).unwrap();
        for len_bytes in [8, 50, 9000] {
            if len_bytes > MODEST_BYTES && !alice.is_homespun() {
                continue;
            }
            let call =
                |kind, what| AtomicCall::new(kind, what, payload(1, len_bytes), alice.peer(), &region, 1);
            let calls = [
                call(AtomicKind::Base, SUM_OF_BYTES),
                call(AtomicKind::Fetch, SUM_OF_BYTES),
                call(AtomicKind::Fetch, (AtomicOp::Read, Datatype::Uint8)),
                call(AtomicKind::Compare, (AtomicOp::CswapNe, Datatype::Uint8)),
            ];
            let mut cases = Vec::new();
            for call in &calls {
                let by_key = |key| {
                    let memory = RemoteMemory { key, ..call.target.memory };
                    AtomicCall { target: AtomicTarget { memory, ..call.target }, ..call.clone() }
                };
                cases.push((by_key(KEY + 1), Errno::EKEYREJECTED));
                if call.kind.fetches() {
                    cases.push((by_key(unreadable.key()), Errno::EACCES));
                }
                if call.target.op.can_write() {
                    cases.push((by_key(unwritable.key()), Errno::EACCES));
                }
                let [start, end] = [region.address_at(0), region.address_at(100)];
                for address in [start.wrapping_sub(1), end - 7, end + 1, u64::MAX] {
                    cases.push((call.clone().at_address(address), Errno::EINVAL));
                }
            }
            for (call, errno) in cases {
                alice.endpoint.atomic(call.clone()).unwrap();
                let Some(failed) = next_refusal(&alice, call.kind) else { continue };
                assert_eq!(failed.completion.context, 1, "{call:?}");
                if alice.is_homespun() {
                    assert_eq!(failed.errno(), errno, "{call:?}");
                    assert_eq!(failed.completion.flags, expected_flags(call.kind));
                }
            }
        }
        // Reads of the read-only region succeed.
        let (read, bytes) = ((AtomicOp::Read, Datatype::Uint8), Bytes::from(vec![0; 100]));
        let call = AtomicCall::new(AtomicKind::Fetch, read, bytes, alice.peer(), &unwritable, 2);
        assert!(perform_and_wait(&alice, call) == marked_buffer(100));
        let regions = [region, unreadable, unwritable];
        assert!(regions.iter().all(|region| region.content() == marked_buffer(100)));
    }
    alice.exchange_long_messages(&bob);
}

#[over(all)]
fn target_refuses_accesses_that_its_capabilities_lack(net: &Net) {
    let messages = Caps::MSG | Caps::SEND | Caps::RECV;
    let read = (AtomicOp::Read, Datatype::Uint64);
    for (caps, may_read, may_add) in [
        (Caps::ATOMIC | Caps::REMOTE_READ, true, false),
        (Caps::ATOMIC | Caps::REMOTE_WRITE, false, true),
        (Caps::RMA | Caps::REMOTE_READ | Caps::REMOTE_WRITE, false, false),
    ] {
        let (alice, bob) =
            net.open_pair_with(Setup::default(), Setup { caps: messages | caps, ..Setup::default() });
        let region = open_cleared_region(&bob, 8, MemoryKind::Owned);
        let reading = AtomicCall::new(AtomicKind::Fetch, read, encode_number(0), alice.peer(), &region, 1);
        let add = |kind| make_add_call(kind, &alice, &region, 5, 1);
        // A fetching addition needs both rights.
        let adding = [(add(AtomicKind::Base), may_add), (add(AtomicKind::Fetch), false)];
        for (call, may) in [(reading, may_read)].into_iter().chain(adding) {
            alice.endpoint.atomic(call).unwrap();
            match alice.next_ended() {
                Ok(_) => assert!(may, "{caps:?}"),
                Err(failed) => assert_eq!((failed.errno(), may), (Errno::EACCES, false)),
            }
        }
        assert_eq!(region.content(), *encode_number(if may_add { 5 } else { 0 }));
    }
}

/// Shows fi_atomic/atomic-inject-limit, fi_atomic/unsupported-atomic-eopnotsupp.
#[over(driven, native)]
fn post_with_invalid_arguments_is_refused(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup { tx_depth_ops: 2, ..Setup::default() }, Setup::asleep());
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    let errno = |call: AtomicCall| alice.endpoint.atomic(call).err().map(|error| error.errno());
    let call =
        |kind, what, len_bytes| AtomicCall::new(kind, what, payload(1, len_bytes), alice.peer(), &region, 1);
    // Unsupported combinations of datatype and operation.
    for (kind, op, datatype) in [
        (AtomicKind::Base, AtomicOp::Read, Datatype::Uint8),
        (AtomicKind::Base, AtomicOp::Cswap, Datatype::Uint8),
        (AtomicKind::Fetch, AtomicOp::Mswap, Datatype::Uint8),
        (AtomicKind::Compare, AtomicOp::Sum, Datatype::Uint8),
        (AtomicKind::Base, AtomicOp::Bor, Datatype::Double),
        (AtomicKind::Base, AtomicOp::Min, Datatype::FloatComplex),
        (AtomicKind::Compare, AtomicOp::CswapLe, Datatype::DoubleComplex),
    ] {
        for len_bytes in [0, 16] {
            assert_eq!(errno(call(kind, (op, datatype), len_bytes)), Some(Errno::EOPNOTSUPP));
        }
    }
    // Too many elements, a part of an element, and mismatched lengths.
    let cswap = (AtomicOp::Cswap, Datatype::Uint64);
    let (wide, fetch) = (call(AtomicKind::Base, SUM, 8), call(AtomicKind::Fetch, SUM, 16));
    let compare = call(AtomicKind::Compare, cswap, 16);
    let long = call(AtomicKind::Base, SUM_OF_BYTES, INJECT_MAX_BYTES + 1);
    let swap = call(AtomicKind::Compare, cswap, INJECT_MAX_BYTES + 8);
    let inject = |call| AtomicCall { by: AtomicBy::Message, flags: OpFlags::INJECT, ..call };
    let (by, many) = (AtomicBy::Vector, vec![payload(1, 8); 5]);
    let mut astray = wide.clone();
    astray.target.peer = FabricAddress(77);
    for (call, expected) in [
        (call(AtomicKind::Fetch, SUM, ATOMIC_MAX_BYTES + 8), Errno::EMSGSIZE),
        (AtomicCall { by: AtomicBy::Inject, ..long.clone() }, Errno::EMSGSIZE),
        (inject(long), Errno::EMSGSIZE),
        (inject(swap), Errno::EMSGSIZE),
        (call(AtomicKind::Base, SUM, 12), Errno::EINVAL),
        (AtomicCall { results_bytes: vec![8], ..fetch.clone() }, Errno::EINVAL),
        (AtomicCall { compares: vec![payload(1, 8)], ..compare.clone() }, Errno::EINVAL),
        (AtomicCall { by, operands: many.clone(), ..wide.clone() }, Errno::EINVAL),
        (AtomicCall { by, compares: many, ..compare }, Errno::EINVAL),
        (AtomicCall { by, results_bytes: vec![8; 5], ..fetch }, Errno::EINVAL),
        (astray, Errno::EINVAL),
    ] {
        assert_eq!(errno(call.clone()), Some(expected), "{call:?}");
    }
    // The maximum of segments, and one more.
    let answers = [(); 3].map(|()| errno(wide.clone()));
    assert_eq!(answers, [None, None, Some(Errno::EAGAIN)]);
    net.start_driving(&bob);
    (0..2).for_each(|_| _ = expect_completion(&alice, AtomicKind::Base, 1));
    alice.assert_no_completion();
}

#[over(one_process)]
fn refused_post_returns_its_buffers(net: &Net) {
    let alice = net.open_party();
    let endpoint = alice.endpoint.expect_local();
    let ((op, datatype), flags) = (SUM, OpFlags::empty());
    let target = AtomicTarget { peer: ANY, memory: RemoteMemory { address: 0, key: KEY }, datatype, op };
    let (bytes, several) = (payload(1, 8), split_unevenly(&payload(2, 8), 2));
    expect_rejected(endpoint.atomic(bytes.clone(), target, 1), Errno::EINVAL, bytes.clone());
    expect_rejected(endpoint.atomicv(several.clone(), target, 1), Errno::EINVAL, several.clone());
    let result = Buffer::Received(marked_buffer(8));
    let back = |operand, compare| Fetched { result: result.clone(), operand: Buffer::Sent(operand), compare };
    let rejected = endpoint.fetch_atomic(bytes.clone(), marked_buffer(8), target, 1).unwrap_err();
    assert_eq!(*rejected.returned, back(bytes.clone(), Buffer::None));
    let other = payload(3, 8);
    let rejected = endpoint.compare_atomic(bytes.clone(), other.clone(), marked_buffer(8), target, 1);
    assert_eq!(*rejected.unwrap_err().returned, back(bytes, Buffer::Sent(other)));
    let (operands, results) = (several.clone(), vec![marked_buffer(3), marked_buffer(5)]);
    let fetch = FetchAtomicMsg { operands, results: results.clone(), target, context: 4, flags };
    let back = endpoint.fetch_atomicmsg(fetch).unwrap_err().returned;
    assert_eq!((&back.operands, &back.results), (&several, &results));
    assert_eq!((back.target, back.context), (target, 4));
    let (operands, compares) = (several.clone(), vec![payload(1, 2); 5]);
    let buffers = (operands.clone(), compares.clone(), results.clone());
    let compare = CompareAtomicMsg { operands, compares, results, target, context: 5, flags };
    let rejected = endpoint.compare_atomicmsg(compare).unwrap_err();
    assert_eq!(rejected.error, Misuse::TooManySegments { count: 5, max: 4 }.into());
    let CompareAtomicMsg { operands, compares, results, .. } = *rejected.returned;
    assert_eq!((operands, compares, results), buffers);
}
