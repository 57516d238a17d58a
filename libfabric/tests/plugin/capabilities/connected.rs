//! Two endpoints that have a connection.

use std::ptr;

use homespun_fi::abi::domain::{FidAv, FidDomain};
use homespun_fi::abi::endpoint::FidEp;
use homespun_fi::abi::eq::{FidCq, FidEq};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::info::FiInfo;
use homespun_fi::abi::{FI_CONNECTED, FI_CONNREQ, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_RECV, FI_TRANSMIT};
use libc::c_void;

use super::EAGAIN;
use crate::connections::{self, Event, accept, connect, event, infos, listen, name, passive};
use crate::host::{API_VERSION, InfoList, Node, Object, Pair, av_attr, cq_attr, eq_attr, open_fabric, until};

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
    /// Opens the objects for an endpoint with these capabilities, or with all.
    fn open(caps: Option<u64>) -> Side {
        let infos = infos();
        if let Some(caps) = caps {
            // SAFETY: the answer is valid, and only this thread uses it.
            unsafe { (*infos.as_ptr()).caps = caps };
        }
        let fabric = open_fabric(infos.first(), API_VERSION);
        let eq = fabric.eq(&mut eq_attr(0)).expect("an event queue");
        let domain = fabric.domain(infos.as_ptr()).expect("a domain");
        let av = domain.av(&mut av_attr()).expect("an address vector");
        let cq = domain.cq(&mut cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a completion queue");
        Side { cq, av, eq, domain, fabric, infos }
    }

    fn endpoint(&self, info: *mut FiInfo) -> Object<FidEp> {
        let ep = self.domain.endpoint(info).expect("an endpoint");
        assert_eq!(ep.bind(&self.eq, 0), 0);
        assert_eq!(ep.bind(&self.cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(ep.control::<c_void>(FI_ENABLE, ptr::null_mut()), 0);
        ep
    }

    /// The next event, if there is one.
    fn event(&self) -> Option<Event> {
        let mut room = [0; 1000];
        let read = connections::read(&self.eq, &mut room, 0);
        (read.0 != EAGAIN).then(|| event(read, &room))
    }

    fn with(self, ep: Object<FidEp>) -> Node {
        let Side { cq, av, eq, domain, fabric, infos: _ } = self;
        Node { ep, cq, av, eq, domain, fabric }
    }
}

/// The left endpoint connects and the right one accepts; each has these capabilities, or all.
pub(super) fn pair(left: Option<u64>, right: Option<u64>) -> Pair {
    let (left, right) = (Side::open(left), Side::open(right));
    let listener = passive(&right.fabric, right.infos.as_ptr()).expect("a passive endpoint");
    assert_eq!((listener.bind(&right.eq, 0), listen(&listener)), (0, 0));
    let requester = left.endpoint(left.infos.as_ptr());
    assert_eq!(connect(&requester, &name(&listener), b""), 0);
    let mut request = None;
    until(|| {
        assert!(left.event().is_none(), "the request is undecided");
        request = right.event();
        request.is_some()
    });
    let Event { number: FI_CONNREQ, info: Some(info), .. } = request.expect("it was waited for") else {
        panic!("not a request");
    };
    let acceptor = right.endpoint(info.as_ptr());
    assert_eq!(accept(&acceptor, b""), 0);
    let mut are_connected = [false; 2];
    until(|| {
        for (side, is_connected) in [&left, &right].into_iter().zip(&mut are_connected) {
            if let Some(event) = side.event() {
                assert_eq!(event.number, FI_CONNECTED);
                *is_connected = true;
            }
        }
        are_connected == [true; 2]
    });
    drop((info, listener));
    Pair::connected(left.with(requester), right.with(acceptor))
}
