//! Atomic operations on the memory of a peer.

use std::ptr;

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_fi::abi::atomic::{FiAtomicAttr, FiIoc, FiMsgAtomic, FiOpsAtomic, FiRmaIoc};
use homespun_fi::abi::domain::{FidDomain, FidMr};
use homespun_fi::abi::endpoint::FidEp;
use homespun_fi::abi::eq::{FiCqErrEntry, FiCqTaggedEntry};
use homespun_fi::abi::{FI_COMPARE_ATOMIC, FI_CQ_FORMAT_TAGGED, FI_FETCH_ATOMIC};
use libc::{c_int, c_void};

use crate::host::{API_VERSION, Node, Object, Pair, numbered_context};

const ATOMIC: u64 = 1 << 4;
const READ: u64 = 1 << 8;
const WRITE: u64 = 1 << 9;
const REMOTE_READ: u64 = 1 << 12;
const REMOTE_WRITE: u64 = 1 << 13;
const REMOTE_CQ_DATA: u64 = 1 << 17;
const TAGGED: u64 = 1 << 3;
const MULTICAST: u64 = 1 << 5;
const TRIGGER: u64 = 1 << 20;
const MEANINGLESS: u64 = TAGGED | REMOTE_CQ_DATA | 1 << 40 | 1 << 63;
const INJECT: u64 = 1 << 25;

const EAVAIL: isize = -259;
const EINVAL: isize = -22;
const EMSGSIZE: isize = -90;
const EOPNOTSUPP: isize = -95;
const EBADFLAGS: isize = -260;
const EKEYREJECTED: c_int = 129;

const SUM: u32 = AtomicOp::Sum as u32;
const FETCHED: u32 = AtomicOp::Read as u32;
const CSWAP: u32 = AtomicOp::Cswap as u32;
const U32: u32 = Datatype::Uint32 as u32;

const KEY: u64 = 77;
const NONE: *mut c_void = ptr::null_mut();

/// Registers memory that outlives the region.
fn reg(domain: &Object<FidDomain>, elements: &mut [u32]) -> Object<FidMr> {
    let domain = domain.as_ptr();
    // SAFETY: the domain is open, and the buffer stays in place until the region is closed.
    let region = Object::open(|mr| unsafe {
        let reg = (*(*domain).mr).reg;
        let access = REMOTE_READ | REMOTE_WRITE;
        reg(domain.cast(), elements.as_ptr().cast(), size_of_val(elements), access, 0, KEY, 0, mr, NONE)
    });
    region.expect("a region")
}

/// Returns the atomic operations of an endpoint.
fn atomic_ops(ep: *mut FidEp) -> &'static FiOpsAtomic {
    // SAFETY: the endpoint is open, and its operations are never freed.
    unsafe { &*(*ep).atomic }
}

fn ioc(elements: &[u32]) -> FiIoc {
    FiIoc { addr: elements.as_ptr().cast_mut().cast(), count: elements.len() }
}

fn ioc_mut(elements: &mut [u32]) -> FiIoc {
    FiIoc { addr: elements.as_mut_ptr().cast(), count: elements.len() }
}

/// Returns an entry's context and flags; its other fields must be 0.
fn context_and_flags(entry: &FiCqTaggedEntry) -> (usize, u64) {
    assert!(entry.buf.is_null() && (entry.len, entry.data, entry.tag) == (0, 0, 0));
    (entry.op_context.addr(), entry.flags)
}

#[test]
fn every_base_call_updates_the_region() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let left = pair.left.ep.as_ptr();
    let mut memory = [1u32, 2, 3, 4];
    let region = reg(&pair.right.domain, &mut memory);
    let (tens, hundreds, ones) = ([10u32, 20], [100u32, 200], [1000u32; 4]);
    let to = pair.to_right;
    let parts = [ioc(&hundreds[..1]), ioc(&hundreds[1..])];
    let target = FiRmaIoc { addr: 0, count: 4, key: KEY };
    let all = ioc(&ones);
    let msg = FiMsgAtomic {
        msg_iov: &raw const all,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: to,
        rma_iov: &raw const target,
        rma_iov_count: 1,
        datatype: U32,
        op: SUM,
        context: numbered_context(3),
        data: 0,
    };
    let mut injected = [10_000u32];
    // SAFETY: the endpoint is open, and all buffers live until the completions are read.
    unsafe {
        let (atomic, none) = (atomic_ops(left), NONE.cast());
        let tens = tens.as_ptr().cast();
        assert_eq!((atomic.write)(left, tens, 2, NONE, to, 0, KEY, U32, SUM, numbered_context(1)), 0);
        assert_eq!(
            (atomic.writev)(left, parts.as_ptr(), none, 2, to, 8, KEY, U32, SUM, numbered_context(2)),
            0
        );
        assert_eq!((atomic.writemsg)(left, &raw const msg, 0), 0);
        assert_eq!((atomic.inject)(left, injected.as_ptr().cast(), 1, to, 12, KEY, U32, SUM), 0);
        injected[0] = 7;
        // The last operation takes effect after all others.
        let last = FiMsgAtomic { context: numbered_context(4), ..msg };
        assert_eq!((atomic.writemsg)(left, &raw const last, INJECT | MEANINGLESS), 0);
    }
    let [updated, told] = pair.read_completions(4, 0);
    let updated: Vec<_> = updated.iter().map(|(entry, _)| context_and_flags(entry)).collect();
    assert_eq!(updated, [1, 2, 3, 4].map(|number| (number, ATOMIC | WRITE)));
    assert!(told.is_empty() && injected == [7]);
    assert!(region.close().is_ok());
    assert_eq!(memory, [2011, 2022, 2103, 12_204]);
}

#[test]
fn every_fetch_call_returns_the_former_values() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let left = pair.left.ep.as_ptr();
    let mut memory = [1u32, 2, 3];
    let region = reg(&pair.right.domain, &mut memory);
    let operands = [10u32, 20, 30];
    let mut results = [[0u32; 3]; 4];
    let to = pair.to_right;
    let target = FiRmaIoc { addr: 0, count: 3, key: KEY };
    let [first, second, third, fourth] = &mut results;
    let (start, end) = second.split_at_mut(1);
    let parts = [ioc(&operands[..2]), ioc(&operands[2..])];
    let mut rooms = [ioc_mut(start), ioc_mut(end)];
    let mut room = ioc_mut(third);
    let msg = FiMsgAtomic {
        msg_iov: parts.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: 2,
        addr: to,
        rma_iov: &raw const target,
        rma_iov_count: 1,
        datatype: U32,
        op: SUM,
        context: numbered_context(3),
        data: 0,
    };
    // SAFETY: the endpoint is open, and all buffers live until the completions are read.
    unsafe {
        let (atomic, none) = (atomic_ops(left), NONE.cast());
        let operands = operands.as_ptr().cast();
        let first = first.as_mut_ptr().cast();
        let fetched = (atomic.readwrite)(
            left,
            operands,
            3,
            NONE,
            first,
            NONE,
            to,
            0,
            KEY,
            U32,
            SUM,
            numbered_context(1),
        );
        assert_eq!(fetched, 0);
        let rooms = rooms.as_mut_ptr();
        let parts = parts.as_ptr();
        let fetched = (atomic.readwritev)(
            left,
            parts,
            none,
            2,
            rooms,
            none,
            2,
            to,
            0,
            KEY,
            U32,
            SUM,
            numbered_context(2),
        );
        assert_eq!(fetched, 0);
        assert_eq!((atomic.readwritemsg)(left, &raw const msg, &raw mut room, none, 1, INJECT), 0);
        // An atomic read has no operand, and ignores the operand's pointer.
        let nowhere = ptr::without_provenance(1);
        let fourth = fourth.as_mut_ptr();
        for (place, operand) in [(0, ptr::null()), (1, nowhere)] {
            let result = fourth.wrapping_add(place).cast();
            let fetched = (atomic.readwrite)(
                left,
                operand,
                1,
                NONE,
                result,
                NONE,
                to,
                4 * place as u64,
                KEY,
                U32,
                FETCHED,
                numbered_context(4 + place),
            );
            assert_eq!(fetched, 0);
        }
        let mut room = FiIoc { addr: fourth.wrapping_add(2).cast(), count: 1 };
        let last = FiRmaIoc { addr: 8, count: 1, key: KEY };
        let read = FiMsgAtomic {
            msg_iov: ptr::null(),
            iov_count: 0,
            rma_iov: &raw const last,
            op: FETCHED,
            context: numbered_context(6),
            ..msg
        };
        assert_eq!((atomic.readwritemsg)(left, &raw const read, &raw mut room, none, 1, 0), 0);
    }
    let [fetched, _] = pair.read_completions(6, 0);
    let fetched: Vec<_> = fetched.iter().map(|(entry, _)| context_and_flags(entry)).collect();
    assert_eq!(fetched, [1, 2, 3, 4, 5, 6].map(|number| (number, ATOMIC | READ)));
    assert!(region.close().is_ok());
    assert_eq!(results, [[1, 2, 3], [11, 22, 33], [21, 42, 63], [31, 62, 93]]);
    assert_eq!(memory, [31, 62, 93]);
}

#[test]
fn every_compare_call_swaps_equal_elements() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let left = pair.left.ep.as_ptr();
    let mut memory = [1u32, 2, 3];
    let region = reg(&pair.right.domain, &mut memory);
    let operands = [[10u32, 20, 30], [11, 21, 31], [12, 22, 32]];
    let compares = [[1u32, 2, 99], [10, 99, 3], [99, 20, 31]];
    let mut results = [[0u32; 3]; 3];
    let to = pair.to_right;
    let target = FiRmaIoc { addr: 0, count: 3, key: KEY };
    let [first, second, third] = &mut results;
    let (start, end) = second.split_at_mut(2);
    let parts = [ioc(&operands[1][..1]), ioc(&operands[1][1..])];
    let compare_parts = [ioc(&compares[1][..2]), ioc(&compares[1][2..])];
    let mut rooms = [ioc_mut(start), ioc_mut(end)];
    let (last, last_compare, mut room) = (ioc(&operands[2]), ioc(&compares[2]), ioc_mut(third));
    let msg = FiMsgAtomic {
        msg_iov: &raw const last,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: to,
        rma_iov: &raw const target,
        rma_iov_count: 1,
        datatype: U32,
        op: CSWAP,
        context: numbered_context(3),
        data: 0,
    };
    // SAFETY: the endpoint is open, and all buffers live until the completions are read.
    unsafe {
        let (atomic, none) = (atomic_ops(left), NONE.cast());
        let (operand, compare) = (operands[0].as_ptr().cast(), compares[0].as_ptr().cast());
        let first = first.as_mut_ptr().cast();
        let swapped = (atomic.compwrite)(
            left,
            operand,
            3,
            NONE,
            compare,
            NONE,
            first,
            NONE,
            to,
            0,
            KEY,
            U32,
            CSWAP,
            numbered_context(1),
        );
        assert_eq!(swapped, 0);
        let (parts, compare_parts, rooms) = (parts.as_ptr(), compare_parts.as_ptr(), rooms.as_mut_ptr());
        let swapped = (atomic.compwritev)(
            left,
            parts,
            none,
            2,
            compare_parts,
            none,
            2,
            rooms,
            none,
            2,
            to,
            0,
            KEY,
            U32,
            CSWAP,
            numbered_context(2),
        );
        assert_eq!(swapped, 0);
        let last_compare = &raw const last_compare;
        let swapped =
            (atomic.compwritemsg)(left, &raw const msg, last_compare, none, 1, &raw mut room, none, 1, 0);
        assert_eq!(swapped, 0);
    }
    let [swapped, _] = pair.read_completions(3, 0);
    let swapped: Vec<_> = swapped.iter().map(|(entry, _)| context_and_flags(entry)).collect();
    assert_eq!(swapped, [1, 2, 3].map(|number| (number, ATOMIC | READ)));
    assert!(region.close().is_ok());
    assert_eq!(results, [[1, 2, 3], [10, 20, 3], [11, 20, 31]]);
    assert_eq!(memory, [11, 22, 32]);
}

#[test]
fn refusal_by_the_target_is_an_error_entry() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let left = pair.left.ep.as_ptr();
    let (operand, mut result) = ([1u32], [5u32]);
    // SAFETY: the endpoint is open, and the buffers live until the error is read.
    let posted = unsafe {
        let result = result.as_mut_ptr().cast();
        let operand = operand.as_ptr().cast();
        (atomic_ops(left).readwrite)(
            left,
            operand,
            1,
            NONE,
            result,
            NONE,
            pair.to_right,
            0,
            1,
            U32,
            SUM,
            numbered_context(5),
        )
    };
    assert_eq!(posted, 0);
    pair.wait_until(|pair| {
        assert!(pair.right.try_read::<FiCqTaggedEntry>().is_err());
        pair.left.try_read::<FiCqTaggedEntry>().err() == Some(EAVAIL)
    });
    // SAFETY: all fields are integers and pointers.
    let mut failed: FiCqErrEntry = unsafe { std::mem::zeroed() };
    assert_eq!(pair.left.read_error(&mut failed), 1);
    assert_eq!((failed.op_context.addr(), failed.err, failed.flags), (5, EKEYREJECTED, ATOMIC | READ));
    assert_eq!(result, [5]);
}

/// Returns the answers of the three validity calls.
fn call_validity_checks(ep: *mut FidEp, datatype: u32, op: u32) -> [Result<usize, c_int>; 3] {
    let atomic = atomic_ops(ep);
    [atomic.writevalid, atomic.readwritevalid, atomic.compwritevalid].map(|valid| {
        let mut count = usize::MAX;
        // SAFETY: the endpoint is open, and there is a place for the count.
        match unsafe { valid(ep, datatype, op, &raw mut count) } {
            0 => Ok(count),
            error => {
                assert_eq!(count, usize::MAX, "an error must leave the count alone");
                Err(error)
            }
        }
    })
}

fn query_atomic(domain: *mut FidDomain, datatype: u32, op: u32, flags: u64) -> Result<(usize, usize), c_int> {
    let mut attr = FiAtomicAttr { count: usize::MAX, size: usize::MAX };
    // SAFETY: the domain is open, and there is a place for the answer.
    match unsafe { ((*(*domain).ops).query_atomic)(domain, datatype, op, &raw mut attr, flags) } {
        0 => Ok((attr.count, attr.size)),
        error => {
            assert_eq!((attr.count, attr.size), (usize::MAX, usize::MAX));
            Err(error)
        }
    }
}

#[test]
fn query_atomic_names_every_supported_operation() {
    const NOT_SUPPORTED: c_int = EOPNOTSUPP as c_int;
    let node = Node::open();
    let (ep, domain) = (node.ep.as_ptr(), node.domain.as_ptr());
    for (datatype, op) in (0..21).flat_map(|datatype| (0..21).map(move |op| (datatype, op))) {
        let named = Datatype::from_number(datatype).zip(AtomicOp::from_number(op));
        let flags = [0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC];
        let answers =
            call_validity_checks(ep, datatype, op).into_iter().zip(AtomicKind::ALL.into_iter().zip(flags));
        for (valid, (kind, flags)) in answers {
            let expected = named.and_then(|(datatype, op)| kind.count_max(op, datatype));
            assert_eq!(valid, expected.ok_or(NOT_SUPPORTED), "{kind} {op} of {datatype}");
            let size = named.map_or(0, |(datatype, _)| datatype.size_bytes());
            let queried = query_atomic(domain, datatype, op, flags);
            assert_eq!(queried, expected.map(|count| (count, size)).ok_or(NOT_SUPPORTED));
        }
    }
    let sum = |flags| query_atomic(domain, U32, SUM, flags);
    assert_eq!(sum(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC), Err(EINVAL as c_int));
    assert_eq!(sum(TAGGED), Err(NOT_SUPPORTED), "receive buffers are no targets");
    assert_eq!(sum(TAGGED | FI_FETCH_ATOMIC), Err(NOT_SUPPORTED));
    assert_eq!(sum(REMOTE_CQ_DATA), sum(0), "it says nothing of an operation");
    // SAFETY: the objects are open; the test checks that null is refused.
    unsafe {
        assert_eq!((atomic_ops(ep).writevalid)(ep, U32, SUM, ptr::null_mut()), EINVAL as c_int);
        let query = (*(*domain).ops).query_atomic;
        assert_eq!(query(domain, U32, SUM, ptr::null_mut(), 0), EINVAL as c_int);
    }
}

#[test]
fn invalid_calls_are_refused_before_pointers_are_read() {
    let node = Node::open();
    let own = node.insert(&node.name());
    let ep = node.ep.as_ptr();
    let atomic = atomic_ops(ep);
    let (operand, compare, mut result) = ([1u32, 2], [3u32, 4], [5u32, 6]);
    let (operands, compares) = (ioc(&operand), ioc(&compare));
    let mut results = ioc_mut(&mut result);
    let results = &raw mut results;
    let target = |count| FiRmaIoc { addr: 0, count, key: KEY };
    let targets = [target(1), target(1), target(2), target(3), target(usize::MAX)];
    let message = |targets: &[FiRmaIoc], op| FiMsgAtomic {
        msg_iov: &raw const operands,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: own,
        rma_iov: targets.as_ptr(),
        rma_iov_count: targets.len(),
        datatype: U32,
        op,
        context: NONE,
        data: 0,
    };
    let post = |targets: &[FiRmaIoc], change: fn(&mut FiMsgAtomic), flags| {
        [SUM, SUM, CSWAP].map(|op| message(targets, op)).map(|mut msg| {
            change(&mut msg);
            // SAFETY: the endpoint is open. The plugin refuses all calls, so it uses no memory after
            // the call.
            unsafe {
                match msg.op {
                    CSWAP => {
                        let compares = &raw const compares;
                        (atomic.compwritemsg)(
                            ep,
                            &raw const msg,
                            compares,
                            NONE.cast(),
                            1,
                            results,
                            NONE.cast(),
                            1,
                            flags,
                        )
                    }
                    _ if flags & FI_FETCH_ATOMIC != 0 => {
                        let flags = flags & !FI_FETCH_ATOMIC;
                        (atomic.readwritemsg)(ep, &raw const msg, results, NONE.cast(), 1, flags)
                    }
                    _ => (atomic.writemsg)(ep, &raw const msg, flags),
                }
            }
        })
    };
    let no_change = |_: &mut FiMsgAtomic| {};
    // The plugin refuses remote elements that differ in number from the local ones, or lie in several
    // segments.
    for targets in [&targets[..0], &targets[..1], &targets[..2], &targets[3..4]] {
        assert_eq!(post(targets, no_change, 0), [EINVAL; 3]);
    }
    assert_eq!(post(&targets[4..], no_change, 0), [EMSGSIZE; 3]);
    let right = &targets[2..3];
    assert_eq!(post(right, |msg| msg.datatype = 16, 0), [EOPNOTSUPP; 3]);
    assert_eq!(post(right, |msg| msg.op += 1000, 0)[..2], [EOPNOTSUPP; 2]);
    assert_eq!(post(right, |msg| msg.iov_count = 5, 0), [EINVAL; 3]);
    assert_eq!(post(right, |msg| msg.msg_iov = ptr::null(), 0), [EINVAL; 3]);
    assert_eq!(post(right, |msg| msg.rma_iov = ptr::null(), 0), [EINVAL; 3]);
    for flags in [TRIGGER, MULTICAST] {
        assert_eq!(post(right, no_change, flags), [EBADFLAGS; 3]);
    }
    // SAFETY: the endpoint is open. The plugin refuses all calls, so it uses no memory after the call.
    unsafe {
        let none = NONE.cast();
        let (operand, compare) = (operand.as_ptr().cast(), compare.as_ptr().cast());
        let result = result.as_mut_ptr().cast();
        let write = |buf, count| (atomic.write)(ep, buf, count, NONE, own, 0, KEY, U32, SUM, NONE);
        assert_eq!(write(ptr::null(), 1), EINVAL);
        assert_eq!([write(operand, 4097), write(operand, usize::MAX)], [EMSGSIZE; 2]);
        let inject = |buf, count| (atomic.inject)(ep, buf, count, own, 0, KEY, U32, SUM);
        assert_eq!(inject(ptr::null(), 1), EINVAL);
        assert_eq!([inject(operand, usize::MAX), inject(operand, usize::MAX / 4)], [EMSGSIZE; 2]);
        let fetch =
            |buf, result, op| (atomic.readwrite)(ep, buf, 1, NONE, result, NONE, own, 0, KEY, U32, op, NONE);
        assert_eq!(fetch(ptr::null(), result, SUM), EINVAL);
        assert_eq!(fetch(operand, NONE, SUM), EINVAL);
        assert_eq!(fetch(operand, NONE, FETCHED), EINVAL);
        assert_eq!(fetch(operand, result, CSWAP), EOPNOTSUPP);
        let swap = |buf, compare, result| {
            (atomic.compwrite)(ep, buf, 1, NONE, compare, NONE, result, NONE, own, 0, KEY, U32, CSWAP, NONE)
        };
        assert_eq!(swap(ptr::null(), compare, result), EINVAL);
        assert_eq!(swap(operand, ptr::null(), result), EINVAL);
        assert_eq!(swap(operand, compare, NONE), EINVAL);
        let write = (atomic.write)(ep, operand, 1, NONE, own, 0, KEY, U32, FETCHED, NONE);
        assert_eq!(write, EOPNOTSUPP, "a read that fetches nothing");
        let fetched = (atomic.readwritev)(
            ep,
            &raw const operands,
            none,
            1,
            ptr::null_mut(),
            none,
            1,
            own,
            0,
            KEY,
            U32,
            SUM,
            NONE,
        );
        assert_eq!(fetched, EINVAL);
        let msg = message(right, SUM);
        assert_eq!((atomic.readwritemsg)(ep, &raw const msg, ptr::null_mut(), none, 1, 0), EINVAL);
        assert_eq!((atomic.writemsg)(ep, ptr::null(), 0), EINVAL);
    }
}

#[test]
fn operation_on_no_elements_completes() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let (left, to) = (pair.left.ep.as_ptr(), pair.to_right);
    let atomic = atomic_ops(left);
    let none = NONE.cast();
    let target = FiRmaIoc { addr: 0, count: 0, key: KEY };
    let element = [7u32];
    let empty = ioc(&element[..0]);
    let nowhere = FiMsgAtomic {
        msg_iov: ptr::null(),
        desc: ptr::null_mut(),
        iov_count: 0,
        addr: to,
        rma_iov: ptr::null(),
        rma_iov_count: 0,
        datatype: U32,
        op: SUM,
        context: numbered_context(1),
        data: 0,
    };
    let somewhere = FiMsgAtomic { rma_iov: &raw const target, rma_iov_count: 1, ..nowhere };
    let of_one = FiMsgAtomic { msg_iov: &raw const empty, iov_count: 1, ..somewhere };
    let ends = |posted: isize, direction: u64| {
        assert_eq!(posted, 0);
        let [ended, _] = pair.read_completions(1, 0);
        assert_eq!(context_and_flags(&ended[0].0), (1, ATOMIC | direction));
    };
    let one = numbered_context(1);
    // SAFETY: the endpoint is open, and all memory outlives the call.
    unsafe {
        for buf in [ptr::null(), element.as_ptr().cast()] {
            ends((atomic.write)(left, buf, 0, NONE, to, 0, KEY, U32, SUM, one), WRITE);
            assert_eq!((atomic.inject)(left, buf, 0, to, 0, KEY, U32, SUM), 0);
            let result = buf.cast_mut();
            ends((atomic.readwrite)(left, buf, 0, NONE, result, NONE, to, 0, KEY, U32, SUM, one), READ);
            ends((atomic.readwrite)(left, buf, 0, NONE, result, NONE, to, 0, KEY, U32, FETCHED, one), READ);
            let swapped =
                (atomic.compwrite)(left, buf, 0, NONE, buf, NONE, result, NONE, to, 0, KEY, U32, CSWAP, one);
            ends(swapped, READ);
        }
        ends((atomic.writev)(left, ptr::null(), none, 0, to, 0, KEY, U32, SUM, one), WRITE);
        for msg in [nowhere, somewhere, of_one] {
            ends((atomic.writemsg)(left, &raw const msg, 0), WRITE);
            ends((atomic.readwritemsg)(left, &raw const msg, ptr::null_mut(), none, 0, 0), READ);
            let swap = FiMsgAtomic { op: CSWAP, ..msg };
            let nothing = ptr::null();
            let swapped =
                (atomic.compwritemsg)(left, &raw const swap, nothing, none, 0, ptr::null_mut(), none, 0, 0);
            ends(swapped, READ);
            // An unsupported operation is refused even with no elements.
            let unknown = FiMsgAtomic { datatype: 100, ..msg };
            assert_eq!((atomic.writemsg)(left, &raw const unknown, 0), EOPNOTSUPP);
        }
    }
}
