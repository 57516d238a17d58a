//! A receive context, its members, and the peers that send to them.

use std::{mem, thread};

use homespun::endpoint::SendMsg;
use homespun::flags::{BindFlags, CounterEvents};
use homespun::info::{Info, RxAttr, SHARED_CONTEXT};
use homespun::{
    Address, AddressVector, AvAttr, CompletionQueue, ConnectionEvent, Counter, CounterAttr, CqAttr, Domain,
    Endpoint, Error, FabricAddress, SharedReceiveContext,
};

use super::program::Program;
use crate::connecting::{self, CLIENT, LISTENER, SERVER, Side};
use crate::poll_completion;
use crate::{Ended, Net, Party, Setup};

const BOTH: BindFlags = BindFlags::TRANSMIT.union(BindFlags::RECV);

pub(super) struct ContextFixture<'a> {
    net: &'a Net,
    cq_depth_entries: usize,
    domain: Domain,
    ends: Ends,
    pub(super) members: Vec<Member>,
    /// The peers. In a peer's address vector, a member has the member's index as its address. In the
    /// members' vector, a peer has the peer's index.
    pub(super) peers: Vec<Peer>,
    pub(super) context: SharedReceiveContext,
}

/// The way in which members and peers reach each other.
enum Ends {
    /// Peers are unconnected. The members have this address vector.
    Unconnected(AddressVector),
    /// Each member has a connection to the peer with the same number.
    Connected { client: Box<Side>, server: Box<Side> },
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

/// An endpoint that sends to members.
pub(super) enum Peer {
    Unconnected(Party),
    Connected { endpoint: Endpoint, cq: CompletionQueue },
}

impl Peer {
    pub(super) fn send(&self, message: SendMsg) -> Result<(), Error> {
        match self {
            Peer::Unconnected(party) => party.endpoint.sendmsg(message),
            Peer::Connected { endpoint, .. } => endpoint.sendmsg(message).map_err(Error::from),
        }
    }

    /// Returns the next end of a send, if there is one.
    pub(super) fn poll_send_end(&self) -> Option<Ended> {
        match self {
            Peer::Unconnected(party) => party.poll_completion(),
            Peer::Connected { cq, .. } => poll_completion(cq),
        }
    }

    fn name(&self) -> Address {
        let name = match self {
            Peer::Unconnected(party) => party.endpoint.name(),
            Peer::Connected { endpoint, .. } => endpoint.name(),
        };
        name.expect("an endpoint in service has a name")
    }
}

impl<'a> ContextFixture<'a> {
    /// Opens the objects of a program. The members are in this process. The net decides where the peers are.
    pub(super) fn open(net: &'a Net, program: &Program) -> ContextFixture<'a> {
        let (domain, caps, ends) = if program.connected {
            let (client, server) = (Box::new(Side::new(net)), Box::new(Side::new(net)));
            (server.domain.clone(), server.info.rx.caps, Ends::Connected { client, server })
        } else {
            let domain = net.open_other_domain();
            let av = domain.open_av(&AvAttr::default()).expect("an address vector");
            (domain, net.info().rx.caps, Ends::Unconnected(av))
        };
        let mut attr = RxAttr { caps, ..RxAttr::default() };
        if program.depth_ops > 0 {
            attr.size_ops = program.depth_ops;
        }
        if program.unexpected_bytes > 0 {
            attr.total_buffered_recv_bytes = program.unexpected_bytes;
        }
        let context = domain.shared_receive_context(&attr).expect("a context");
        let cq_depth_entries = program.cq_depth_entries;
        let (members, peers) = (Vec::new(), Vec::new());
        let mut fixture = ContextFixture { net, cq_depth_entries, domain, ends, members, peers, context };
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
        let cq = self.open_cq();
        let received = self.domain.open_counter(&CounterAttr::default()).expect("a counter");
        let endpoint = match &self.ends {
            Ends::Unconnected(av) => {
                let endpoint = self
                    .domain
                    .endpoint(&with_shared_receive_context(self.net.info().clone()))
                    .expect("an endpoint");
                endpoint.bind_av(av).expect("the first address vector");
                self.bind_member(&endpoint, &cq, &received);
                endpoint.enable().expect("nothing is missing");
                endpoint
            }
            Ends::Connected { client, server } => {
                let listener = server.open_listener(LISTENER);
                let connecting = client.domain.endpoint(&client.info).expect("an endpoint");
                let attr = CqAttr { size_entries: self.cq_depth_entries, ..CqAttr::default() };
                let peer_cq = client.domain.open_cq(&attr).expect("a queue of this size");
                connecting.bind_eq(&client.eq, CLIENT).expect("the first event queue");
                connecting.bind_cq(&peer_cq, BOTH).expect("the first queue");
                connecting.connect(listener.name().expect("it listens"), b"").expect("it is new");
                let request = connecting::next_request_of_first_side(&[server, client]);
                let info = with_shared_receive_context(request.info());
                let accepting = server.domain.endpoint_for_request(&info, &request).expect("it is open");
                accepting.bind_eq(&server.eq, SERVER).expect("the first event queue");
                self.bind_member(&accepting, &cq, &received);
                accepting.accept(b"").expect("it can be accepted");
                for (side, other) in [(server, client), (client, server)] {
                    let heard = next_event_past_shutdowns(side, other);
                    assert!(matches!(heard, ConnectionEvent::Connected { .. }), "{heard:?}");
                }
                self.peers.push(Peer::Connected { endpoint: connecting, cq: peer_cq });
                accepting
            }
        };
        self.members.push(Member { endpoint: Some(endpoint), cq, received, failures: 0 });
    }

    /// Adds an unconnected peer, and inserts all members into its address vector. Returns the peer's fabric
    /// address for the newest member, or `None` if the peers have connections.
    pub(super) fn add_unconnected_peer(&mut self) -> Option<FabricAddress> {
        let Ends::Unconnected(av) = &self.ends else { return None };
        let setup = Setup { cq_depth_entries: self.cq_depth_entries, ..Setup::default() };
        let peer = self.net.open_party_with(setup);
        let names = self.members.iter().filter_map(|member| member.endpoint.as_ref()).map(Endpoint::name);
        let known: Vec<_> = names
            .map(|name| peer.av.insert(&[name.expect("a name")]).remove(0).expect("a member's name"))
            .collect();
        av.insert_one(peer.endpoint.name().expect("a name")).expect("a peer's name");
        self.peers.push(Peer::Unconnected(peer));
        known.last().copied()
    }

    fn open_cq(&self) -> CompletionQueue {
        let attr = CqAttr { size_entries: self.cq_depth_entries, ..CqAttr::default() };
        self.domain.open_cq(&attr).expect("a queue of this size")
    }

    fn bind_member(&self, endpoint: &Endpoint, cq: &CompletionQueue, received: &Counter) {
        endpoint.bind_cq(cq, BOTH).expect("the first queue");
        endpoint.bind_counter(received, CounterEvents::RECV).expect("the first counter");
        endpoint.bind_shared_receive_context(&self.context).expect("the first context");
    }

    /// Reads all connection events, since some connections have ended.
    pub(super) fn discard_connection_events(&self) {
        if let Ends::Connected { client, server } = &self.ends {
            [client, server].into_iter().for_each(|side| while side.poll_event().is_some() {});
        }
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
    pub(super) fn close_members(&mut self, members: impl IntoIterator<Item = usize>) {
        let closed: Vec<_> =
            members.into_iter().filter_map(|member| self.members[member].endpoint.take()).collect();
        self.run_while_driving(|| drop(closed));
    }

    /// Calls `act`, and drives the peers meanwhile. Members are not driven: their queues may be full.
    fn run_while_driving(&self, act: impl FnOnce() + Send) {
        thread::scope(|scope| {
            let acting = scope.spawn(act);
            while !acting.is_finished() {
                self.net.progress();
                for peer in &self.peers {
                    if let Peer::Connected { cq, .. } = peer {
                        cq.progress();
                    }
                }
                thread::yield_now();
            }
        });
    }

    /// Breaks the links between a peer and a member, if the network can.
    pub(super) fn break_link_if_possible(&self, peer: usize, member: usize) -> bool {
        let (Some(network), Some(endpoint)) = (&self.net.network, &self.members[member].endpoint) else {
            return false;
        };
        let name = endpoint.name().expect("an endpoint in service has a name");
        network.break_links_between(self.peers[peer].name(), name);
        true
    }

    /// Shuts down the connection of a peer, if it has one.
    pub(super) fn shut_down_connection_if_any(&self, peer: usize) -> bool {
        let Peer::Connected { endpoint, .. } = &self.peers[peer] else { return false };
        // The connection may have ended before.
        let _ = endpoint.shutdown();
        true
    }
}

/// Returns the next event of one side, except the shutdowns of connections.
fn next_event_past_shutdowns(side: &Side, other: &Side) -> ConnectionEvent {
    loop {
        match connecting::next_event_of_first_side(&[side, other]) {
            Ok(ConnectionEvent::Shutdown { .. }) => {}
            heard => return heard.expect("the network is not violent now"),
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
        let connected = self.peers.extract_if(.., |peer| matches!(peer, Peer::Connected { .. }));
        let connected: Vec<Peer> = connected.collect();
        self.run_while_driving(|| drop(connected));
        mem::take(&mut self.peers);
    }
}
