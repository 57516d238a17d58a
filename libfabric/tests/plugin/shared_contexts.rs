//! Contexts that endpoints share: `fi_stx_context` of `fi_endpoint(3)`.

use std::ptr;

use homespun_fi::abi::endpoint::{FidEp, FidStx};
use homespun_fi::abi::eq::FiCqTaggedEntry;
use homespun_fi::abi::{FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_RECV, FI_TRANSMIT};
use libc::{c_int, c_void};

use crate::host::{
    API_VERSION, InfoList, Node, Object, Pair, Plugin, av_attr, context, cq_attr, eq_attr, open_fabric,
};

const ENODATA: c_int = -61;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const EDOMAIN: c_int = -262;
const EOPBADSTATE: c_int = -258;
const EBADFLAGS: c_int = -260;
const FI_SHARED_CONTEXT: usize = usize::MAX;

/// Infos for endpoints that share a transmit context.
fn sharing_transmit() -> InfoList {
    let infos = Plugin::get().loopback();
    for info in infos.iter() {
        // SAFETY: answers have all their attributes, and nothing else uses these.
        unsafe { (*info.ep_attr).tx_ctx_cnt = FI_SHARED_CONTEXT };
    }
    infos
}

/// An endpoint in a domain of its own that has a transmit context, bound to all that it needs but that context.
fn open(infos: &InfoList) -> (Node, Object<FidStx>) {
    let fabric = open_fabric(infos.first(), API_VERSION);
    let eq = fabric.eq(&mut eq_attr(0)).expect("an event queue");
    let domain = fabric.domain(infos.as_ptr()).expect("a domain");
    let stx = domain.transmit_context(infos.first().tx_attr).expect("a transmit context");
    let ep = domain.endpoint(infos.as_ptr()).expect("an endpoint");
    let av = domain.av(&mut av_attr()).expect("an address vector");
    let cq = domain.cq(&mut cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a completion queue");
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
    let infos = sharing_transmit();
    let answer = Plugin::get().getinfo(None, None, 0, infos.as_ptr()).expect("an answer");
    for info in answer.iter() {
        // SAFETY: answers have all their attributes.
        let (ep, domain) = unsafe { (&*info.ep_attr, &*info.domain_attr) };
        assert_eq!((ep.tx_ctx_cnt, ep.rx_ctx_cnt), (FI_SHARED_CONTEXT, 1));
        assert!(domain.max_ep_stx_ctx > 0);
    }
}

#[test]
fn messages_are_sent_by_endpoints_that_share_a_transmit_context() {
    let (node, stx) = open(&sharing_transmit());
    assert_eq!(node.ep.bind(&stx, 0), 0);
    assert_eq!(enable(&node.ep), 0);
    let pair: Pair<FiCqTaggedEntry> = Pair::of(node, Node::open());
    // Its front is the application's, as that of every object.
    // SAFETY: the context is open.
    assert_eq!(unsafe { (*stx.fid()).context }, context(3));
    let (mut received, sent) = ([0_u8; 8], *b"homespun");
    let (left, right) = (pair.left.ep.as_ptr(), pair.right.ep.as_ptr());
    // SAFETY: the endpoints are open; buffers outlive the operations.
    unsafe {
        let (buf, none) = (received.as_mut_ptr().cast(), ptr::null_mut());
        assert_eq!(((*(*right).msg).recv)(right, buf, 8, none, u64::MAX, context(1)), 0);
        let buf = sent.as_ptr().cast();
        assert_eq!(((*(*left).msg).send)(left, buf, 8, none, pair.to_right, context(2)), 0);
    }
    let [sent_entries, received_entries] = pair.completions(1, 1);
    assert_eq!(sent_entries[0].0.op_context, context(2));
    assert_eq!(received_entries[0].0.op_context, context(1));
    assert_eq!(received, sent);
    drop(pair.left.ep);
    assert!(stx.close().is_ok());
}

#[test]
fn wrong_uses_of_a_transmit_context_are_refused() {
    let infos = sharing_transmit();
    let (node, stx) = open(&infos);
    assert_eq!(enable(&node.ep), EOPBADSTATE, "no context is bound");
    assert_eq!(node.ep.bind(&stx, FI_TRANSMIT), EBADFLAGS);
    let (other_node, other_stx) = open(&infos);
    assert_eq!(node.ep.bind(&other_stx, 0), EDOMAIN);
    let own = node.domain.endpoint(Plugin::get().loopback().as_ptr()).expect("an endpoint");
    assert_eq!(own.bind(&stx, 0), EINVAL, "it has a context of its own");
    assert_eq!(node.ep.bind(&stx, 0), 0);
    assert_eq!(node.ep.bind(&stx, 0), EBUSY);
    assert_eq!(enable(&node.ep), 0);
    drop((own, other_node.ep, other_stx));
    drop(node.ep);
}

#[test]
fn a_transmit_context_is_busy_while_an_endpoint_is_bound() {
    let (node, stx) = open(&sharing_transmit());
    let (domain, busy) = node.domain.close().expect_err("the context depends on it");
    assert_eq!(busy, EBUSY);
    assert_eq!(node.ep.bind(&stx, 0), 0);
    let (stx, busy) = stx.close().expect_err("an endpoint is bound");
    assert_eq!(busy, EBUSY);
    drop((node.ep, node.cq, node.av));
    assert!(stx.close().is_ok());
    assert!(domain.close().is_ok());
}

#[test]
fn attributes_of_a_transmit_context_may_be_left_out_but_not_exceed_the_domain() {
    let infos = Plugin::get().loopback();
    let fabric = open_fabric(infos.first(), API_VERSION);
    let domain = fabric.domain(infos.as_ptr()).expect("a domain");
    drop(domain.transmit_context(ptr::null_mut()).expect("a context with all that there is"));
    // SAFETY: answers have all their attributes, and nothing else uses these.
    let attr = unsafe { &mut *infos.first().tx_attr };
    attr.iov_limit = 1000;
    assert_eq!(domain.transmit_context(attr).err(), Some(ENODATA));
    let domain = domain.as_ptr();
    // SAFETY: the domain is open; a context without a place to go is refused.
    let refused =
        unsafe { ((*(*domain).ops).stx_ctx)(domain, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()) };
    assert_eq!(refused, EINVAL);
}
