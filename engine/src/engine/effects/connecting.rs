//! Carries out the effects that an engine's connection asks for.

use std::collections::VecDeque;

use tracing::debug;

use super::super::Engine;
use super::super::links::ClosingLink;
use super::super::receive_side::ReceiveSide;
use super::LinksAndSink;
use crate::address::Address;
use crate::completion::Sink;
use crate::connecting::{Connection, ConnectionEffects};
use crate::connection::ConnectionReport;
use crate::error::OperationError;
use crate::link::Links;
use crate::peer_id::PeerId;
use crate::peers::Peers;
use crate::target::Target;
use crate::transport::{AddressProof, Close, LinkId};
use crate::wire::Header;

/// An engine's other parts and sink, which carry out the effects of its connection.
#[derive(Debug)]
pub(in super::super) struct ConnectionCarrier<'a, S> {
    peers: &'a mut Peers,
    links: &'a mut Links,
    receive_side: &'a mut ReceiveSide,
    target: &'a mut Target,
    condemned: &'a mut VecDeque<ClosingLink>,
    has_timeouts: &'a mut bool,
    sink: &'a mut S,
}

impl Engine {
    /// Returns the connection, and the value that carries out its effects.
    pub(in super::super) fn connection_and_effects<'a, S: Sink>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut Connection, ConnectionCarrier<'a, S>) {
        let carrier = ConnectionCarrier {
            peers: &mut self.peers,
            links: &mut self.links,
            receive_side: &mut self.receive_side,
            target: &mut self.target,
            condemned: &mut self.condemned,
            has_timeouts: &mut self.has_timeouts,
            sink,
        };
        (&mut self.connection, carrier)
    }
}

impl<S: Sink> ConnectionEffects for ConnectionCarrier<'_, S> {
    fn report(&mut self, event: ConnectionReport) {
        self.sink.report_connection_event(event);
    }

    fn add_message_link(
        &mut self,
        link: LinkId,
        address: Address,
        instance: u64,
        proof: AddressProof,
    ) -> PeerId {
        // No sweep: an endpoint has one connection in its life.
        let peer = self.peers.intern_introduced(address);
        self.links.insert(link, peer);
        self.receive_side.link_added(link, peer, address);
        self.receive_side.link_up(link, address, proof);
        self.target.link_added(link, peer);
        let state = self.peers.peer_mut(peer);
        state.link_begun(link);
        state.set_transmit_link(link);
        let created_count = self.links.created_count();
        if let Some(link) = self.links.get_mut(link) {
            // The application trusts the peer.
            link.mark_up(false);
            state.link_up(instance, link.creation_number(), created_count);
        }
        peer
    }

    fn queue_header(&mut self, link: LinkId, header: Header) {
        self.links.queue_header(link, header);
    }

    fn abort_handshake_link(&mut self, link: LinkId, reason: &'static str) {
        // A link that comes up after it was ended is not closed twice.
        if self.condemned.iter().any(|condemned| condemned.link == link) {
            return;
        }
        debug!(?link, reason, "ending a link");
        self.condemned.push_back(ClosingLink::without_sends(link, Close::Abort));
    }

    fn fail_all_receives(&mut self, error: &OperationError) {
        let mut effects = LinksAndSink { links: self.links, peers: self.peers, sink: self.sink };
        self.receive_side.fail_all_and_close(None, error, &mut effects);
    }

    fn arm_timeout(&mut self) {
        *self.has_timeouts = true;
    }
}
