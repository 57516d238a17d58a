//! A receive context, its members, and the peers that send to them.

use homespun::flags::{BindFlags, CounterEvents};
use homespun::info::{Info, RxAttr, SHARED_CONTEXT};
use homespun::{
    AddressVector, AvAttr, CompletionQueue, Counter, CounterAttr, CqAttr, Domain, Endpoint, FabricAddress,
    SharedReceiveContext,
};

use super::Program;
use crate::connecting::{self, CLIENT, ConnectionEvent, LISTENER, SERVER, Side};
use crate::model::run::close_while_driving;
use crate::{Net, Party, Setup};

pub(super) struct ContextFixture<'a> {
    net: &'a Net,
    cq_depth_entries: usize,
    domain: Domain,
    /// The address vector of the members, if they have no connections.
    av: AddressVector,
    /// The sides of the peers and of the members, if each member has a connection to the peer with the same
    /// number.
    sides: Option<[Side; 2]>,
    pub(super) members: Vec<Member>,
    /// The peers. In a peer's address vector, a member has the member's index as its address. In the
    /// members' vector, a peer has the peer's index.
    pub(super) peers: Vec<Party>,
    pub(super) context: SharedReceiveContext,
}

/// An endpoint of the context, with its own completion queue and a counter of its receives.
pub(super) struct Member {
    /// `None` once it has left.
    endpoint: Option<Endpoint>,
    pub(super) cq: CompletionQueue,
    pub(super) received: Counter,
    /// The number of failures that were read from the member's queue.
    pub(super) failures: u64,
}

impl<'a> ContextFixture<'a> {
    /// Opens the objects of a program. The members are in this process. The net decides where the peers are.
    pub(super) fn open(net: &'a Net, program: &Program) -> ContextFixture<'a> {
        let sides = program.connected.then(|| [Side::new(net), Side::new(net)]);
        let (domain, caps) = match &sides {
            Some([_, server]) => (Domain::clone(&server.domain), server.info.rx.caps),
            None => (net.open_other_domain(), net.info().rx.caps),
        };
        let mut attr = RxAttr { caps, ..RxAttr::default() };
        if program.common.depth_ops > 0 {
            attr.size_ops = program.common.depth_ops;
        }
        if program.common.unexpected_bytes > 0 {
            attr.total_buffered_recv_bytes = program.common.unexpected_bytes;
        }
        let mut fixture = ContextFixture {
            net,
            cq_depth_entries: program.common.cq_depth_entries,
            av: domain.open_av(&AvAttr::default()).expect("an address vector"),
            context: domain.shared_receive_context(&attr).expect("a context"),
            domain,
            sides,
            members: Vec::new(),
            peers: Vec::new(),
        };
        (0..program.members).for_each(|_| fixture.add_member());
        if !program.connected {
            for _ in 0..program.peers {
                fixture.add_unconnected_peer();
            }
        }
        fixture
    }

    /// Adds a member. If members have connections, also adds its peer.
    pub(super) fn add_member(&mut self) {
        let attr = CqAttr { size_entries: self.cq_depth_entries, ..CqAttr::default() };
        let cq = self.domain.open_cq(&attr).expect("a queue of this size");
        let received = self.domain.open_counter(&CounterAttr::default()).expect("a counter");
        let endpoint = match &self.sides {
            None => {
                let info = with_shared_receive_context(self.net.info().clone());
                let endpoint = self.domain.endpoint(&info).expect("an endpoint");
                endpoint.bind_av(&self.av).expect("the first address vector");
                self.bind_member(&endpoint, &cq, &received);
                endpoint.enable().expect("nothing is missing");
                endpoint
            }
            Some([client, server]) => {
                let listener = server.open_listener(LISTENER);
                let (connecting, request) = connecting::ask(client, server, &listener, b"");
                let info = with_shared_receive_context(request.info());
                let accepting = server.domain.endpoint_for_request(&info, &request).expect("it is open");
                accepting.bind_eq(&server.eq, SERVER).expect("the first event queue");
                self.bind_member(&accepting, &cq, &received);
                accepting.accept(b"").expect("it can be accepted");
                for (sides, endpoint) in [([server, client], SERVER), ([client, server], CLIENT)] {
                    wait_until_connected(&sides, endpoint);
                }
                self.peers.push(self.net.party_of_connection(client, connecting));
                accepting.expect_local().clone()
            }
        };
        self.members.push(Member { endpoint: Some(endpoint), cq, received, failures: 0 });
    }

    /// Adds an unconnected peer, and inserts all members into its address vector. Returns the peer's fabric
    /// address for the newest member, or `None` if the peers have connections.
    pub(super) fn add_unconnected_peer(&mut self) -> Option<FabricAddress> {
        if self.sides.is_some() {
            return None;
        }
        let setup = Setup { cq_depth_entries: self.cq_depth_entries, ..Setup::default() };
        let peer = self.net.open_party_with(setup);
        let mut known = None;
        for endpoint in self.members.iter().filter_map(|member| member.endpoint.as_ref()) {
            known = Some(peer.insert(endpoint.name().expect("a name")));
        }
        self.av.insert_one(peer.endpoint.name().expect("a name")).expect("a peer's name");
        self.peers.push(peer);
        known
    }

    fn bind_member(&self, endpoint: &Endpoint, cq: &CompletionQueue, received: &Counter) {
        endpoint.bind_cq(cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
        endpoint.bind_counter(received, CounterEvents::RECV).expect("the first counter");
        endpoint.bind_shared_receive_context(&self.context).expect("the first context");
    }

    /// Reads all connection events, since some connections have ended.
    pub(super) fn discard_connection_events(&self) {
        self.sides.iter().flatten().for_each(|side| while side.poll_event().is_some() {});
    }

    pub(super) fn is_member(&self, member: usize) -> bool {
        self.members[member].endpoint.is_some()
    }

    /// Returns the oldest member. The queue of the oldest member gets the entries that belong to no member,
    /// for example of cancelled receives.
    pub(super) fn oldest_member(&self) -> Option<usize> {
        (0..self.members.len()).find(|member| self.is_member(*member))
    }

    /// Closes members, but keeps their queues. Drives the peers meanwhile, since closing waits for peers.
    /// Members are not driven: their queues may be full.
    pub(super) fn close_members(&mut self, members: impl IntoIterator<Item = usize>) {
        let members = members.into_iter();
        let closed: Vec<_> = members.filter_map(|member| self.members[member].endpoint.take()).collect();
        close_while_driving(self.net, closed);
    }

    /// Ends the link between a peer and a member: breaks it if the network can, and otherwise shuts down a
    /// connection. Returns whether it has done so.
    pub(super) fn end_link(&self, peer: usize, member: usize, in_order: bool) -> bool {
        let peer = &self.peers[peer];
        match (&self.net.network, &self.members[member].endpoint) {
            _ if in_order && self.sides.is_some() => {
                // The connection may have ended before.
                let _ = peer.endpoint.expect_local().shutdown();
                true
            }
            (Some(network), Some(endpoint)) => {
                let names = [peer.endpoint.name(), endpoint.name()];
                let [peer, member] = names.map(|name| name.expect("an endpoint in service has a name"));
                network.break_links_between(peer, member);
                true
            }
            _ => false,
        }
    }
}

/// Waits until the first side hears that an endpoint is connected. Discards the shutdowns of others.
fn wait_until_connected(sides: &[&Side], expected: u64) {
    loop {
        match connecting::next_event_of_first_side(sides).expect("the network is not violent now") {
            ConnectionEvent::Shutdown { .. } => {}
            ConnectionEvent::Connected { endpoint, .. } if endpoint == expected => return,
            other => panic!("{other:?}"),
        }
    }
}

fn with_shared_receive_context(mut info: Info) -> Info {
    info.ep.rx_ctx_cnt = SHARED_CONTEXT;
    info
}

impl Drop for ContextFixture<'_> {
    fn drop(&mut self) {
        self.close_members(0..self.members.len());
    }
}
