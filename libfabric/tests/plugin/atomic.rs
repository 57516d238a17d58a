//! Atomic operations on the memory of a peer. What they do is the subject of `host/tests/semantics.rs`.

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};

use crate::prelude::*;

const U32: u32 = Datatype::Uint32 as u32;

/// Shows fi_atomic/valid-calls-tell-support, fi_atomic/query-flags.
#[test]
fn query_atomic_names_every_supported_operation() {
    let Node { ep, domain, .. } = &Node::open();
    let query = |datatype, op, flags| {
        let mut attr = FiAtomicAttr { count: usize::MAX, size: usize::MAX };
        match call!(domain, ops.query_atomic, datatype, op, &raw mut attr, flags) {
            0 => Ok((attr.count, attr.size)),
            error => {
                assert_eq!((attr.count, attr.size), (usize::MAX, usize::MAX), "an error changes nothing");
                Err(error)
            }
        }
    };
    for (datatype, op) in (0..21).flat_map(|datatype| (0..21).map(move |op| (datatype, op))) {
        let named = Datatype::from_number(datatype).zip(AtomicOp::from_number(op));
        let mut counts = [usize::MAX; 3];
        let [base, fetch, compare] = counts.each_mut().map(ptr::from_mut);
        let answers = [
            call!(ep, atomic.writevalid, datatype, op, base),
            call!(ep, atomic.readwritevalid, datatype, op, fetch),
            call!(ep, atomic.compwritevalid, datatype, op, compare),
        ];
        let flags = [0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC];
        for (index, kind) in AtomicKind::ALL.into_iter().enumerate() {
            let count_max = named.and_then(|(datatype, op)| kind.count_max(op, datatype));
            let valid = (answers[index], counts[index]);
            assert_eq!(valid, count_max.map_or((EOPNOTSUPP, usize::MAX), |count| (0, count)));
            let sized = count_max.zip(named).map(|(count, (datatype, _))| (count, datatype.size_bytes()));
            let queried = query(datatype, op, flags[index]);
            assert_eq!(queried, sized.ok_or(EOPNOTSUPP), "{kind} {op} of {datatype}");
        }
    }
    let sum = |flags| query(U32, SUM, flags);
    assert_eq!(sum(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC), Err(EINVAL));
    assert_eq!(sum(TAGGED), Err(EOPNOTSUPP), "receive buffers are no targets");
    assert_eq!(sum(TAGGED | FI_FETCH_ATOMIC), Err(EOPNOTSUPP));
    assert_eq!(sum(REMOTE_CQ_DATA), sum(0), "it says nothing of an operation");
    assert_eq!(call!(ep, atomic.writevalid, U32, SUM, ptr::null_mut()), EINVAL);
    assert_eq!(call!(domain, ops.query_atomic, U32, SUM, ptr::null_mut(), 0), EINVAL);
}

/// Posts a message by each of the three calls that take one. Each has results and comparands.
fn post_messages(node: &Node, change: impl Fn(&mut FiMsgAtomic), flags: u64) -> [c_int; 3] {
    let own = node.insert(&node.ep.name());
    let (mut operand, mut compare, mut result) = ([1_u32, 2], [3_u32, 4], [5_u32, 6]);
    let ioc = |elements: &mut [u32; 2]| FiIoc { addr: elements.as_mut_ptr().cast(), count: 2 };
    let (operands, compares, mut results) = (ioc(&mut operand), ioc(&mut compare), ioc(&mut result));
    let (compares, results, descs) = (&raw const compares, &raw mut results, ptr::null_mut());
    let target = FiRmaIoc { addr: 0, count: 2, key: KEY };
    [(SUM, 0), (SUM, 1), (CSWAP, 2)].map(|(op, kind)| {
        let (msg_iov, rma_iov, datatype) = (&raw const operands, &raw const target, U32);
        let (iov_count, rma_iov_count, addr) = (1, 1, own);
        // SAFETY: zeroes are a message.
        let zeroed = unsafe { mem::zeroed() };
        let mut msg =
            FiMsgAtomic { msg_iov, iov_count, addr, rma_iov, rma_iov_count, datatype, op, ..zeroed };
        change(&mut msg);
        let (msg, ep) = (&raw const msg, &node.ep);
        let posted = match kind {
            0 => call!(ep, atomic.writemsg, msg, flags),
            1 => call!(ep, atomic.readwritemsg, msg, results, descs, 1, flags),
            _ => call!(ep, atomic.compwritemsg, msg, compares, descs, 1, results, descs, 1, flags),
        };
        posted as c_int
    })
}

/// Shows fi_atomic/query-flags.
#[test]
fn invalid_messages_are_refused() {
    let node = Node::open();
    let refused = |change: fn(&mut FiMsgAtomic)| post_messages(&node, change, 0);
    // The plugin refuses remote elements that differ in number from the local ones, or lie in several
    // segments (`single_remote_memory` has more cases).
    assert_eq!(refused(|msg| msg.rma_iov_count = 2), [EINVAL; 3]);
    assert_eq!(refused(|msg| msg.rma_iov = &FiRmaIoc { addr: 0, count: 3, key: KEY }), [EINVAL; 3]);
    let too_many = |msg: &mut FiMsgAtomic| msg.rma_iov = &FiRmaIoc { addr: 0, count: usize::MAX, key: KEY };
    assert_eq!(refused(too_many), [EMSGSIZE; 3]);
    let too_long = |msg: &mut FiMsgAtomic| msg.msg_iov = &FiIoc { addr: NULL, count: usize::MAX };
    assert_eq!(refused(too_long), [EMSGSIZE; 3]);
    assert_eq!(refused(|msg| msg.datatype = 16), [EOPNOTSUPP; 3]);
    assert_eq!(refused(|msg| msg.op += 1000), [EOPNOTSUPP; 3]);
    let of_another_kind = |msg: &mut FiMsgAtomic| msg.op = if msg.op == CSWAP { SUM } else { CSWAP };
    assert_eq!(refused(of_another_kind), [EOPNOTSUPP; 3]);
    assert_eq!(refused(|msg| msg.iov_count = 5), [EINVAL; 3]);
    assert_eq!(refused(|msg| msg.msg_iov = ptr::null()), [EINVAL; 3]);
    assert_eq!(refused(|msg| msg.rma_iov = ptr::null()), [EINVAL; 3]);
    for flags in [TRIGGER, MULTICAST] {
        assert_eq!(post_messages(&node, |_| (), flags), [EBADFLAGS; 3]);
    }
    assert_eq!(call!(node.ep, atomic.writemsg, ptr::null(), 0), EINVAL as isize);
}
