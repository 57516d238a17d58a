//! The deferred work queue.

use homespun_fi::abi::atomic::{FiIoc, FiMsgAtomic, FiMsgCompare, FiMsgFetch, FiRmaIoc};
use homespun_fi::abi::eq::FiCqTaggedEntry;
use homespun_fi::abi::rma::{FiMsgRma, FiRmaIov};
use homespun_fi::abi::tagged::FiMsgTagged;
use homespun_fi::abi::trigger::{
    FiDeferredWork, FiOpAtomic, FiOpCntr, FiOpCompareAtomic, FiOpFetchAtomic, FiOpMsg, FiOpRma, FiOpTagged,
};
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CANCEL_WORK, FI_FLUSH_WORK, FI_OP_ATOMIC, FI_OP_CNTR_ADD, FI_OP_CNTR_SET,
    FI_OP_COMPARE_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_READ, FI_OP_RECV, FI_OP_SEND, FI_OP_TRECV, FI_OP_TSEND,
    FI_OP_WRITE, FI_QUEUE_WORK,
};

use super::*;
use crate::host::wait_until;
use crate::rma::reg;

const FENCE: u64 = 1 << 21;
const MULTI_RECV: u64 = 1 << 16;
const PEEK: u64 = 1 << 19;
const CLAIM: u64 = 1 << 59;

const ENOENT: c_int = -2;

const KEY: u64 = 77;
const UINT64: u32 = 7;
const SUM: u32 = 2;
const CSWAP: u32 = 12;

fn make_work<O>(
    op_type: u32,
    op: &O,
    trigger: &Object<FidCntr>,
    done: Option<&Object<FidCntr>>,
) -> Box<FiDeferredWork> {
    // SAFETY: a structure of pointers and numbers may be all 0.
    let mut work: Box<FiDeferredWork> = Box::new(unsafe { mem::zeroed() });
    (work.threshold, work.triggering_cntr, work.op_type) = (1, trigger.as_ptr(), op_type);
    work.completion_cntr = done.map_or(ptr::null_mut(), Object::as_ptr);
    work.op = ptr::from_ref(op).cast_mut().cast();
    work
}

fn queue_work(node: &Node, work: &mut FiDeferredWork) -> c_int {
    node.domain.control(FI_QUEUE_WORK, ptr::from_mut(work))
}

#[test]
fn every_kind_of_deferred_work_runs() {
    let pair = open_pair();
    let (left, right, to) = (&pair.left, &pair.right, pair.to_right);
    let mut region = [0_u8; 8];
    let mr = reg(&right.domain, &mut region, KEY, 0).expect("a region");
    let (trigger, done) = (open_counter(left), open_counter(left));
    let (changed, set) = (open_counter(left), open_counter(left));
    let ep = left.ep.as_ptr();
    let (mut sent, mut tagged, mut written) = (*b"deferred", *b"tagged  ", [40_u64]);
    let (mut received, mut received_tagged, mut read) = ([0_u8; 8], [0_u8; 8], [0_u64]);
    let (mut operand, mut compare) = ([2_u64], [42_u64]);
    let (mut swapped, mut fetched, mut compared) = ([7_u64], [0_u64], [0_u64]);
    {
        // The structures are freed before the work is due. Only the buffers of the operations stay.
        let tagged_message = |iov: &iovec| FiMsgTagged {
            msg_iov: iov,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: to,
            tag: 5,
            ignore: 0,
            context: ptr::null_mut(),
            data: 0,
        };
        let place = FiRmaIov { addr: 0, len: 8, key: KEY };
        let rma = |iov: &iovec| FiMsgRma {
            msg_iov: iov,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: to,
            rma_iov: &raw const place,
            rma_iov_count: 1,
            context: ptr::null_mut(),
            data: 0,
        };
        let elements = FiRmaIoc { addr: 0, count: 1, key: KEY };
        let atomic = |ioc: &FiIoc, op| FiMsgAtomic {
            msg_iov: ioc,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: to,
            rma_iov: &raw const elements,
            rma_iov_count: 1,
            datatype: UINT64,
            op,
            context: ptr::null_mut(),
            data: 0,
        };
        let ioc = |memory: &mut [u64]| FiIoc { addr: memory.as_mut_ptr().cast(), count: memory.len() };
        let from = |ioc: &mut FiIoc| FiMsgFetch { msg_iov: ioc, desc: ptr::null_mut(), iov_count: 1 };

        let iov = make_iov(&mut received);
        let op = FiOpMsg { ep, msg: make_msg(&iov, to), flags: 0 };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_RECV, &op, &trigger, Some(&done))), 0);
        let iov = make_iov(&mut received_tagged);
        let op = FiOpTagged { ep, msg: tagged_message(&iov), flags: 0 };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_TRECV, &op, &trigger, Some(&done))), 0);
        let iov = make_iov(&mut sent);
        let op = FiOpMsg { ep, msg: make_msg(&iov, to), flags: COMPLETION };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_SEND, &op, &trigger, Some(&done))), 0);
        let iov = make_iov(&mut tagged);
        let op = FiOpTagged { ep, msg: tagged_message(&iov), flags: 0 };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_TSEND, &op, &trigger, Some(&done))), 0);
        let iov = make_iov(&mut written);
        let op = FiOpRma { ep, msg: rma(&iov), flags: 0 };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_WRITE, &op, &trigger, Some(&done))), 0);
        let iov = make_iov(&mut read);
        let op = FiOpRma { ep, msg: rma(&iov), flags: FENCE };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_READ, &op, &trigger, Some(&done))), 0);
        let (one, mut result) = (ioc(&mut operand), ioc(&mut fetched));
        let op = FiOpFetchAtomic { ep, msg: atomic(&one, SUM), fetch: from(&mut result), flags: FENCE };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_FETCH_ATOMIC, &op, &trigger, Some(&done))), 0);
        let (one, with, mut result) = (ioc(&mut swapped), ioc(&mut compare), ioc(&mut compared));
        let op = FiOpCompareAtomic {
            ep,
            msg: atomic(&one, CSWAP),
            fetch: from(&mut result),
            compare: FiMsgCompare { msg_iov: &raw const with, desc: ptr::null_mut(), iov_count: 1 },
            flags: FENCE,
        };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_COMPARE_ATOMIC, &op, &trigger, Some(&done))), 0);
        let one = ioc(&mut operand);
        let op = FiOpAtomic { ep, msg: atomic(&one, SUM), flags: FENCE };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_ATOMIC, &op, &trigger, Some(&done))), 0);
        let op = FiOpCntr { cntr: changed.as_ptr(), value: 5 };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_CNTR_ADD, &op, &trigger, None)), 0);
        let op = FiOpCntr { cntr: set.as_ptr(), value: 6 };
        assert_eq!(queue_work(left, &mut make_work(FI_OP_CNTR_SET, &op, &trigger, None)), 0);
    }
    assert_eq!((read_values(&done), read_values(&changed)), ((0, 0), (0, 0)));
    add_to_counter(&trigger, 1);
    assert_eq!((read_values(&changed), read_values(&set)), ((5, 0), (6, 0)));
    // The right side responds, and receives the messages.
    let (ep, mut bytes) = (right.ep.as_ptr(), [[0_u8; 8]; 2]);
    // SAFETY: the endpoint is open, and the memory stays until all messages have arrived.
    unsafe {
        let (none, place) = (ptr::null_mut(), pair.to_left);
        let [first, second] = &mut bytes;
        assert_eq!(((*(*ep).msg).recv)(ep, first.as_mut_ptr().cast(), 8, none, place, none), 0);
        assert_eq!(((*(*ep).tagged).recv)(ep, second.as_mut_ptr().cast(), 8, none, place, 5, 0, none), 0);
        assert_eq!(((*(*ep).msg).inject)(ep, b"answered".as_ptr().cast(), 8, place), 0);
        assert_eq!(((*(*ep).tagged).inject)(ep, b"likewise".as_ptr().cast(), 8, place, 5), 0);
    }
    let mut reported = 0;
    wait_until(|| {
        let _: Result<(FiCqTaggedEntry, u64), isize> = right.try_read();
        reported += u32::from(left.try_read::<FiCqTaggedEntry>().is_ok());
        read_values(&done) == (9, 0)
    });
    wait_until(|| {
        let _: Result<(FiCqTaggedEntry, u64), isize> = left.try_read();
        let _: Result<(FiCqTaggedEntry, u64), isize> = right.try_read();
        bytes == [*b"deferred", *b"tagged  "]
    });
    assert_eq!(reported, 1, "only the send asks for a completion");
    assert_eq!((&received, &received_tagged), (b"answered", b"likewise"));
    assert_eq!((read, fetched, compared), ([40], [40], [42]));
    assert!(mr.close().is_ok());
    assert_eq!(u64::from_le_bytes(region), 9);
    for counter in [trigger, done, changed, set] {
        assert!(counter.close().is_ok());
    }
}

#[test]
fn deferred_peek_claim_and_multi_receive_run() {
    let pair = open_pair();
    let (left, right) = (&pair.left, &pair.right);
    let (trigger, done, ep) = (open_counter(left), open_counter(left), left.ep.as_ptr());
    let (mut claimed, mut many, mut last) = ([0_u8; 8], [0_u64; 8], [0_u8; 4]);
    // The context of the peek that claims the message. The receive that takes the message has the same
    // context.
    let name = ptr::from_ref(&trigger).cast_mut().cast::<c_void>();
    let tagged = |msg_iov: *const iovec, iov_count, flags| FiOpTagged {
        ep,
        msg: FiMsgTagged {
            msg_iov,
            desc: ptr::null_mut(),
            iov_count,
            addr: FI_ADDR_UNSPEC,
            tag: 5,
            ignore: 0,
            context: name,
            data: 0,
        },
        flags,
    };
    let queue = |op_type, op: *mut c_void, threshold| {
        let mut work = make_work(op_type, &(), &trigger, Some(&done));
        (work.op, work.threshold) = (op, threshold);
        assert_eq!(queue_work(left, &mut work), 0);
    };
    {
        let mut peek = tagged(ptr::null(), 0, PEEK | CLAIM);
        queue(FI_OP_TRECV, (&raw mut peek).cast(), 1);
        let iov = make_iov(&mut claimed);
        let mut claim = tagged(&raw const iov, 1, CLAIM);
        queue(FI_OP_TRECV, (&raw mut claim).cast(), 2);
        let iov = make_iov(&mut many);
        let mut buffer = FiOpMsg { ep, msg: make_msg(&iov, FI_ADDR_UNSPEC), flags: MULTI_RECV | COMPLETION };
        queue(FI_OP_RECV, (&raw mut buffer).cast(), 3);
    }
    // SAFETY: the endpoints are open, `last` lives until the end, and injected bytes are copied.
    unsafe {
        let (none, ep) = (ptr::null_mut(), left.ep.as_ptr());
        assert_eq!(((*(*ep).msg).recv)(ep, last.as_mut_ptr().cast(), 4, none, FI_ADDR_UNSPEC, none), 0);
        let (ep, place) = (right.ep.as_ptr(), pair.to_left);
        assert_eq!(((*(*ep).tagged).inject)(ep, b"to claim".as_ptr().cast(), 8, place, 5), 0);
        assert_eq!(((*(*ep).msg).inject)(ep, b"last".as_ptr().cast(), 4, place), 0);
        assert_eq!(((*(*ep).msg).inject)(ep, b"gathered".as_ptr().cast(), 8, place), 0);
    }
    let next_entry = || {
        let mut next = None;
        wait_until(|| {
            let _: Result<(FiCqTaggedEntry, u64), isize> = right.try_read();
            next = left.try_read::<FiCqTaggedEntry>().ok();
            next.is_some()
        });
        next.expect("an entry").0
    };
    // The tagged message arrives before this one.
    assert_eq!((next_entry().len, &last), (4, b"last"));
    for ended in 1..=2 {
        add_to_counter(&trigger, 1);
        wait_until(|| {
            assert!(left.try_read::<FiCqTaggedEntry>().is_err());
            read_values(&done) == (ended, 0)
        });
    }
    assert_eq!(&claimed, b"to claim");
    // After this message the buffer has less room than its minimum, so the plugin releases the buffer.
    add_to_counter(&trigger, 1);
    let (message, release) = (next_entry(), next_entry());
    assert_eq!((message.len, message.buf, message.flags & MULTI_RECV), (8, many.as_mut_ptr().cast(), 0));
    assert_eq!((release.len, release.flags), (0, MULTI_RECV));
    assert_eq!((many[0], read_values(&done)), (u64::from_le_bytes(*b"gathered"), (3, 0)));
    assert!(trigger.close().is_ok() && done.close().is_ok());
}

#[test]
fn deferred_work_may_be_cancelled_flushed_or_refused() {
    let pair = open_pair();
    let (left, mut byte) = (&pair.left, [1_u8]);
    let (trigger, other, changed) = (open_counter(left), open_counter(left), open_counter(left));
    let adding = FiOpCntr { cntr: changed.as_ptr(), value: 1 };
    let mut first = make_work(FI_OP_CNTR_ADD, &adding, &trigger, None);
    let mut second = make_work(FI_OP_CNTR_ADD, &adding, &other, None);
    assert_eq!((queue_work(left, &mut first), queue_work(left, &mut second)), (0, 0));
    let Err((trigger, EBUSY)) = trigger.close() else { panic!("work waits for it") };
    assert_eq!(left.domain.control(FI_CANCEL_WORK, &raw mut *first), 0);
    assert_eq!(left.domain.control(FI_CANCEL_WORK, &raw mut *first), ENOENT);
    assert_eq!(left.domain.control(FI_FLUSH_WORK, trigger.as_ptr()), 0);
    let Err((other, EBUSY)) = other.close() else { panic!("work of another counter was not flushed") };
    assert_eq!(left.domain.control::<c_void>(FI_FLUSH_WORK, ptr::null_mut()), 0);
    add_to_counter(&trigger, 9);
    add_to_counter(&other, 9);
    assert_eq!(read_values(&changed), (0, 0));

    assert_eq!(left.domain.control::<c_void>(FI_QUEUE_WORK, ptr::null_mut()), EINVAL);
    assert_eq!(left.domain.control::<c_void>(FI_CANCEL_WORK, ptr::null_mut()), EINVAL);
    let mut refused = make_work(11, &adding, &trigger, None);
    assert_eq!(queue_work(left, &mut refused), ENOSYS, "a kind of work that there is not");
    let mut refused = make_work(FI_OP_CNTR_ADD, &adding, &trigger, None);
    refused.triggering_cntr = ptr::null_mut();
    assert_eq!(queue_work(left, &mut refused), EINVAL, "no counter");
    refused = make_work(FI_OP_CNTR_ADD, &adding, &trigger, Some(&other));
    assert_eq!(queue_work(left, &mut refused), EINVAL, "a counter of completions for a change");
    for op_type in FI_OP_RECV..=FI_OP_CNTR_ADD {
        refused = make_work(op_type, &adding, &trigger, None);
        refused.op = ptr::null_mut();
        assert_eq!(queue_work(left, &mut refused), EINVAL, "no operation {op_type}");
    }
    let iov = make_iov(&mut byte);
    let op = FiOpMsg { ep: ptr::null_mut(), msg: make_msg(&iov, pair.to_right), flags: 0 };
    assert_eq!(queue_work(left, &mut make_work(FI_OP_SEND, &op, &trigger, None)), EINVAL, "no endpoint");
    assert!(trigger.close().is_ok() && other.close().is_ok() && changed.close().is_ok());
}
