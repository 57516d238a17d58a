//! Contexts that endpoints share: `fi_stx_context` and `fi_srx_context` of `fi_endpoint(3)`.

use std::ptr;

use homespun_fi::abi::domain::{FidAv, FidDomain};
use homespun_fi::abi::endpoint::{FiMsg, FidEp, FidStx};
use homespun_fi::abi::eq::{FiCqTaggedEntry, FidCq};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::tagged::FiMsgTagged;
use homespun_fi::abi::trigger::{
    FiDeferredWork, FiOpMsg, FiOpTagged, FiTriggerDetails, FiTriggerThreshold, FiTriggeredContext,
};
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_GETOPSFLAG, FI_OP_RECV, FI_OP_TRECV,
    FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_QUEUE_WORK, FI_RECV, FI_SETOPSFLAG,
    FI_TRANSMIT, FI_TRIGGER_THRESHOLD, FI_WAIT_NONE,
};
use libc::{c_int, c_void, iovec};

use crate::host::{
    API_VERSION, CqEntry, InfoList, Node, Object, Pair, Plugin, av_attr, counter_attr, cq_attr, eq_attr,
    numbered_context, open_fabric,
};

const EAGAIN: isize = -11;
const ENODATA: c_int = -61;
const ENOENT: c_int = -2;
const ENOSYS: isize = -38;
const FI_COMPLETION: u64 = 1 << 24;
const FI_TRIGGER: u64 = 1 << 20;
const FI_DIRECTED_RECV: u64 = 1 << 59;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const EDOMAIN: c_int = -262;
const EOPBADSTATE: c_int = -258;
const EBADFLAGS: c_int = -260;
const FI_SHARED_CONTEXT: usize = usize::MAX;

/// Returns infos for endpoints that share a transmit context.
fn infos_sharing_transmit() -> InfoList {
    let infos = Plugin::get().loopback_infos();
    for info in infos.iter() {
        // SAFETY: answers have all their attributes, and nothing else uses these.
        unsafe { (*info.ep_attr).tx_ctx_cnt = FI_SHARED_CONTEXT };
    }
    infos
}

/// Opens a domain with a transmit context and an endpoint. Binds all objects to the endpoint except the
/// transmit context.
fn open_with_transmit_context(infos: &InfoList) -> (Node, Object<FidStx>) {
    let fabric = open_fabric(infos.first(), API_VERSION);
    let eq = fabric.open_eq(&mut eq_attr(0)).expect("an event queue");
    let domain = fabric.open_domain(infos.as_ptr()).expect("a domain");
    let stx = domain.open_transmit_context(infos.first().tx_attr).expect("a transmit context");
    let ep = domain.open_endpoint(infos.as_ptr()).expect("an endpoint");
    let av = domain.open_av(&mut av_attr()).expect("an address vector");
    let cq = domain.open_cq(&mut cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a completion queue");
    assert_eq!(ep.bind(&av, 0), 0);
    assert_eq!(ep.bind(&cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(ep.bind(&eq, 0), 0);
    (Node { ep, cq, av, eq, domain, fabric }, stx)
}

fn enable(ep: &Object<FidEp>) -> c_int {
    ep.control::<c_void>(FI_ENABLE, ptr::null_mut())
}

#[test]
fn getinfo_grants_a_shared_transmit_context() {
    let infos = infos_sharing_transmit();
    let answer = Plugin::get().getinfo(None, None, 0, infos.as_ptr()).expect("an answer");
    for info in answer.iter() {
        // SAFETY: answers have all their attributes.
        let (ep, domain) = unsafe { (&*info.ep_attr, &*info.domain_attr) };
        assert_eq!((ep.tx_ctx_cnt, ep.rx_ctx_cnt), (FI_SHARED_CONTEXT, 1));
        assert!(domain.max_ep_stx_ctx > 0);
    }
}

#[test]
fn endpoint_with_a_shared_transmit_context_sends_messages() {
    let (node, stx) = open_with_transmit_context(&infos_sharing_transmit());
    assert_eq!(node.ep.bind(&stx, 0), 0);
    assert_eq!(enable(&node.ep), 0);
    let pair: Pair<FiCqTaggedEntry> = Pair::from_nodes(node, Node::open());
    // A context has a valid `fid`, as every object has.
    // SAFETY: the context is open.
    assert_eq!(unsafe { (*stx.fid()).context }, numbered_context(3));
    let (mut received, sent) = ([0_u8; 8], *b"homespun");
    let (left, right) = (pair.left.ep.as_ptr(), pair.right.ep.as_ptr());
    // SAFETY: the endpoints are open; buffers outlive the operations.
    unsafe {
        let (buf, none) = (received.as_mut_ptr().cast(), ptr::null_mut());
        assert_eq!(((*(*right).msg).recv)(right, buf, 8, none, u64::MAX, numbered_context(1)), 0);
        let buf = sent.as_ptr().cast();
        assert_eq!(((*(*left).msg).send)(left, buf, 8, none, pair.to_right, numbered_context(2)), 0);
    }
    let [sent_entries, received_entries] = pair.read_completions(1, 1);
    assert_eq!(sent_entries[0].0.op_context, numbered_context(2));
    assert_eq!(received_entries[0].0.op_context, numbered_context(1));
    assert_eq!(received, sent);
    drop(pair.left.ep);
    assert!(stx.close().is_ok());
}

#[test]
fn invalid_uses_of_a_transmit_context_are_refused() {
    let infos = infos_sharing_transmit();
    let (node, stx) = open_with_transmit_context(&infos);
    assert_eq!(enable(&node.ep), EOPBADSTATE, "no context is bound");
    assert_eq!(node.ep.bind(&stx, FI_TRANSMIT), EBADFLAGS);
    assert_eq!(stx.bind(&node.cq, FI_TRANSMIT) as isize, ENOSYS, "queues are those of its endpoints");
    let (other_node, other_stx) = open_with_transmit_context(&infos);
    assert_eq!(node.ep.bind(&other_stx, 0), EDOMAIN);
    assert_eq!(node.ep.bind(&stx, 0), 0);
    assert_eq!(node.ep.bind(&stx, 0), EBUSY);
    assert_eq!(enable(&node.ep), 0);
    drop((other_node.ep, other_stx));
    drop(node.ep);
}

#[test]
fn transmit_context_closes_while_endpoints_use_it() {
    let (node, stx) = open_with_transmit_context(&infos_sharing_transmit());
    let (domain, busy) = node.domain.close().expect_err("the endpoint depends on it");
    assert_eq!(busy, EBUSY);
    let own = domain.open_endpoint(Plugin::get().loopback_infos().as_ptr()).expect("an endpoint");
    assert_eq!(own.bind(&node.av, 0), 0);
    assert_eq!(own.bind(&node.cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(enable(&own), 0);
    assert_eq!(own.bind(&stx, 0), 0, "it has a context of its own, and is enabled");
    assert_eq!(node.ep.bind(&stx, 0), 0);
    assert!(stx.close().is_ok());
    assert_eq!(enable(&node.ep), 0);
    drop((own, node.ep, node.cq, node.av));
    assert!(domain.close().is_ok());
}

#[test]
fn domain_closes_before_its_transmit_context() {
    let (node, stx) = open_with_transmit_context(&infos_sharing_transmit());
    drop((node.ep, node.cq, node.av));
    assert!(node.domain.close().is_ok());
    assert!(stx.close().is_ok());
}

#[test]
fn transmit_context_attributes_are_optional_and_bounded() {
    let infos = Plugin::get().loopback_infos();
    let fabric = open_fabric(infos.first(), API_VERSION);
    let domain = fabric.open_domain(infos.as_ptr()).expect("a domain");
    drop(domain.open_transmit_context(ptr::null_mut()).expect("a context with all that there is"));
    // SAFETY: answers have all their attributes, and nothing else uses these.
    let attr = unsafe { &mut *infos.first().tx_attr };
    attr.iov_limit = 1000;
    assert_eq!(domain.open_transmit_context(attr).err(), Some(ENODATA));
    let domain = domain.as_ptr();
    // SAFETY: the domain is open; a null result pointer is refused.
    let refused =
        unsafe { ((*(*domain).ops).stx_ctx)(domain, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()) };
    assert_eq!(refused, EINVAL);
}

/// Returns infos for endpoints that share a receive context.
fn shared_receive_infos() -> InfoList {
    let infos = Plugin::get().loopback_infos();
    for info in infos.iter() {
        // SAFETY: answers have all their attributes, and nothing else uses these.
        unsafe { (*info.ep_attr).rx_ctx_cnt = FI_SHARED_CONTEXT };
    }
    infos
}

/// Two endpoints of one domain. They share a receive context and an address vector. Each has its own
/// queue.
struct Sharers {
    ep: [Object<FidEp>; 2],
    srx: Object<FidEp>,
    cq: [Object<FidCq>; 2],
    av: Object<FidAv>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
}

impl Sharers {
    fn open() -> Sharers {
        Sharers::open_with(&shared_receive_infos())
    }

    fn open_with(infos: &InfoList) -> Sharers {
        let fabric = open_fabric(infos.first(), API_VERSION);
        let domain = fabric.open_domain(infos.as_ptr()).expect("a domain");
        let srx = domain.open_receive_context(infos.first().rx_attr).expect("a receive context");
        let av = domain.open_av(&mut av_attr()).expect("an address vector");
        let cq = [(), ()].map(|()| domain.open_cq(&mut cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a queue"));
        let ep = [&cq[0], &cq[1]].map(|cq| {
            let ep = domain.open_endpoint(infos.as_ptr()).expect("an endpoint");
            assert_eq!(ep.bind(&av, 0), 0);
            assert_eq!(ep.bind(cq, FI_TRANSMIT | FI_RECV), 0);
            assert_eq!(enable(&ep), EOPBADSTATE, "no context is bound");
            assert_eq!(ep.bind(&srx, 0), 0);
            assert_eq!(enable(&ep), 0);
            ep
        });
        Sharers { ep, srx, cq, av, domain, fabric }
    }

    /// Waits for the next entry of the queue with this index. Makes progress of the sender meanwhile.
    fn await_entry(&self, index: usize, sender: &Node) -> FiCqTaggedEntry {
        let mut found = FiCqTaggedEntry::EMPTY;
        crate::host::wait_until(|| {
            let _ = sender.try_read::<FiCqTaggedEntry>();
            let cq = self.cq[index].as_ptr();
            // SAFETY: the queue is open and has this format; there is room for an entry.
            match unsafe { ((*(*cq).ops).read)(cq, (&raw mut found).cast(), 1) } {
                1 => true,
                other => {
                    assert_eq!(other, EAGAIN);
                    false
                }
            }
        });
        found
    }
}

fn get_name(ep: &Object<FidEp>) -> [u8; 16] {
    let (mut name, mut len_bytes) = ([0; 16], 16);
    // SAFETY: the endpoint is open, and the length is the buffer's.
    let answer =
        unsafe { ((*(*ep.as_ptr()).cm).getname)(ep.fid(), name.as_mut_ptr().cast(), &raw mut len_bytes) };
    assert_eq!((answer, len_bytes), (0, 16));
    name
}

#[test]
fn every_call_that_posts_to_a_receive_context_serves_its_endpoints() {
    check_every_receive_call(&Sharers::open(), FI_ADDR_UNSPEC);
}

#[test]
fn triggered_receives_of_a_shared_context_wait_for_counters() {
    let infos = shared_receive_infos();
    for info in infos.iter() {
        // SAFETY: answers have all their attributes, and nothing else uses these.
        unsafe {
            (*info.rx_attr).caps |= FI_TRIGGER;
            (*info.tx_attr).caps |= FI_TRIGGER;
        }
    }
    let sharers = Sharers::open_with(&infos);
    let sender = Node::open();
    let to = [0, 1].map(|index| sender.insert(&get_name(&sharers.ep[index])));
    let counter = sharers.domain.open_counter(&mut counter_attr(FI_WAIT_NONE)).expect("a counter");
    let done = sharers.domain.open_counter(&mut counter_attr(FI_WAIT_NONE)).expect("a counter");
    let mut triggered = FiTriggeredContext {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: FiTriggerDetails {
            threshold: FiTriggerThreshold { cntr: counter.as_ptr(), threshold: 1 },
            internal: ptr::null_mut(),
        },
    };
    let mut room = [[0_u8; 8]; 3];
    let parts = room.each_mut().map(|room| iovec { iov_base: room.as_mut_ptr().cast(), iov_len: 8 });
    let message = |part: usize, context: *mut c_void| FiMsg {
        msg_iov: &raw const parts[part],
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        context,
        data: 0,
    };
    let tagged = FiMsgTagged {
        msg_iov: &raw const parts[2],
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        tag: 5,
        ignore: 0,
        context: numbered_context(12),
        data: 0,
    };
    let srx = sharers.srx.as_ptr();
    let triggered_context: *mut c_void = (&raw mut triggered).cast();
    // SAFETY: the context is open, and all arguments live until the end.
    unsafe {
        let receive = message(0, triggered_context);
        assert_eq!(((*(*srx).msg).recvmsg)(srx, &raw const receive, FI_TRIGGER), 0);
        let nothing = message(0, ptr::null_mut());
        assert_eq!(((*(*srx).msg).recvmsg)(srx, &raw const nothing, FI_TRIGGER), EINVAL as isize);
    }
    let untagged = FiOpMsg { ep: srx, msg: message(1, numbered_context(11)), flags: FI_COMPLETION };
    let tagged = FiOpTagged { ep: srx, msg: tagged, flags: 0 };
    let ops: [(u32, *mut c_void); 2] = [
        (FI_OP_RECV, ptr::from_ref(&untagged).cast_mut().cast()),
        (FI_OP_TRECV, ptr::from_ref(&tagged).cast_mut().cast()),
    ];
    let mut works = ops.map(|(op_type, op)| {
        // SAFETY: a structure of pointers and numbers may be all 0.
        let mut work: FiDeferredWork = unsafe { std::mem::zeroed() };
        (work.threshold, work.triggering_cntr, work.completion_cntr) = (2, counter.as_ptr(), done.as_ptr());
        (work.op_type, work.op) = (op_type, op);
        work
    });
    for work in &mut works {
        assert_eq!(sharers.domain.control(FI_QUEUE_WORK, ptr::from_mut(work)), 0);
    }
    let add = |value| {
        // SAFETY: the counter is open.
        assert_eq!(unsafe { ((*(*counter.as_ptr()).ops).add)(counter.as_ptr(), value) }, 0);
    };
    let ep = sender.ep.as_ptr();
    add(1);
    // SAFETY: the endpoint is open, and the messages are copied.
    unsafe {
        assert_eq!(((*(*ep).msg).inject)(ep, [1_u8; 8].as_ptr().cast(), 8, to[1]), 0);
        assert_eq!(sharers.await_entry(1, &sender).op_context, triggered_context);
        add(1);
        assert_eq!(((*(*ep).msg).inject)(ep, [2_u8; 8].as_ptr().cast(), 8, to[0]), 0);
        assert_eq!(sharers.await_entry(0, &sender).op_context, numbered_context(11));
        assert_eq!(((*(*ep).tagged).inject)(ep, [3_u8; 8].as_ptr().cast(), 8, to[1], 5), 0);
    }
    crate::host::wait_until(|| {
        let _ = sender.try_read::<FiCqTaggedEntry>();
        let done = done.as_ptr();
        // SAFETY: the counter is open.
        unsafe { ((*(*done).ops).read)(done) == 2 }
    });
    assert_eq!(room, [[1; 8], [2; 8], [3; 8]]);
}

#[test]
fn receive_context_without_directed_receives_ignores_the_source() {
    let infos = shared_receive_infos();
    for info in infos.iter() {
        // SAFETY: answers have all their attributes, and nothing else uses these.
        unsafe { (*info.rx_attr).caps &= !FI_DIRECTED_RECV };
    }
    check_every_receive_call(&Sharers::open_with(&infos), 12345);
}

fn check_every_receive_call(sharers: &Sharers, from: u64) {
    let sender = Node::open();
    let to = [0, 1].map(|index| sender.insert(&get_name(&sharers.ep[index])));
    let srx = sharers.srx.as_ptr();
    let mut room = [[0_u8; 8]; 6];
    let mut parts = room.each_mut().map(|room| iovec { iov_base: room.as_mut_ptr().cast(), iov_len: 8 });
    let none = ptr::null_mut::<c_void>();
    let at = |index: usize| parts[index].iov_base;
    // SAFETY: the context is open; the buffers outlive the receives, and each is used once.
    unsafe {
        let (msg, tagged) = (&*(*srx).msg, &*(*srx).tagged);
        assert_eq!((msg.recv)(srx, at(0), 8, none, from, numbered_context(10)), 0);
        assert_eq!((msg.recvv)(srx, &raw const parts[1], none.cast(), 1, from, numbered_context(11)), 0);
        let message = FiMsg {
            msg_iov: &raw mut parts[2],
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: from,
            context: numbered_context(12),
            data: 0,
        };
        assert_eq!((msg.recvmsg)(srx, &raw const message, FI_COMPLETION), 0);
        assert_eq!((tagged.recv)(srx, parts[3].iov_base, 8, none, from, 3, 0, numbered_context(13)), 0);
        assert_eq!(
            (tagged.recvv)(srx, &raw const parts[4], none.cast(), 1, from, 4, 0, numbered_context(14)),
            0
        );
        let message = FiMsgTagged {
            msg_iov: &raw mut parts[5],
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: from,
            tag: 5,
            ignore: 0,
            context: numbered_context(15),
            data: 0,
        };
        assert_eq!((tagged.recvmsg)(srx, &raw const message, FI_COMPLETION), 0);
        // An endpoint posts no receives of its own, and a context no sends.
        let ep = sharers.ep[0].as_ptr();
        assert_eq!(((*(*ep).msg).recv)(ep, ptr::null_mut(), 0, none, FI_ADDR_UNSPEC, none), ENOSYS);
        assert_eq!((msg.send)(srx, ptr::null(), 0, none, 0, none), ENOSYS);
    }
    let ep = sender.ep.as_ptr();
    for (number, tag) in [(0, None), (1, None), (2, None), (3, Some(3)), (4, Some(4)), (5, Some(5))] {
        let (message, to) = ([number as u8; 8], to[number % 2]);
        // SAFETY: the endpoint is open, and the message is copied.
        let sent = unsafe {
            match tag {
                None => ((*(*ep).msg).inject)(ep, message.as_ptr().cast(), 8, to),
                Some(tag) => ((*(*ep).tagged).inject)(ep, message.as_ptr().cast(), 8, to, tag),
            }
        };
        assert_eq!(sent, 0);
        let entry = sharers.await_entry(number % 2, &sender);
        assert_eq!(
            (entry.op_context, entry.len),
            (numbered_context(10 + number), 8),
            "in the queue of its endpoint"
        );
        assert_eq!(room[number], message);
    }
}

#[test]
fn receive_context_supports_options_op_flags_and_cancel() {
    let sharers = Sharers::open();
    let (srx, fid) = (sharers.srx.as_ptr(), sharers.srx.fid());
    let (asked, mut found, mut len_bytes) = (100_usize, 0_usize, size_of::<usize>());
    let (level, option) = (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV);
    // SAFETY: the context is open, and the lengths are those of the values.
    unsafe {
        let ops = &*(*srx).ops;
        assert_eq!((ops.setopt)(fid, level, option, (&raw const asked).cast(), len_bytes), 0);
        assert_eq!((ops.getopt)(fid, level, option, (&raw mut found).cast(), &raw mut len_bytes), 0);
        assert_eq!(found, asked);
        let getopt = ops.getopt;
        assert_eq!(getopt(fid, level, FI_OPT_CM_DATA_SIZE, (&raw mut found).cast(), &raw mut len_bytes), -92);
    }
    let mut flags = FI_COMPLETION | FI_RECV;
    assert_eq!(sharers.srx.control(FI_SETOPSFLAG, &raw mut flags), 0);
    flags = FI_RECV;
    assert_eq!(sharers.srx.control(FI_GETOPSFLAG, &raw mut flags), 0);
    assert_eq!(flags, FI_COMPLETION);
    flags = FI_TRANSMIT;
    assert_eq!(sharers.srx.control(FI_GETOPSFLAG, &raw mut flags), EINVAL, "it sends nothing");
    assert_eq!(enable(&sharers.srx), 0, "it takes receives anyhow");
    let none = ptr::null_mut::<c_void>();
    // SAFETY: the context is open.
    unsafe {
        assert_eq!(((*(*srx).msg).recv)(srx, none, 0, none, FI_ADDR_UNSPEC, numbered_context(7)), 0);
        assert_eq!(((*(*srx).ops).cancel)(fid, numbered_context(8)), ENOENT as isize);
        assert_eq!(((*(*srx).ops).cancel)(fid, numbered_context(7)), 0);
    }
}

#[test]
fn invalid_uses_of_a_receive_context_are_refused() {
    let Sharers { ep: [first, second], srx, cq, av, domain, fabric } = Sharers::open();
    let own = domain.open_endpoint(Plugin::get().loopback_infos().as_ptr()).expect("an endpoint");
    assert_eq!(own.bind(&srx, 0), EINVAL, "it has a context of its own");
    let sharer = domain.open_endpoint(shared_receive_infos().as_ptr()).expect("an endpoint");
    assert_eq!(sharer.bind(&srx, FI_RECV), EBADFLAGS);
    assert_eq!(srx.bind(&cq[0], FI_RECV) as isize, ENOSYS, "queues are those of its endpoints");
    let other = Sharers::open();
    assert_eq!(sharer.bind(&other.srx, 0), EDOMAIN);
    assert_eq!(sharer.bind(&srx, 0), 0);
    assert_eq!(sharer.bind(&srx, 0), EBUSY);
    let domain_ptr = domain.as_ptr();
    // SAFETY: the domain is open; a null result pointer is refused.
    let nowhere = unsafe {
        ((*(*domain_ptr).ops).srx_ctx)(domain_ptr, ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
    };
    assert_eq!(nowhere, EINVAL);
    drop((own, first, second));
    let (srx, busy) = srx.close().expect_err("an endpoint is bound");
    assert_eq!(busy, EBUSY);
    drop(sharer);
    assert!(srx.close().is_ok());
    drop((cq, av, domain, fabric));
}

#[test]
fn queue_is_busy_until_its_shared_context_endpoint_closes() {
    let (node, stx) = open_with_transmit_context(&infos_sharing_transmit());
    assert_eq!(node.ep.bind(&stx, 0), 0);
    assert_eq!(enable(&node.ep), 0);
    let Node { ep, cq, av, eq, domain, fabric } = node;
    let (cq, busy) = cq.close().expect_err("an endpoint reports to it");
    assert_eq!(busy, EBUSY);
    drop(ep);
    assert!(cq.close().is_ok(), "though the context is there");
    drop((stx, av, eq, domain, fabric));

    let Sharers { ep: [first, second], srx, cq: [of_first, of_second], av, domain, fabric } = Sharers::open();
    let (of_first, busy) = of_first.close().expect_err("an endpoint reports to it");
    assert_eq!(busy, EBUSY);
    drop(first);
    assert!(of_first.close().is_ok(), "though the context is there, and another endpoint");
    let (of_second, busy) = of_second.close().expect_err("an endpoint reports to it");
    assert_eq!(busy, EBUSY);
    drop((second, of_second, srx, av, domain, fabric));
}
