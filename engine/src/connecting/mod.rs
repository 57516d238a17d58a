//! The connection of an endpoint: requests for it, its acceptance, and its end.
//!
//! ```text
//!  connect, accept, leave,         +-----------------------------------+  report, establish, end_receives
//!  listen, reject, settle          | the stage of the connection, or   | --------------------------------->
//!  ------------------------------> | requests of a passive endpoint    |  owe, dismiss, await_timeout
//!  link_up, link_ended, frame ...  | links that make and end           | --------------------------------->
//!  ------------------------------> | connections                       |  Err(Breach)
//!                                  +-----------------------------------+
//! ```
//!
//! Endpoints with connections take messages from one peer, or from none. So their links begin here, apart from those that
//! carry messages, and only the one that becomes the connection is moved there, when both sides know of it. Whatever else
//! arrives on a link finds none that it could be for, which ends up here, and ends the link. So the way of a message knows
//! nothing of connections.
//!
//! Like the [receiver](crate::receiver) it is told what happened, answers with small [`ConnectionEffects`], and knows a link
//! by its number alone.

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
use crate::breach::Breach;
use crate::connection::{ConnectionEvent, EndpointRole};
use crate::error::{Error, Misuse};
use crate::limits::{ASKING_MAX_LINKS, CONNECTION_DATA_MAX_BYTES};
use crate::peer_id::PeerId;
use crate::transport::{LinkError, LinkId, Sent};
use crate::wire::{Handshake, HandshakeStep, Header};

/// What an endpoint has to do with connections.
#[derive(Debug)]
pub(crate) struct Connection {
    standing: Standing,
    /// Links that carry no messages.
    handshakes: Handshakes,
}

/// What an endpoint is, and what it keeps for that.
#[derive(Debug)]
enum Standing {
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
pub(crate) enum Heard {
    /// It goes on.
    Nothing,
    /// The peer has shut the connection down: everything that it has sent has arrived, and it reads nothing more.
    Shutdown,
}

impl Connection {
    /// For an endpoint of this role, which has no links.
    pub(crate) fn new(role: EndpointRole) -> Connection {
        let standing = match role {
            EndpointRole::Unconnected => Standing::Unconnected,
            EndpointRole::Passive => Standing::Passive(Box::default()),
            EndpointRole::Connected => Standing::Connected(Box::default()),
        };
        Connection { standing, handshakes: Handshakes::default() }
    }

    /// Whether links begin as ones that carry no messages.
    pub(crate) fn takes_links(&self) -> bool {
        !matches!(self.standing, Standing::Unconnected)
    }

    /// Whether [`transmit`](Self::transmit) has something to do.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.handshakes.are_pending()
    }

    /// Whether something is to be said on a link that is there. What waits for a link to be made is not waited for.
    pub(crate) fn has_unsent(&self) -> bool {
        self.handshakes.have_unsent()
    }

    /// Says what is to be said on links that make or end connections. `send` gives a link a frame, or what is left of one
    /// where there is no header. Returns the links that have served, and are to be closed.
    pub(crate) fn transmit(
        &mut self,
        mut send: impl FnMut(LinkId, Option<&Header>, &[u8]) -> Sent,
        effects: &mut impl ConnectionEffects,
    ) -> Vec<LinkId> {
        let (accepted, served) = self.handshakes.transmit(&mut send);
        if let Some(id) = accepted {
            self.accepted(id, effects);
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
        let is_welcome = match &self.standing {
            Standing::Unconnected => false,
            Standing::Passive(_) => true,
            Standing::Connected(connected) => {
                connected.is_asking() && self.handshakes.len() < ASKING_MAX_LINKS
            }
        };
        if !is_welcome && !self.handshakes.contains(id) {
            return effects.dismiss(id, "no link is expected");
        }
        self.handshakes.meet(id, peer, instance);
        self.meet_requester(id, instance, effects);
    }

    /// A link has ended. Returns whether it was one that carries no messages.
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
        match &mut self.standing {
            Standing::Unconnected => {}
            Standing::Passive(passive) => {
                if let Some(request) = passive.lost(id) {
                    effects.report(ConnectionEvent::Withdrawn(request));
                }
            }
            Standing::Connected(_) => self.attempt_lost(id, was_up, error, effects),
        }
        true
    }

    /// A link that carries messages has ended. Returns whether it was the connection.
    pub(crate) fn message_link_ended(&mut self, id: LinkId) -> bool {
        match &mut self.standing {
            Standing::Connected(connected) => connected.ends_with(id),
            Standing::Unconnected | Standing::Passive(_) => false,
        }
    }

    /// Forgets all links that carry no messages, and returns them.
    pub(crate) fn take_links(&mut self) -> Vec<LinkId> {
        self.handshakes.take_ids()
    }

    /// A frame has arrived on a link that carries no messages, or is none at all.
    pub(crate) fn frame(
        &mut self,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        match header {
            Header::Connection(handshake) => self.heard(id, *handshake, payload, effects),
            _ => self.stray(id, effects),
        }
    }

    /// As [`frame`](Self::frame), for the beginning of a frame.
    pub(crate) fn begin(&mut self, id: LinkId, header: &Header, effects: &mut impl ConnectionEffects) {
        match header {
            Header::Connection(handshake) => self.handshakes.begin(id, *handshake),
            _ if self.handshakes.contains(id) => self.stray(id, effects),
            _ => {}
        }
    }

    /// As [`frame`](Self::frame), for what follows a beginning.
    pub(crate) fn chunk(&mut self, id: LinkId, bytes: &[u8], effects: &mut impl ConnectionEffects) {
        if let Some((handshake, data)) = self.handshakes.chunk(id, bytes) {
            self.heard(id, handshake, &data, effects);
        }
    }

    /// Something other than a step of a connection has arrived.
    fn stray(&mut self, id: LinkId, effects: &mut impl ConnectionEffects) {
        match &self.standing {
            // The peer sends until it has heard that the connection was ended.
            Standing::Connected(connected) if connected.is_leaving(id) => {}
            _ => self.break_off(id, "sends over no connection", effects),
        }
    }

    /// A step of a connection has arrived in whole, on a link that carries no messages.
    fn heard(&mut self, id: LinkId, handshake: Handshake, data: &[u8], effects: &mut impl ConnectionEffects) {
        if !self.handshakes.contains(id) {
            return;
        }
        match &self.standing {
            Standing::Unconnected => {}
            Standing::Passive(_) => self.heard_as_passive(id, handshake, data, effects),
            Standing::Connected(_) => self.heard_as_connected(id, handshake, data, effects),
        }
    }

    /// A step of a connection has arrived, or begun to, on a link that carries messages. `owes_answer` says whether an answer
    /// to one before is still to be sent there.
    ///
    /// # Errors
    ///
    /// A [`Breach`] if it is not the turn of that step.
    pub(crate) fn heard_among_messages(
        &mut self,
        id: LinkId,
        handshake: Handshake,
        owes_answer: bool,
        effects: &mut impl ConnectionEffects,
    ) -> Result<Heard, Breach> {
        let Handshake { step, number, .. } = handshake;
        match (&self.standing, step) {
            (Standing::Unconnected, HandshakeStep::Request) => {
                // A peer that asks many times without listening must not have all the answers kept.
                if owes_answer {
                    return Err(Breach("asks for a connection again before it was answered"));
                }
                let handshake = Handshake { step: HandshakeStep::Reject, number, data_bytes: 0 };
                effects.owe(id, Header::Connection(handshake));
                Ok(Heard::Nothing)
            }
            (Standing::Connected(_), HandshakeStep::Confirm) => {
                self.confirmed(id, number, effects).map(|()| Heard::Nothing)
            }
            (Standing::Connected(_), HandshakeStep::Shutdown) => Ok(Heard::Shutdown),
            _ => Err(Breach("takes a step of a connection that is not its turn")),
        }
    }

    /// Ends a link whose peer broke the protocol, and with it the attempt that hangs on it.
    fn break_off(&mut self, id: LinkId, reason: &'static str, effects: &mut impl ConnectionEffects) {
        if self.link_ended(id, &LinkError::Protocol(reason), effects) {
            effects.dismiss(id, reason);
        }
    }
}

/// Whether the application may send so much with a step.
fn check_data(data: &[u8]) -> Result<(), Error> {
    if data.len() > CONNECTION_DATA_MAX_BYTES {
        return Err(Misuse::Invalid("more data than CONNECTION_DATA_MAX_BYTES with a connection").into());
    }
    Ok(())
}
