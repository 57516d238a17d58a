//! Two connected endpoints.

use std::ptr;

use homespun_fi::abi::domain::{FidAv, FidDomain};
use homespun_fi::abi::endpoint::FidEp;
use homespun_fi::abi::eq::{FidCq, FidEq};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::info::FiInfo;
use homespun_fi::abi::{FI_CONNECTED, FI_CONNREQ, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_RECV, FI_TRANSMIT};
use libc::c_void;

use super::EAGAIN;
use crate::connections::{
    self, Event, accept, connect, get_name, listen, loopback_msg_infos, open_passive, parse_event,
};
use crate::host::{
    API_VERSION, InfoList, Node, Object, Pair, av_attr, cq_attr, eq_attr, open_fabric, wait_until,
};

/// The objects of one side, without its endpoint.
struct Side {
    cq: Object<FidCq>,
    av: Object<FidAv>,
    eq: Object<FidEq>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
    infos: InfoList,
}

impl Side {
    /// Opens the objects for an endpoint with these capabilities, or with all if none are given.
    fn open(caps: Option<u64>) -> Side {
        let infos = loopback_msg_infos();
        if let Some(caps) = caps {
            // SAFETY: the answer is valid, and only this thread uses it.
            unsafe { (*infos.as_ptr()).caps = caps };
        }
        let fabric = open_fabric(infos.first(), API_VERSION);
        let eq = fabric.open_eq(&mut eq_attr(0)).expect("an event queue");
        let domain = fabric.open_domain(infos.as_ptr()).expect("a domain");
        let av = domain.open_av(&mut av_attr()).expect("an address vector");
        let cq = domain.open_cq(&mut cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a completion queue");
        Side { cq, av, eq, domain, fabric, infos }
    }

    fn open_endpoint(&self, info: *mut FiInfo) -> Object<FidEp> {
        let ep = self.domain.open_endpoint(info).expect("an endpoint");
        assert_eq!(ep.bind(&self.eq, 0), 0);
        assert_eq!(ep.bind(&self.cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(ep.control::<c_void>(FI_ENABLE, ptr::null_mut()), 0);
        ep
    }

    /// Returns the next event, if there is one.
    fn try_read_event(&self) -> Option<Event> {
        let mut room = [0; 1000];
        let read = connections::read_eq(&self.eq, &mut room, 0);
        (read.0 != EAGAIN).then(|| parse_event(read, &room))
    }

    fn into_node(self, ep: Object<FidEp>) -> Node {
        let Side { cq, av, eq, domain, fabric, infos: _ } = self;
        Node { ep, cq, av, eq, domain, fabric }
    }
}

/// Opens a pair: the left endpoint connects and the right one accepts. Each has these capabilities, or all
/// capabilities for `None`.
pub(super) fn open_connected_pair(left: Option<u64>, right: Option<u64>) -> Pair {
    let (left, right) = (Side::open(left), Side::open(right));
    let listener = open_passive(&right.fabric, right.infos.as_ptr()).expect("a passive endpoint");
    assert_eq!((listener.bind(&right.eq, 0), listen(&listener)), (0, 0));
    let requester = left.open_endpoint(left.infos.as_ptr());
    assert_eq!(connect(&requester, &get_name(&listener), b""), 0);
    let mut request = None;
    wait_until(|| {
        assert!(left.try_read_event().is_none(), "the request is undecided");
        request = right.try_read_event();
        request.is_some()
    });
    let Event { number: FI_CONNREQ, info: Some(info), .. } = request.expect("it was waited for") else {
        panic!("not a request");
    };
    let acceptor = right.open_endpoint(info.as_ptr());
    assert_eq!(accept(&acceptor, b""), 0);
    let mut are_connected = [false; 2];
    wait_until(|| {
        for (side, is_connected) in [&left, &right].into_iter().zip(&mut are_connected) {
            if let Some(event) = side.try_read_event() {
                assert_eq!(event.number, FI_CONNECTED);
                *is_connected = true;
            }
        }
        are_connected == [true; 2]
    });
    drop((info, listener));
    Pair::from_connected_nodes(left.into_node(requester), right.into_node(acceptor))
}
