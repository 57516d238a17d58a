//! The connection of an endpoint: requests for it, its acceptance, and its end.
//!
//! ```text
//!  connect, accept, leave,         +-----------------------------------+  report, establish, end_receives
//!  listen, reject, settle          | the stage of the connection, or   | --------------------------------->
//!  ------------------------------> | requests of a passive endpoint    |  owe, dismiss, await_timeout
//!  link_up, link_ended, frame ...  | links that make and end           | --------------------------------->
//!  ------------------------------> | connections                       |  Err(ProtocolViolation)
//!                                  +-----------------------------------+
//! ```
//!
//! Endpoints with connections take messages from one peer, or from none. So their links begin here,
//! apart from links that carry messages. Only the link that becomes the connection is moved there,
//! when both sides have agreed. A message on any other link finds no peer, so it ends up here and
//! ends that link. So the code of messages needs no code for connections.
//!
//! Like the [receiver](crate::receiver) it gets events, answers with small [`ConnectionEffects`],
//! and knows a link by its number alone.

mod connected;
mod effects;
mod handshakes;
mod passive;
#[cfg(test)]
mod tests;

use self::connected::Connected;
pub(crate) use self::effects::ConnectionEffects;
use self::handshakes::Handshakes;
use self::passive::Passive;
use crate::address::Address;
use crate::connection::{ConnectionReport, EndpointRole};
use crate::error::{Argument, Error, Misuse};
use crate::limits::{ASKING_MAX_LINKS, CONNECTION_DATA_MAX_BYTES};
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{LinkError, LinkId, Sent};
use crate::wire::{Handshake, HandshakeStep, Header};

/// What an endpoint has to do with connections.
#[derive(Debug)]
pub(crate) struct Connection {
    role: RoleState,
    /// Links that carry no messages.
    handshakes: Handshakes,
}

/// What an endpoint is, and what it keeps for that.
#[derive(Debug)]
enum RoleState {
    Unconnected,
    Passive(Box<Passive>),
    Connected(Box<Connected>),
}

/// A connection that is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Established {
    pub(crate) link: LinkId,
    pub(crate) peer: PeerId,
    /// The number that the requester has drawn.
    pub(crate) number: u64,
}

/// What a step of a connection means for the link that it has arrived on, which carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeResult {
    /// It goes on.
    Nothing,
    /// The peer has shut the connection down: everything that it has sent has arrived, and it reads
    /// nothing more.
    Shutdown,
}

impl Connection {
    /// For an endpoint of this role, which has no links.
    pub(crate) fn new(role: EndpointRole) -> Connection {
        let role = match role {
            EndpointRole::Unconnected => RoleState::Unconnected,
            EndpointRole::Passive => RoleState::Passive(Box::default()),
            EndpointRole::Connected => RoleState::Connected(Box::default()),
        };
        Connection { role, handshakes: Handshakes::default() }
    }

    /// Whether links begin as ones that carry no messages.
    pub(crate) fn is_connection_oriented(&self) -> bool {
        !matches!(self.role, RoleState::Unconnected)
    }

    /// Whether [`transmit`](Self::transmit) has something to do.
    #[inline(always)]
    pub(crate) fn has_output(&self) -> bool {
        self.handshakes.have_output()
    }

    /// Whether something is to be said on a link that is there. What waits for a link to be made is
    /// not waited for.
    pub(crate) fn has_unsent(&self) -> bool {
        self.handshakes.have_unsent()
    }

    /// Says what is to be said on links that make or end connections. `send` gives a link a frame,
    /// or what is left of one where there is no header. Returns the links that have served, and are
    /// to be closed.
    pub(crate) fn transmit(
        &mut self,
        mut send: impl FnMut(LinkId, Option<&Header>, &[u8]) -> Sent,
        effects: &mut impl ConnectionEffects,
    ) -> Vec<LinkId> {
        let (accepted, served) = self.handshakes.transmit(&mut send);
        if let Some(id) = accepted {
            self.accept_sent(id, effects);
        }
        served
    }

    /// A link is up.
    pub(crate) fn link_up(
        &mut self,
        id: LinkId,
        peer: Address,
        instance: u64,
        effects: &mut impl ConnectionEffects,
    ) {
        let is_welcome = match &self.role {
            RoleState::Unconnected => false,
            RoleState::Passive(_) => true,
            RoleState::Connected(connected) => {
                connected.is_asking() && self.handshakes.len() < ASKING_MAX_LINKS
            }
        };
        if !is_welcome && !self.handshakes.contains(id) {
            return effects.abort_handshake_link(id, "no link is expected");
        }
        self.handshakes.set_peer(id, peer, instance);
        self.check_requester_and_accept(id, instance, effects);
    }

    /// A link has ended. Returns whether it belonged here, and carried no messages.
    pub(crate) fn link_ended(
        &mut self,
        id: LinkId,
        error: &LinkError,
        effects: &mut impl ConnectionEffects,
    ) -> bool {
        if !self.handshakes.contains(id) {
            return false;
        }
        let was_up = self.handshakes.peer(id).is_some();
        self.handshakes.remove(id);
        match &mut self.role {
            RoleState::Unconnected => {}
            RoleState::Passive(passive) => {
                if let Some(request) = passive.take_lost_request(id) {
                    effects.report(ConnectionReport::Withdrawn(request));
                }
            }
            RoleState::Connected(_) => self.attempt_link_ended(id, was_up, error, effects),
        }
        true
    }

    /// A link that carries messages has ended. Returns whether it was the connection.
    pub(crate) fn message_link_ended(&mut self, id: LinkId) -> bool {
        match &mut self.role {
            RoleState::Connected(connected) => connected.end_if_link(id),
            RoleState::Unconnected | RoleState::Passive(_) => false,
        }
    }

    /// Forgets all links that carry no messages, and returns them.
    pub(crate) fn take_handshake_links(&mut self) -> Vec<LinkId> {
        self.handshakes.take_ids()
    }

    /// A frame has arrived on a link that carries no messages, or is none at all.
    pub(crate) fn frame_arrived(
        &mut self,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        match header {
            Header::Connection(handshake) => self.handshake_arrived(id, *handshake, payload, effects),
            _ => self.unexpected_frame(id, effects),
        }
    }

    /// As [`frame`](Self::frame), for the beginning of a frame.
    pub(crate) fn frame_begun(&mut self, id: LinkId, header: &Header, effects: &mut impl ConnectionEffects) {
        match header {
            Header::Connection(handshake) => self.handshakes.begin_incoming(id, *handshake),
            _ if self.handshakes.contains(id) => self.unexpected_frame(id, effects),
            _ => {}
        }
    }

    /// As [`frame`](Self::frame), for what follows a beginning.
    pub(crate) fn chunk_arrived(&mut self, id: LinkId, bytes: &[u8], effects: &mut impl ConnectionEffects) {
        if let Some((handshake, data)) = self.handshakes.append_incoming(id, bytes) {
            self.handshake_arrived(id, handshake, &data, effects);
        }
    }

    /// Something other than a step of a connection has arrived.
    fn unexpected_frame(&mut self, id: LinkId, effects: &mut impl ConnectionEffects) {
        match &self.role {
            // The peer sends until it has received the shutdown.
            RoleState::Connected(connected) if connected.is_leaving(id) => {}
            _ => self.abort_link_on_breach(id, "sends over no connection", effects),
        }
    }

    /// A step of a connection has arrived in whole, on a link that carries no messages.
    fn handshake_arrived(
        &mut self,
        id: LinkId,
        handshake: Handshake,
        data: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        if !self.handshakes.contains(id) {
            return;
        }
        match &self.role {
            RoleState::Unconnected => {}
            RoleState::Passive(_) => self.handshake_at_passive(id, handshake, data, effects),
            RoleState::Connected(_) => self.handshake_at_connected(id, handshake, data, effects),
        }
    }

    /// A step of a connection has arrived, or begun to, on a link that carries messages.
    /// `owes_answer` says whether an answer to one before is still to be sent there.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if it is not the turn of that step.
    pub(crate) fn handshake_among_messages(
        &mut self,
        id: LinkId,
        handshake: Handshake,
        owes_answer: bool,
        effects: &mut impl ConnectionEffects,
    ) -> Result<HandshakeResult, ProtocolViolation> {
        let Handshake { step, number, .. } = handshake;
        match (&self.role, step) {
            (RoleState::Unconnected, HandshakeStep::Request) => {
                // A peer that asks many times without listening must not have all the answers kept.
                if owes_answer {
                    return Err(ProtocolViolation("asks for a connection again before it was answered"));
                }
                let handshake = Handshake { step: HandshakeStep::Reject, number, data_bytes: 0 };
                effects.owe(id, Header::Connection(handshake));
                Ok(HandshakeResult::Nothing)
            }
            (RoleState::Connected(_), HandshakeStep::Confirm) => {
                self.confirm_received(id, number, effects).map(|()| HandshakeResult::Nothing)
            }
            (RoleState::Connected(_), HandshakeStep::Shutdown) => Ok(HandshakeResult::Shutdown),
            _ => Err(ProtocolViolation("takes a step of a connection that is not its turn")),
        }
    }

    /// Ends a link whose peer broke the protocol, and with it the attempt that hangs on it.
    fn abort_link_on_breach(
        &mut self,
        id: LinkId,
        reason: &'static str,
        effects: &mut impl ConnectionEffects,
    ) {
        if self.link_ended(id, &LinkError::Protocol(reason), effects) {
            effects.abort_handshake_link(id, reason);
        }
    }
}

/// Checks the length of the application's data for a step.
fn check_data_len(data: &[u8]) -> Result<(), Error> {
    if data.len() > CONNECTION_DATA_MAX_BYTES {
        return Err(Misuse::Invalid(Argument::ConnectionData { len_bytes: data.len() }).into());
    }
    Ok(())
}
