//! Triggered operations, aliases of endpoints, and the deferred work queue. What work does is the subject of
//! `suite/src/semantics/`; here it is how the plugin reads C's structures.

use crate::prelude::*;

const UINT64: u32 = 7;

/// Opens an endpoint with the trigger capability and its own address.
fn open_node() -> (Node, u64) {
    Node::open_with_own_address(|setup| setup.infos.info_mut().caps |= TRIGGER)
}

/// A context that triggers an operation.
pub(crate) fn trigger_at(cntr: &Object<FidCntr>, threshold: usize) -> FiTriggeredContext {
    let threshold = FiTriggerThreshold { cntr: cntr.as_ptr(), threshold };
    let trigger = FiTriggerDetails { threshold, internal: NULL };
    FiTriggeredContext { event_type: FI_TRIGGER_THRESHOLD, trigger }
}

pub(crate) fn make_work<O>(op_type: u32, op: &O, trigger: &Object<FidCntr>) -> FiDeferredWork {
    let (triggering_cntr, op) = (trigger.as_ptr(), ptr::from_ref(op).cast_mut().cast());
    // SAFETY: zeroes are a work.
    FiDeferredWork { threshold: 1, triggering_cntr, op_type, op, ..unsafe { mem::zeroed() } }
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

/// Shows fi_endpoint/alias, fi_trigger/triggered-waits-for-threshold, fi_trigger/triggered-at-once.
#[test]
fn fi_trigger_of_an_alias_or_a_call_defers_operations() {
    let (node, to) = open_node();
    let trigger = node.domain.counter();
    let alias = open_alias(&node, FI_TRANSMIT | TRIGGER).expect("an alias");
    let mut contexts = [1, 2, 9].map(|threshold| trigger_at(&trigger, threshold));
    let mut xpu = FiTriggeredContext { event_type: 1, ..trigger_at(&trigger, 1) };
    let [first, second, third] = contexts.each_mut().map(|context| ptr::from_mut(context).cast::<c_void>());
    let (mut sent, mut rest) = (*b"a", *b"d");
    let send = |byte: &[u8; 1], context| call!(alias, msg.send, byte.as_ptr().cast(), 1, NULL, to, context);
    assert_eq!(send(b"b", second), 0);
    assert_eq!(send(b"c", NULL), EINVAL as isize, "no context");
    assert_eq!(send(b"c", (&raw mut xpu).cast()), ENOSYS as isize);
    // Triggered by the flags of the call.
    let (iov, unused) = (to_iovec(&mut sent), to_iovec(&mut rest));
    let (send, receive) = (messages(&iov, 1, to, first).0, messages(&unused, 1, to, third).0);
    assert_eq!(call!(node.ep, msg.sendmsg, &raw const send, TRIGGER), 0);
    assert_eq!(call!(node.ep, msg.recvmsg, &raw const receive, TRIGGER), 0);
    trigger.add(2);
    let ended = [(); 2].map(|()| node.await_entry("the end of a triggered send").op_context);
    assert_eq!(ended, [first, second], "the first has the lower threshold");
    assert_eq!(call!(node.ep, msg.sendmsg, &raw const send, TRIGGER), 0, "its threshold is reached");
    assert_eq!(node.await_entry("the end of a send that need not wait").op_context, first);
    // A waiting operation is cancelled by its context.
    assert_eq!(call!(node.ep, ops.cancel, third), 0);
    let failed = node.cq.read_error().expect("the end of the receive");
    assert_eq!((failed.err, failed.op_context), (libc::ECANCELED, third));
    for (ep, has_trigger) in [(&alias, TRIGGER), (&node.ep, 0)] {
        let (result, flags) = ep.control_flags(FI_GETOPSFLAG, FI_TRANSMIT);
        assert_eq!((result, flags & TRIGGER), (0, has_trigger));
    }
    assert!(trigger.close().is_ok());
    // An endpoint can be closed only after its aliases.
    let Node { ep, cq, av, eq, domain, fabric } = node;
    let ep = ep.assert_busy();
    drop((alias, ep, cq, av, eq, domain, fabric));
}

/// Shows fi_endpoint/alias.
#[test]
fn alias_needs_one_direction_and_supported_flags() {
    let node = Node::open();
    // The endpoint may have no triggered operations.
    for (flags, error) in [(0, EINVAL), (FI_TRANSMIT | FI_RECV, EINVAL), (FI_TRANSMIT | TRIGGER, EBADFLAGS)] {
        assert_eq!(open_alias(&node, flags).err(), Some(error));
    }
    assert_eq!(node.ep.control(FI_ALIAS, NULL), EINVAL);
    assert_eq!(node.ep.control(FI_ALIAS, &mut FiAlias { fid: ptr::null_mut(), flags: FI_RECV }), EINVAL);
    assert!(open_alias(&node, FI_RECV | COMPLETION).is_ok());
}

/// Shows fi_trigger/work-waits-for-threshold, fi_trigger/queue-work, fi_trigger/work-is-not-read-early.
#[test]
fn every_kind_of_deferred_work_runs() {
    // The endpoint is its own peer.
    let (node, to) = open_node();
    let ep = node.ep.as_ptr();
    let mut region = [0; 8];
    let mr = node.domain.reg(&mut region, KEY, 0).expect("a region");
    let [trigger, done, changed, set] = [(); 4].map(|()| node.domain.counter());
    let (mut sent, mut tagged, mut written) = (*b"deferred", *b"tagged  ", [40_u64]);
    let (mut received, mut received_tagged, mut read) = ([0_u8; 8], [0_u8; 8], [0_u64]);
    let (mut operand, mut compare) = ([2_u64], [42_u64]);
    let (mut swapped, mut fetched, mut compared) = ([7_u64], [0_u64], [0_u64]);
    {
        // The structures are freed before the work is due. Only the buffers of the operations stay.
        let (place, elements) =
            (FiRmaIov { addr: 0, len: 8, key: KEY }, FiRmaIoc { addr: 0, count: 1, key: KEY });
        let (iov_count, addr, rma_iov_count, datatype) = (1, to, 1, UINT64);
        let rma = |msg_iov: &iovec, flags| {
            let rma_iov = &raw const place;
            // SAFETY: zeroes are a message.
            let msg =
                FiMsgRma { msg_iov, iov_count, addr, rma_iov, rma_iov_count, ..unsafe { mem::zeroed() } };
            FiOpRma { ep, msg, flags }
        };
        let atomic = |msg_iov: &FiIoc, op| {
            // SAFETY: as above.
            let (rma_iov, zeroed) = (&raw const elements, unsafe { mem::zeroed() });
            FiMsgAtomic { msg_iov, iov_count, addr, rma_iov, rma_iov_count, datatype, op, ..zeroed }
        };
        let ioc = |memory: &mut [u64]| FiIoc { addr: memory.as_mut_ptr().cast(), count: memory.len() };
        let from = |ioc: &mut FiIoc| FiMsgFetch { msg_iov: ioc, desc: ptr::null_mut(), iov_count: 1 };
        let iovs = [&mut received, &mut received_tagged, &mut sent, &mut tagged].map(|bytes| to_iovec(bytes));
        let (written, read) = (to_iovec(&mut written), to_iovec(&mut read));
        let (one, swapped, with) = (ioc(&mut operand), ioc(&mut swapped), ioc(&mut compare));
        let (mut fetched, mut compared) = (ioc(&mut fetched), ioc(&mut compared));
        let message = |index: usize, flags| FiOpMsg { ep, msg: messages(&iovs[index], 1, to, NULL).0, flags };
        let tagged = |index: usize| FiOpTagged { ep, msg: messages(&iovs[index], 1, to, NULL).1, flags: 0 };
        let (receive, tagged_receive, send, tagged_send) =
            (message(0, 0), tagged(1), message(2, COMPLETION), tagged(3));
        let (write, read) = (rma(&written, 0), rma(&read, FENCE));
        let (msg, fetch) = (atomic(&one, SUM), from(&mut fetched));
        let fetch_add = FiOpFetchAtomic { ep, msg, fetch, flags: FENCE };
        let (msg, fetch) = (atomic(&swapped, CSWAP), from(&mut compared));
        let compare = FiMsgCompare { msg_iov: &raw const with, desc: ptr::null_mut(), iov_count: 1 };
        let swap = FiOpCompareAtomic { ep, msg, fetch, compare, flags: FENCE };
        let add = FiOpAtomic { ep, msg: atomic(&one, SUM), flags: FENCE };
        let change = |cntr: &Object<FidCntr>, value| FiOpCntr { cntr: cntr.as_ptr(), value };
        let (increase, replace) = (change(&changed, 5), change(&set, 6));
        let works = [
            make_work(FI_OP_RECV, &receive, &trigger),
            make_work(FI_OP_TRECV, &tagged_receive, &trigger),
            make_work(FI_OP_SEND, &send, &trigger),
            make_work(FI_OP_TSEND, &tagged_send, &trigger),
            make_work(FI_OP_WRITE, &write, &trigger),
            make_work(FI_OP_READ, &read, &trigger),
            make_work(FI_OP_FETCH_ATOMIC, &fetch_add, &trigger),
            make_work(FI_OP_COMPARE_ATOMIC, &swap, &trigger),
            make_work(FI_OP_ATOMIC, &add, &trigger),
            make_work(FI_OP_CNTR_ADD, &increase, &trigger),
            make_work(FI_OP_CNTR_SET, &replace, &trigger),
        ];
        for (index, mut work) in works.into_iter().enumerate() {
            work.completion_cntr = if index < 9 { done.as_ptr() } else { ptr::null_mut() };
            assert_eq!(node.domain.control(FI_QUEUE_WORK, &raw mut work), 0, "work {index}");
        }
    }
    assert_eq!((done.values(), changed.values()), ((0, 0), (0, 0)));
    sent.copy_from_slice(b"modified");
    trigger.add(1);
    assert_eq!((changed.values(), set.values()), ((5, 0), (6, 0)));
    node.await_entry("the end of the send, which alone asks for a completion");
    wait_until("all works", || {
        assert!(node.cq.read().is_err(), "another completion");
        done.values() == (9, 0)
    });
    assert_eq!((&received, &received_tagged), (b"modified", b"tagged  "));
    assert_eq!((read, fetched, compared), ([40], [40], [42]));
    assert!(mr.close().is_ok());
    assert_eq!(u64::from_le_bytes(region), 9);
}

/// Shows fi_trigger/cancel-work, fi_trigger/flush-work, fi_trigger/unsupported-work-enosys.
#[test]
fn deferred_work_may_be_cancelled_flushed_or_refused() {
    let (left, _) = &open_node();
    let queue = |mut work: FiDeferredWork| left.domain.control(FI_QUEUE_WORK, &raw mut work);
    let [trigger, other, changed] = [(); 3].map(|()| left.domain.counter());
    let adding = FiOpCntr { cntr: changed.as_ptr(), value: 1 };
    let mut first = make_work(FI_OP_CNTR_ADD, &adding, &trigger);
    assert_eq!(left.domain.control(FI_QUEUE_WORK, &raw mut first), 0);
    assert_eq!(queue(make_work(FI_OP_CNTR_ADD, &adding, &other)), 0);
    let cancels = [(); 2].map(|()| left.domain.control(FI_CANCEL_WORK, &raw mut first));
    assert_eq!((cancels, left.domain.control(FI_FLUSH_WORK, trigger.as_ptr())), ([0, ENOENT], 0));
    let other = other.assert_busy();
    assert_eq!(left.domain.control(FI_FLUSH_WORK, NULL), 0);
    trigger.add(9);
    other.add(9);
    assert_eq!(changed.values(), (0, 0));

    // The counters are beyond the threshold from now on. A peek has no buffers, so its vector is not read.
    let mut byte = [1_u8];
    let iov = to_iovec(&mut byte);
    let (mut msg, tagged) = messages(&iov, 1, FI_ADDR_UNSPEC, numbered_context(3));
    (msg.msg_iov, msg.iov_count) = (ptr::null(), usize::MAX);
    let mut peek = FiOpMsg { ep: left.ep.as_ptr(), msg, flags: PEEK };
    assert_eq!(queue(make_work(FI_OP_RECV, &peek, &trigger)), 0);
    assert_eq!(left.cq.await_error("the end of the peek", &left.cq).err, libc::ENOMSG);
    peek.flags = 0;
    assert_eq!(queue(make_work(FI_OP_RECV, &peek, &trigger)), EINVAL, "null parts");

    let nulls = [FI_QUEUE_WORK, FI_CANCEL_WORK].map(|command| left.domain.control(command, NULL));
    assert_eq!(nulls, [EINVAL; 2]);
    assert_eq!(queue(make_work(11, &adding, &trigger)), ENOSYS, "a kind of work that there is not");
    let triggering_cntr = ptr::null_mut();
    let unnamed = FiDeferredWork { triggering_cntr, ..make_work(FI_OP_CNTR_ADD, &adding, &trigger) };
    assert_eq!(queue(unnamed), EINVAL, "no counter");
    for op_type in FI_OP_RECV..=FI_OP_CNTR_ADD {
        let work = FiDeferredWork { op: NULL, ..make_work(op_type, &adding, &trigger) };
        assert_eq!(queue(work), EINVAL, "no operation {op_type}");
    }
    let op = FiOpTagged { ep: ptr::null_mut(), msg: tagged, flags: 0 };
    assert_eq!(queue(make_work(FI_OP_TSEND, &op, &trigger)), EINVAL, "no endpoint");
    assert!(trigger.close().is_ok() && other.close().is_ok() && changed.close().is_ok());
}
