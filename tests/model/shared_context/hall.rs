//! A receive context, its members, and the peers that send to them.

use std::{mem, thread};

use homespun::flags::{BindFlags, CounterEvents};
use homespun::info::{RxAttr, SHARED_CONTEXT};
use homespun::{
    AddressVector, AvAttr, CompletionQueue, Counter, CounterAttr, CqAttr, Endpoint, SharedReceiveContext,
};

use super::program::Program;
use crate::suite::{Net, Party, Setup};

pub(super) struct Hall<'a> {
    net: &'a Net,
    pub(super) members: Vec<Member>,
    /// Each knows the members by their numbers, and is known to them by its own.
    pub(super) peers: Vec<Party>,
    pub(super) context: SharedReceiveContext,
}

/// An endpoint of the context, with a queue of its own and a counter of its receives.
pub(super) struct Member {
    endpoint: Endpoint,
    pub(super) cq: CompletionQueue,
    pub(super) received: Counter,
}

impl<'a> Hall<'a> {
    /// Opens everything that a program needs. The members are in this process; the peers are where the
    /// network has them.
    pub(super) fn open(net: &'a Net, program: &Program) -> Hall<'a> {
        let domain = net.domain();
        let mut info = net.info().clone();
        info.ep.rx_ctx_cnt = SHARED_CONTEXT;
        let mut attr = RxAttr { caps: info.rx.caps, ..RxAttr::default() };
        if program.depth_ops > 0 {
            attr.size_ops = program.depth_ops;
        }
        if program.unexpected_bytes > 0 {
            attr.total_buffered_recv_bytes = program.unexpected_bytes;
        }
        let context = domain.shared_receive_context(&attr).expect("a context");
        let av = domain.open_av(&AvAttr::default()).expect("an address vector");
        let members = (0..program.members)
            .map(|_| {
                let attr = CqAttr { size_entries: program.cq_depth_entries, ..CqAttr::default() };
                let cq = domain.open_cq(&attr).expect("a queue of this size");
                let endpoint = domain.endpoint(&info).expect("an endpoint");
                let received = domain.open_counter(&CounterAttr::default()).expect("a counter");
                endpoint.bind_av(&av).expect("the first address vector");
                endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
                endpoint.bind_counter(&received, CounterEvents::RECV).expect("the first counter");
                endpoint.bind_shared_receive_context(&context).expect("the first context");
                endpoint.enable().expect("nothing is missing");
                Member { endpoint, cq, received }
            })
            .collect::<Vec<_>>();
        let names: Vec<_> = members.iter().map(|member| member.endpoint.name().unwrap()).collect();
        let peers = (0..program.peers).map(|_| open_peer(net, program, &names, &av)).collect();
        Hall { net, members, peers, context }
    }
}

impl Drop for Hall<'_> {
    /// Closes the members while their peers are driven: closing waits for them.
    fn drop(&mut self) {
        let members = mem::take(&mut self.members);
        thread::scope(|scope| {
            let closing = scope.spawn(|| drop(members));
            while !closing.is_finished() {
                self.net.progress();
                thread::yield_now();
            }
        });
    }
}

fn open_peer(net: &Net, program: &Program, members: &[homespun::Address], av: &AddressVector) -> Party {
    let peer = net.open(Setup { cq_depth_entries: program.cq_depth_entries, ..Setup::default() });
    for member in members {
        peer.av.insert(&[*member]).remove(0).expect("a member's name");
    }
    let name = peer.endpoint.name().expect("an endpoint in service has a name");
    av.insert_one(name).expect("a peer's name");
    peer
}
