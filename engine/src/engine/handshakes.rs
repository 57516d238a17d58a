//! Links that make and end connections, and carry nothing else.
//!
//! Endpoints with connections take messages from one peer, or from nobody. So their links begin here, apart from those
//! that carry messages, and only the one that becomes the connection is moved there, when both sides know of it. Whatever
//! else arrives on a link finds none that it could be for, which ends up here, and ends the link. So the way of a message
//! knows nothing of connections.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::mem;

use tracing::debug;

use super::Engine;
use super::connected::Connected;
use super::links::Condemned;
use super::passive::Passive;
use crate::address::Address;
use crate::completion::Sink;
use crate::connection::{ConnectionEvent, EndpointRole};
use crate::error::{Error, Misuse};
use crate::limits::{ASKING_MAX_LINKS, CONNECTION_DATA_MAX_BYTES};
use crate::transport::{Close, LinkError, LinkId, Sent, Transport};
use crate::wire::{Handshake, HandshakeStep, Header};

/// What an endpoint keeps of connections.
#[derive(Debug)]
pub(super) enum Standing {
    Unconnected,
    Passive(Box<Passive>),
    Connected(Box<Connected>),
}

impl From<EndpointRole> for Standing {
    fn from(role: EndpointRole) -> Standing {
        match role {
            EndpointRole::Unconnected => Standing::Unconnected,
            EndpointRole::Passive => Standing::Passive(Box::default()),
            EndpointRole::Connected => Standing::Connected(Box::default()),
        }
    }
}

/// All such links.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    by_id: BTreeMap<LinkId, HandshakeLink>,
    /// Those that have something to say, or are to be closed. Each is listed once.
    pending: Vec<LinkId>,
}

/// One such link.
#[derive(Debug, Default)]
struct HandshakeLink {
    /// Who is at its other end, and which instance, once the link is up.
    peer: Option<(Address, u64)>,
    /// What has arrived in part.
    incoming: Option<(Handshake, Vec<u8>)>,
    outgoing: VecDeque<Outgoing>,
    /// It is closed when all of that was taken.
    is_parting: bool,
}

/// A frame that is to be sent.
#[derive(Debug)]
struct Outgoing {
    /// `None` for what is left of a frame that the link has begun to take.
    header: Option<Header>,
    data: Box<[u8]>,
    /// How much of the data the link has taken, if it has begun to take the frame.
    taken_bytes: Option<usize>,
}

impl Handshakes {
    /// Whether a pass has something to do here.
    #[inline(always)]
    pub(super) fn are_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether something is to be said on a link that is there. What waits for a link to be made is not waited for.
    pub(super) fn have_unsent(&self) -> bool {
        let links = self.pending.iter().filter_map(|id| self.by_id.get(id));
        links.into_iter().any(|link| link.peer.is_some() && !link.outgoing.is_empty())
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.by_id.keys().copied().collect()
    }

    pub(super) fn add(&mut self, id: LinkId) {
        self.by_id.insert(id, HandshakeLink::default());
    }

    pub(super) fn remove(&mut self, id: LinkId) {
        self.by_id.remove(&id);
        self.pending.retain(|other| *other != id);
    }

    /// Who is at the other end of a link, and which instance, if it is up.
    pub(super) fn peer(&self, id: LinkId) -> Option<(Address, u64)> {
        self.by_id.get(&id)?.peer
    }

    /// Whether a link is up that may bring something.
    pub(super) fn have_met_anybody(&self) -> bool {
        self.by_id.values().any(|link| link.peer.is_some() && !link.is_parting)
    }

    /// Whether everything that was to be said on a link was taken.
    pub(super) fn have_said_all(&self, id: LinkId) -> bool {
        self.by_id.get(&id).is_none_or(|link| link.outgoing.is_empty())
    }

    /// A link is up.
    pub(super) fn meet(&mut self, id: LinkId, peer: Address, instance: u64) {
        self.by_id.entry(id).or_default().peer = Some((peer, instance));
    }

    /// Has the peer told, with data that is not too much.
    pub(super) fn say(&mut self, id: LinkId, step: HandshakeStep, number: u64, data: &[u8]) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        let data_bytes = u16::try_from(data.len()).unwrap_or(u16::MAX);
        let handshake = Handshake { step, number, data_bytes };
        let header = Some(Header::Connection(handshake));
        link.outgoing.push_back(Outgoing { header, data: data.into(), taken_bytes: None });
        self.list(id);
    }

    /// Has a link that has carried messages take the rest of a frame, before anything else is said on it.
    pub(super) fn finish(&mut self, id: LinkId, rest: Box<[u8]>) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        link.outgoing.push_back(Outgoing { header: None, data: rest, taken_bytes: Some(0) });
        self.list(id);
    }

    /// Has the peer told what has come of messages, before anything else is said on a link that has carried some.
    pub(super) fn answer(&mut self, id: LinkId, answers: Vec<Header>) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        let outgoing = |header| Outgoing { header: Some(header), data: Box::default(), taken_bytes: None };
        link.outgoing.extend(answers.into_iter().map(outgoing));
        self.list(id);
    }

    /// Has a link closed when all has been said.
    pub(super) fn part(&mut self, id: LinkId) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        link.is_parting = true;
        self.list(id);
    }

    fn list(&mut self, id: LinkId) {
        if !self.pending.contains(&id) {
            self.pending.push(id);
        }
    }
}

impl HandshakeLink {
    /// Says what there is to say. Returns whether that is all, and calls `taken` for each frame that was taken whole.
    fn transmit(
        &mut self,
        id: LinkId,
        transport: &mut impl Transport,
        mut taken: impl FnMut(&Header),
    ) -> bool {
        while let Some(Outgoing { header, data, taken_bytes }) = self.outgoing.front_mut() {
            let sent = match (&header, *taken_bytes) {
                (Some(header), None) => transport.send(id, header, &[IoSlice::new(data)]),
                (_, taken_bytes) => transport.resume(id, &[IoSlice::new(&data[taken_bytes.unwrap_or(0)..])]),
            };
            match sent {
                Sent::Full => return false,
                Sent::Partial(more_bytes) => {
                    *taken_bytes = Some(taken_bytes.unwrap_or(0) + more_bytes);
                    return false;
                }
                Sent::Whole => header.iter().for_each(&mut taken),
            }
            self.outgoing.pop_front();
        }
        true
    }
}

impl Engine {
    /// Whether links begin as ones that carry no messages.
    pub(super) fn has_connections(&self) -> bool {
        !matches!(self.standing, Standing::Unconnected)
    }

    /// Says what is to be said on links that make or end connections, and closes those that have served.
    #[cold]
    pub(super) fn transmit_handshakes(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        let mut accepted = None;
        for id in mem::take(&mut self.handshakes.pending) {
            let Some(link) = self.handshakes.by_id.get_mut(&id) else { continue };
            let is_done = link.transmit(id, transport, |taken| {
                if let Header::Connection(Handshake { step: HandshakeStep::Accept, .. }) = taken {
                    accepted = Some(id);
                }
            });
            if !is_done {
                self.handshakes.pending.push(id);
            } else if link.is_parting {
                self.handshakes.by_id.remove(&id);
                transport.close(id, Close::Drain);
            }
        }
        if let Some(id) = accepted {
            self.accepted(id, sink);
        }
    }

    /// A link of an endpoint with connections is up.
    pub(super) fn handshake_up(&mut self, id: LinkId, peer: Address, instance: u64, sink: &mut impl Sink) {
        let is_welcome = match &self.standing {
            Standing::Unconnected => false,
            Standing::Passive(_) => true,
            Standing::Connected(connected) => {
                connected.is_asking() && self.handshakes.by_id.len() < ASKING_MAX_LINKS
            }
        };
        if !is_welcome && !self.handshakes.by_id.contains_key(&id) {
            return self.dismiss(id, "nobody is expected");
        }
        self.handshakes.meet(id, peer, instance);
        self.meet_requester(id, instance, sink);
    }

    /// A link has ended. Returns whether it was one of these.
    pub(super) fn handshake_down(&mut self, id: LinkId, error: &LinkError, sink: &mut impl Sink) -> bool {
        let Some(link) = self.handshakes.by_id.get(&id) else { return false };
        let was_up = link.peer.is_some();
        self.handshakes.remove(id);
        match &mut self.standing {
            Standing::Unconnected => {}
            Standing::Passive(passive) => {
                if let Some(request) = passive.lost(id) {
                    sink.connection(ConnectionEvent::Withdrawn(request));
                }
            }
            Standing::Connected(_) => self.attempt_lost(id, was_up, error, sink),
        }
        true
    }

    /// A frame has arrived on a link that carries no messages, or is none at all.
    #[cold]
    pub(super) fn stray_frame(&mut self, id: LinkId, header: &Header, payload: &[u8], sink: &mut impl Sink) {
        match header {
            Header::Connection(handshake) => self.heard(id, *handshake, payload, sink),
            _ => self.stray(id, sink),
        }
    }

    /// As [`stray_frame`](Self::stray_frame), for the beginning of a frame.
    #[cold]
    pub(super) fn stray_begin(&mut self, id: LinkId, header: &Header, sink: &mut impl Sink) {
        let Some(link) = self.handshakes.by_id.get_mut(&id) else { return };
        match header {
            Header::Connection(handshake) => link.incoming = Some((*handshake, Vec::new())),
            _ => self.stray(id, sink),
        }
    }

    /// As [`stray_frame`](Self::stray_frame), for what follows a beginning.
    #[cold]
    pub(super) fn stray_chunk(&mut self, id: LinkId, bytes: &[u8], sink: &mut impl Sink) {
        let Some(link) = self.handshakes.by_id.get_mut(&id) else { return };
        let Some((handshake, data)) = &mut link.incoming else { return };
        let missing_bytes = usize::from(handshake.data_bytes).saturating_sub(data.len());
        data.extend_from_slice(&bytes[..bytes.len().min(missing_bytes)]);
        if data.len() == usize::from(handshake.data_bytes)
            && let Some((handshake, data)) = link.incoming.take()
        {
            self.heard(id, handshake, &data, sink);
        }
    }

    /// Something other than a step of a connection has arrived.
    fn stray(&mut self, id: LinkId, sink: &mut impl Sink) {
        match &self.standing {
            // The peer sends until it has heard that the connection was ended.
            Standing::Connected(connected) if connected.is_leaving(id) => {}
            _ => self.break_off(id, "sends over no connection", sink),
        }
    }

    /// A step of a connection has arrived in whole, on a link that carries no messages.
    fn heard(&mut self, id: LinkId, handshake: Handshake, data: &[u8], sink: &mut impl Sink) {
        if !self.handshakes.by_id.contains_key(&id) {
            return;
        }
        match &self.standing {
            Standing::Unconnected => {}
            Standing::Passive(_) => self.heard_as_passive(id, handshake, data, sink),
            Standing::Connected(_) => self.heard_as_connected(id, handshake, data, sink),
        }
    }

    /// A step of a connection has arrived, or begun to, on a link that carries messages.
    #[cold]
    pub(super) fn heard_among_messages(&mut self, id: LinkId, handshake: Handshake, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        let Handshake { step, number, .. } = handshake;
        match (&self.standing, step) {
            (Standing::Unconnected, HandshakeStep::Request) => {
                // Who asks many times without listening must not have all the answers kept.
                if link.tx.debts().has_header(|header| matches!(header, Header::Connection(_))) {
                    return self.condemn(id, "asks for a connection again before it was answered", sink);
                }
                let handshake = Handshake { step: HandshakeStep::Reject, number, data_bytes: 0 };
                self.links.owe(id, Header::Connection(handshake));
            }
            (Standing::Connected(_), HandshakeStep::Confirm) => self.confirmed(id, number, sink),
            (Standing::Connected(_), HandshakeStep::Shutdown) => self.ended_by_peer(id, sink),
            _ => self.condemn(id, "takes a step of a connection that is not its turn", sink),
        }
    }

    /// Ends a link whose peer broke the protocol, and with it the attempt that hangs on it.
    pub(super) fn break_off(&mut self, id: LinkId, reason: &'static str, sink: &mut impl Sink) {
        if self.handshake_down(id, &LinkError::Protocol(reason), sink) {
            self.dismiss(id, reason);
        }
    }

    /// Ends a link that nothing hangs on.
    fn dismiss(&mut self, id: LinkId, reason: &'static str) {
        debug!(?id, reason, "ending a link");
        self.condemned.push(Condemned::idle(id, Close::Abort));
    }
}

/// Whether the application may send so much with a step.
pub(super) fn check_data(data: &[u8]) -> Result<(), Error> {
    if data.len() > CONNECTION_DATA_MAX_BYTES {
        return Err(Misuse::Invalid("more data than CONNECTION_DATA_MAX_BYTES with a connection").into());
    }
    Ok(())
}
