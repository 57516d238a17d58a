//! Triggered operations, the deferred work queue, and aliases of endpoints.

use std::{mem, ptr};

use homespun_fi::abi::atomic::{FiIoc, FiMsgAtomic, FiMsgCompare, FiMsgFetch, FiRmaIoc};
use homespun_fi::abi::endpoint::{FiMsg, FidEp};
use homespun_fi::abi::eq::{FiCqErrEntry, FiCqTaggedEntry, FidCntr};
use homespun_fi::abi::fid::{FiAlias, Fid};
use homespun_fi::abi::rma::{FiMsgRma, FiRmaIov};
use homespun_fi::abi::tagged::FiMsgTagged;
use homespun_fi::abi::trigger::{
    FiDeferredWork, FiOpAtomic, FiOpCntr, FiOpCompareAtomic, FiOpFetchAtomic, FiOpMsg, FiOpRma, FiOpTagged,
    FiTriggerDetails, FiTriggerThreshold, FiTriggeredContext,
};
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_ALIAS, FI_CANCEL_WORK, FI_CQ_FORMAT_TAGGED, FI_FLUSH_WORK, FI_GETOPSFLAG,
    FI_OP_ATOMIC, FI_OP_CNTR_ADD, FI_OP_CNTR_SET, FI_OP_COMPARE_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_READ,
    FI_OP_RECV, FI_OP_SEND, FI_OP_TRECV, FI_OP_TSEND, FI_OP_WRITE, FI_QUEUE_WORK, FI_RECV, FI_TRANSMIT,
    FI_TRIGGER_THRESHOLD, FI_WAIT_NONE,
};
use libc::{c_int, c_void, iovec};

use crate::host::{API_VERSION, Node, Object, Pair, counter_attr, wait_until};
use crate::rma::reg;

const TRIGGER: u64 = 1 << 20;
const COMPLETION: u64 = 1 << 24;
const FENCE: u64 = 1 << 21;
const MULTI_RECV: u64 = 1 << 16;
const PEEK: u64 = 1 << 19;
const CLAIM: u64 = 1 << 59;

const ENOENT: c_int = -2;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const ENOSYS: c_int = -38;
const EBADFLAGS: c_int = -260;

const KEY: u64 = 77;
const UINT64: u32 = 7;
const SUM: u32 = 2;
const CSWAP: u32 = 12;

/// Opens two nodes with each other's address and the trigger capability.
fn open_pair() -> Pair {
    const EVERYTHING: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | TRIGGER;
    Pair::from_nodes(Node::open_with_caps(EVERYTHING), Node::open_with_caps(EVERYTHING))
}

fn open_counter(node: &Node) -> Object<FidCntr> {
    node.domain.open_counter(&mut counter_attr(FI_WAIT_NONE)).expect("a counter")
}

/// `fi_cntr_read`, `fi_cntr_readerr`.
fn read_values(counter: &Object<FidCntr>) -> (u64, u64) {
    let counter = counter.as_ptr();
    // SAFETY: the counter is open.
    unsafe { (((*(*counter).ops).read)(counter), ((*(*counter).ops).readerr)(counter)) }
}

/// `fi_cntr_add`.
fn add_to_counter(counter: &Object<FidCntr>, value: u64) {
    let counter = counter.as_ptr();
    // SAFETY: the counter is open.
    assert_eq!(unsafe { ((*(*counter).ops).add)(counter, value) }, 0);
}

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

fn make_iov<T>(memory: &mut [T]) -> iovec {
    iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: size_of_val(memory) }
}

fn make_msg(iov: &iovec, addr: u64) -> FiMsg {
    FiMsg { msg_iov: iov, desc: ptr::null_mut(), iov_count: 1, addr, context: ptr::null_mut(), data: 0 }
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
        // The structures are freed before the work is due; only the memory of the operations stays.
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
    // The context of the peek that claims a message. The claiming receive names the message by it.
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

/// `fi_ep_alias`.
fn open_alias(node: &Node, flags: u64) -> Result<Object<FidEp>, c_int> {
    Object::open(|ep: *mut *mut FidEp| {
        let mut fid: *mut Fid = ptr::null_mut();
        let result = node.ep.control(FI_ALIAS, &mut FiAlias { fid: &raw mut fid, flags });
        // SAFETY: there is room for a pointer.
        unsafe { ep.write(fid.cast()) };
        result
    })
}

#[test]
fn fi_trigger_of_an_alias_or_a_call_defers_operations() {
    let pair = open_pair();
    let (left, right, to) = (&pair.left, &pair.right, pair.to_right);
    let trigger = open_counter(left);
    let alias = open_alias(left, FI_TRANSMIT | TRIGGER).expect("an alias");
    let context = |threshold| FiTriggeredContext {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: FiTriggerDetails {
            threshold: FiTriggerThreshold { cntr: trigger.as_ptr(), threshold },
            internal: ptr::null_mut(),
        },
    };
    let (mut first, mut second, mut third) = (context(1), context(2), context(9));
    let mut xpu = FiTriggeredContext { event_type: 1, ..context(1) };
    let mut bytes = [0_u8; 2];
    // SAFETY: the endpoints are open, and all arguments live until the end.
    unsafe {
        let (none, ep) = (ptr::null_mut(), right.ep.as_ptr());
        for byte in &mut bytes {
            assert_eq!(((*(*ep).msg).recv)(ep, (&raw mut *byte).cast(), 1, none, pair.to_left, none), 0);
        }
        let (send, ep) = ((*(*alias.as_ptr()).msg).send, alias.as_ptr());
        assert_eq!(send(ep, b"b".as_ptr().cast(), 1, none, to, (&raw mut second).cast()), 0);
        assert_eq!(send(ep, b"c".as_ptr().cast(), 1, none, to, none), EINVAL as isize, "no context");
        assert_eq!(send(ep, b"c".as_ptr().cast(), 1, none, to, (&raw mut xpu).cast()), ENOSYS as isize);
        // Triggered by the flags of the call.
        let (ep, mut byte) = (left.ep.as_ptr(), *b"a");
        let iov = make_iov(&mut byte);
        let mut msg = make_msg(&iov, to);
        msg.context = (&raw mut first).cast();
        assert_eq!(((*(*ep).msg).sendmsg)(ep, &raw const msg, TRIGGER), 0);
        let mut rest = *b"d";
        let iov = make_iov(&mut rest);
        let mut msg = make_msg(&iov, to);
        msg.context = (&raw mut third).cast();
        assert_eq!(((*(*ep).msg).recvmsg)(ep, &raw const msg, TRIGGER), 0);
        add_to_counter(&trigger, 2);
        let [of_left, _] = pair.read_completions(2, 2);
        let contexts: Vec<_> = of_left.iter().map(|(entry, _)| entry.op_context).collect();
        assert_eq!(contexts, [(&raw mut first).cast::<c_void>(), (&raw mut second).cast()]);
        // A waiting operation is cancelled by its context.
        let cancel = (*(*ep).ops).cancel;
        assert_eq!(cancel(ep.cast(), (&raw mut third).cast()), 0);
        // SAFETY: an entry of an error may be all 0.
        let mut entry: FiCqErrEntry = mem::zeroed();
        assert_eq!(left.read_error(&mut entry), 1);
        assert_eq!((entry.err, entry.op_context), (125, (&raw mut third).cast()));
    }
    assert_eq!(&bytes, b"ab", "the first has the lower threshold");
    let mut flags = FI_TRANSMIT;
    assert_eq!((alias.control(FI_GETOPSFLAG, &raw mut flags), flags & TRIGGER), (0, TRIGGER));
    flags = FI_TRANSMIT;
    assert_eq!((left.ep.control(FI_GETOPSFLAG, &raw mut flags), flags & TRIGGER), (0, 0));
    assert!(trigger.close().is_ok());
    // An endpoint can be closed only after its aliases.
    let Node { ep, cq, av, eq, domain, fabric } = pair.left;
    let Err((ep, EBUSY)) = ep.close() else { panic!("it has an alias") };
    assert!(alias.close().is_ok() && ep.close().is_ok());
    drop((cq, av, eq, domain, fabric));
}

#[test]
fn alias_needs_one_direction_and_supported_flags() {
    let node = Node::open_with(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let refused = |flags| open_alias(&node, flags).err();
    assert_eq!(refused(0), Some(EINVAL));
    assert_eq!(refused(FI_TRANSMIT | FI_RECV), Some(EINVAL));
    assert_eq!(
        refused(FI_TRANSMIT | TRIGGER),
        Some(EBADFLAGS),
        "the endpoint may have no triggered operations"
    );
    assert_eq!(node.ep.control::<c_void>(FI_ALIAS, ptr::null_mut()), EINVAL);
    assert_eq!(node.ep.control(FI_ALIAS, &mut FiAlias { fid: ptr::null_mut(), flags: FI_RECV }), EINVAL);
    assert!(open_alias(&node, FI_RECV | COMPLETION).is_ok());
}
