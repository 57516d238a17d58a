//! The links of an endpoint: coming up, going down, and what hangs on each.
//!
//! Messages to a peer travel on one link only, for their order: one that the peer opened if there is one, else one that
//! is opened for the purpose. When two endpoints connect to each other at the same moment both links stay, each side
//! sending on its own; so there is no tie to break. What a link has taken lives and dies with that link.

use std::collections::VecDeque;

use tracing::debug;

use super::Engine;
use crate::address::Address;
use crate::completion::Sink;
use crate::errno::Errno;
use crate::error::OperationError;
use crate::operation::{ReceiveId, SendId, UnexpectedId};
use crate::peer_id::PeerId;
use crate::transport::{Close, LinkError, LinkId, Transport};
use crate::wire::Message;

/// What the engine keeps of one link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) is_up: bool,
    /// The moment when the engine got to know the link, by the count of such moments.
    begun_at: u64,
    /// The message that the link has taken in part.
    pub(super) writing: Option<Writing>,
    /// How many messages were begun on this link.
    pub(super) sent_messages: u64,
    /// Sends whose level needs the peer's acknowledgement, with the count that includes them.
    pub(super) awaiting_ack: VecDeque<(u64, SendId)>,
    /// The largest count that the peer has acknowledged.
    pub(super) acked_messages: u64,
    /// The message that has arrived in part.
    pub(super) incoming: Option<Incoming>,
    /// How many messages have arrived in whole.
    pub(super) received_messages: u64,
    /// Whether the link is on the engine's list of links that owe an acknowledgement.
    pub(super) owes_ack: bool,
}

#[derive(Debug)]
pub(super) struct Writing {
    pub(super) send: SendId,
    pub(super) taken_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) message: Message,
    pub(super) arrived_bytes: u64,
    pub(super) place: Place,
}

/// Where the bytes of an arriving message go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Posted(ReceiveId),
    Unexpected(UnexpectedId),
}

/// All links, by the numbers that the transport gives them, which are small.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_id: Vec<Option<Link>>,
    /// How many links there have been: what serves as time here.
    count: u64,
}

impl Links {
    pub(super) fn of(&mut self, id: LinkId) -> Option<&mut Link> {
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        let present = self.by_id.iter().enumerate().filter(|(_, link)| link.is_some());
        present.map(|(id, _)| LinkId(id as u32)).collect()
    }

    pub(super) fn insert(&mut self, id: LinkId, peer: PeerId) -> &mut Link {
        let place = id.0 as usize;
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        self.count += 1;
        self.by_id[place].insert(Link {
            peer,
            is_up: false,
            begun_at: self.count,
            writing: None,
            sent_messages: 0,
            awaiting_ack: VecDeque::new(),
            acked_messages: 0,
            incoming: None,
            received_messages: 0,
            owes_ack: false,
        })
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        self.by_id.get_mut(id.0 as usize)?.take()
    }
}

impl Engine {
    /// The link that messages to `peer` travel on; one is opened if there is none.
    pub(super) fn transmit_link(&mut self, peer: PeerId, transport: &mut impl Transport) -> LinkId {
        if let Some(link) = self.peers.of(peer).transmit {
            return link;
        }
        let existing = self.peers.of(peer).links.first().copied();
        let link = existing.unwrap_or_else(|| {
            let link = transport.connect(self.peers.address(peer));
            self.links.insert(link, peer);
            self.peers.of_mut(peer).links.push(link);
            link
        });
        self.peers.of_mut(peer).transmit = Some(link);
        link
    }

    pub(super) fn link_up(&mut self, id: LinkId, address: Address, instance: u64, sink: &mut impl Sink) {
        let peer = match self.links.of(id) {
            Some(link) => link.peer,
            None => {
                let peer = self.peers.intern(address);
                self.links.insert(id, peer);
                self.peers.of_mut(peer).links.push(id);
                peer
            }
        };
        let now = self.links.count;
        let Some(link) = self.links.of(id) else { return };
        link.is_up = true;
        match self.peers.of(peer).instance {
            Some((known, since)) if known != instance && link.begun_at < since => {
                // This link was begun before the present instance was met, so it leads to the one before that.
                self.link_down(id, &LinkError::System(Errno::ECONNRESET), sink);
                self.condemned.push(id);
                return;
            }
            Some((known, _)) if known != instance => {
                self.end_links_to_former_instance(peer, id, sink);
                self.peers.of_mut(peer).instance = Some((instance, now));
            }
            Some(_) => {}
            None => self.peers.of_mut(peer).instance = Some((instance, now)),
        }
        // A link that is still being made may take long, or never be made; this one is there.
        let untouched = |link: &mut Link| !link.is_up && link.sent_messages == 0;
        let current = self.peers.of(peer).transmit;
        if current.and_then(|current| self.links.of(current)).is_none_or(untouched) {
            self.peers.of_mut(peer).transmit = Some(id);
        }
    }

    /// Another endpoint answers at the peer's address: the one that the older links lead to is gone, even if its
    /// connections have not noticed.
    fn end_links_to_former_instance(&mut self, peer: PeerId, newest: LinkId, sink: &mut impl Sink) {
        debug!(address = %self.peers.address(peer), "the peer was replaced by a new instance");
        for id in self.peers.of(peer).links.clone() {
            let is_former = id != newest && self.links.of(id).is_some_and(|link| link.is_up);
            if is_former {
                self.link_down(id, &LinkError::System(Errno::ECONNRESET), sink);
                self.condemned.push(id);
            }
        }
    }

    /// A link has ended by itself. If that was not in order, a second link to the peer ends with it: what the first one
    /// still carried is lost, and later messages must not arrive as if it had not been.
    pub(super) fn link_lost(&mut self, id: LinkId, error: &LinkError, sink: &mut impl Sink) {
        let peer = self.links.of(id).filter(|link| link.is_up).map(|link| link.peer);
        self.link_down(id, error, sink);
        if let Some(peer) = peer.filter(|_| *error != LinkError::Closed) {
            for other in self.peers.of(peer).links.clone() {
                if self.links.of(other).is_some_and(|link| link.is_up) {
                    self.link_down(other, error, sink);
                    self.condemned.push(other);
                }
            }
        }
    }

    /// Ends everything that hangs on a link.
    pub(super) fn link_down(&mut self, id: LinkId, error: &LinkError, sink: &mut impl Sink) {
        let Some(link) = self.links.remove(id) else { return };
        let error = OperationError::Link(error.clone());
        let peer = self.peers.of_mut(link.peer);
        peer.links.retain(|other| *other != id);
        if peer.links.is_empty() {
            peer.instance = None;
        }
        let mut ended: Vec<SendId> = link.awaiting_ack.into_iter().map(|(_, send)| send).collect();
        ended.extend(link.writing.map(|writing| writing.send));
        if peer.transmit == Some(id) {
            peer.transmit = None;
            ended.extend(peer.queue.drain(..));
        }
        for send in ended {
            if let Some(send) = self.sends.remove(send) {
                self.reports.send_failed(send, error.clone(), &self.peers, sink);
            }
        }
        if let Some(incoming) = link.incoming {
            self.abandon_incoming(link.peer, &incoming, &error, sink);
        }
        if link.owes_ack {
            self.owing.retain(|other| *other != id);
        }
    }

    /// A receive that was being filled fails; the beginning of a message that nobody asked for vanishes.
    fn abandon_incoming(
        &mut self,
        source: PeerId,
        incoming: &Incoming,
        error: &OperationError,
        sink: &mut impl Sink,
    ) {
        match incoming.place {
            Place::Posted(id) => {
                if let Some(receive) = self.receives.remove(id) {
                    let arrived = usize::try_from(incoming.arrived_bytes).unwrap_or(usize::MAX);
                    let placed = arrived.min(receive.destination.len_bytes());
                    let failure = receive.failure(Some(source), placed, error.clone());
                    self.reports.failed(failure, &self.peers, sink);
                }
            }
            Place::Unexpected(id) => {
                let matching =
                    if incoming.message.tag.is_some() { &mut self.tagged } else { &mut self.untagged };
                matching.remove_unexpected(id);
                self.unexpected.remove(id);
            }
        }
    }

    /// Ends a link whose peer broke the protocol. The transport is told at the next
    /// [`transmit`](Engine::transmit); until then what it still reports of the link is ignored.
    pub(super) fn condemn(&mut self, id: LinkId, reason: &'static str, sink: &mut impl Sink) {
        debug!(?id, reason, "ending a link");
        self.link_down(id, &LinkError::Protocol(reason), sink);
        self.condemned.push(id);
    }

    pub(super) fn close_condemned(&mut self, transport: &mut impl Transport) {
        for link in self.condemned.drain(..) {
            transport.close(link, Close::Abort);
        }
    }
}
