//! Atomic operations on the memory of a peer.

use std::ptr;

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_fi::abi::atomic::{FiAtomicAttr, FiIoc, FiMsgAtomic, FiOpsAtomic, FiRmaIoc};
use homespun_fi::abi::domain::FidDomain;
use homespun_fi::abi::endpoint::FidEp;
use homespun_fi::abi::eq::FiCqTaggedEntry;
use homespun_fi::abi::{FI_COMPARE_ATOMIC, FI_CQ_FORMAT_TAGGED, FI_FETCH_ATOMIC};
use libc::{c_int, c_void};

use crate::host::{API_VERSION, Node, Pair, numbered_context};

const ATOMIC: u64 = 1 << 4;
const READ: u64 = 1 << 8;
const WRITE: u64 = 1 << 9;
const REMOTE_CQ_DATA: u64 = 1 << 17;
const TAGGED: u64 = 1 << 3;
const MULTICAST: u64 = 1 << 5;
const TRIGGER: u64 = 1 << 20;

const EINVAL: isize = -22;
const EMSGSIZE: isize = -90;
const EOPNOTSUPP: isize = -95;
const EBADFLAGS: isize = -260;

const SUM: u32 = AtomicOp::Sum as u32;
const FETCHED: u32 = AtomicOp::Read as u32;
const CSWAP: u32 = AtomicOp::Cswap as u32;
const U32: u32 = Datatype::Uint32 as u32;

const KEY: u64 = 77;
const NONE: *mut c_void = ptr::null_mut();

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
