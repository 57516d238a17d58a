//! The connection of an endpoint: requests for it, its acceptance, and its end.
//!
//! ```text
//!  connect, accept, queue_shutdown +-----------------------------------+  report, add_message_link, ...
//!  listen, reject,                 | the stage of the connection, or   | --------------------------------->
//!  end_accepted_request, ...       | requests of a passive endpoint    |  queue_header, ...
//!  ------------------------------> | links that make and end           | --------------------------------->
//!  link_up, frame_arrived, ...     | connections                       |  Err(ProtocolViolation)
//!  ------------------------------> +-----------------------------------+
//! ```
//!
//! A connected endpoint takes messages from one peer, and a passive endpoint takes none. So each link of
//! these endpoints begins here, as a *handshake link*. When both sides have agreed, one handshake link
//! becomes the connection: the engine moves it to the links that carry messages. If a message arrives on a
//! handshake link, the engine passes the message to this module, and this module ends the link.
//!
//! The caller tells the connection what happened. The connection asks for [`ConnectionEffects`], and the
//! caller carries them out. The connection knows a link only by its number.

mod connected;
mod effects;
mod handshake_links;
mod passive;

use self::connected::Connected;
pub(crate) use self::effects::ConnectionEffects;
use self::handshake_links::HandshakeLinks;
use self::passive::Passive;
use crate::address::Address;
use crate::connection::{ConnectionReport, EndpointRole};
use crate::error::{Argument, Error, Misuse, OperationError};
use crate::limits::CONNECTION_DATA_MAX_BYTES;
use crate::link_fault::LinkFault;
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{AddressProof, LinkError, LinkId, Sent};
use crate::wire::{HandshakeHeader, HandshakeStep, Header};

/// The connection state of an endpoint.
#[derive(Debug)]
pub(crate) struct Connection {
    role: RoleState,
    /// The links that make and end connections, and carry no messages.
    handshake_links: HandshakeLinks,
}

/// The role of an endpoint, and the state that the role needs.
#[derive(Debug)]
enum RoleState {
    Unconnected,
    Passive(Box<Passive>),
    Connected(Box<Connected>),
}

/// An established connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Established {
    pub(crate) link: LinkId,
    pub(crate) peer: PeerId,
    /// The random number that the requester has chosen for its request.
    pub(crate) number: u64,
}

/// What a handshake step on a link that carries messages does to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeResult {
    /// The link stays.
    Nothing,
    /// The peer has shut the connection down. Everything that the peer has sent has arrived, and the peer
    /// reads nothing more.
    Shutdown,
    /// A receive of the peer has failed, and the peer is about to end the connection.
    ReceiveFailed,
}

impl Connection {
    /// Creates the state of an endpoint with this role, without links.
    pub(crate) fn new(role: EndpointRole) -> Connection {
        let role = match role {
            EndpointRole::Unconnected => RoleState::Unconnected,
            EndpointRole::Passive => RoleState::Passive(Box::default()),
            EndpointRole::Connected => RoleState::Connected(Box::default()),
        };
        Connection { role, handshake_links: HandshakeLinks::default() }
    }

    /// Whether new links are handshake links at first.
    pub(crate) fn is_connection_oriented(&self) -> bool {
        !matches!(self.role, RoleState::Unconnected)
    }

    /// Whether [`transmit_and_take_links_to_close`](Self::transmit_and_take_links_to_close) has work.
    #[inline(always)]
    pub(crate) fn has_output(&self) -> bool {
        self.handshake_links.have_output()
    }

    /// Whether a handshake link that is up has frames to send. Links that are not up yet do not count.
    pub(crate) fn has_unsent(&self) -> bool {
        self.handshake_links.have_unsent()
    }

    /// Sends the frames that handshake links have queued. `send` puts a frame on a link; without a header,
    /// `send` puts the rest of a frame on the link. Removes the links that are no longer needed, and returns
    /// them for the caller to close.
    pub(crate) fn transmit_and_take_links_to_close(
        &mut self,
        mut send: impl FnMut(LinkId, Option<&Header>, &[u8]) -> Sent,
        effects: &mut impl ConnectionEffects,
    ) -> Vec<LinkId> {
        let (accepted, served) = self.handshake_links.transmit_and_take_links_to_close(&mut send);
        if let Some(id) = accepted {
            self.establish_if_accepting(id, effects);
        }
        served
    }

    /// Records that a link is up. Ends the link if the endpoint expects none.
    pub(crate) fn link_up(
        &mut self,
        id: LinkId,
        peer: Address,
        instance: u64,
        proof: AddressProof,
        effects: &mut impl ConnectionEffects,
    ) {
        let is_welcome = match &self.role {
            RoleState::Unconnected => false,
            RoleState::Passive(_) => true,
            RoleState::Connected(connected) => connected.is_asking(),
        };
        if !is_welcome && !self.handshake_links.contains(id) {
            return effects.abort_handshake_link(id, "no link is expected");
        }
        self.handshake_links.mark_up(id, peer, instance);
        self.handshake_links.set_proof(id, proof);
        self.end_surplus_link(effects);
        self.check_requester_and_accept(id, instance, effects);
    }

    /// Records that the endpoint at the address that a link claims has confirmed the claim.
    pub(crate) fn confirm_link(&mut self, id: LinkId) {
        if self.handshake_links.contains(id) {
            self.handshake_links.set_proof(id, AddressProof::Confirmed);
        }
    }

    /// Records that a link has ended. Returns whether it was a handshake link.
    pub(crate) fn end_if_handshake_link(
        &mut self,
        id: LinkId,
        error: &LinkError,
        effects: &mut impl ConnectionEffects,
    ) -> bool {
        if !self.handshake_links.contains(id) {
            return false;
        }
        let was_up = self.handshake_links.peer(id).is_some();
        self.handshake_links.remove(id);
        match &mut self.role {
            RoleState::Unconnected => {}
            RoleState::Passive(passive) => {
                if let Some(request) = passive.take_lost_request(id) {
                    effects.report(ConnectionReport::Withdrawn(request));
                }
            }
            RoleState::Connected(_) => self.handle_handshake_link_end(id, was_up, error, effects),
        }
        true
    }

    /// Records the end of a link that carried messages. The operations of the link end with `error`. Returns
    /// whether that link was the connection.
    pub(crate) fn end_connection_if_on_link(&mut self, id: LinkId, error: &OperationError) -> bool {
        match &mut self.role {
            RoleState::Connected(connected) => connected.end_if_connection_link(id, error),
            RoleState::Unconnected | RoleState::Passive(_) => false,
        }
    }

    /// Forgets all handshake links, and returns them.
    pub(crate) fn take_handshake_links(&mut self) -> Vec<LinkId> {
        self.handshake_links.take_ids()
    }

    /// Handles a frame on a handshake link, or on a link that the engine does not know.
    pub(crate) fn frame_arrived(
        &mut self,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        match header {
            Header::Connection(handshake) => self.handshake_arrived(id, *handshake, payload, effects),
            _ => self.handle_unexpected_frame(id, effects),
        }
    }

    /// As [`frame_arrived`](Self::frame_arrived), for the beginning of a frame.
    pub(crate) fn frame_begun(&mut self, id: LinkId, header: &Header, effects: &mut impl ConnectionEffects) {
        match header {
            Header::Connection(handshake) => self.handshake_links.begin_incoming(id, *handshake),
            _ if self.handshake_links.contains(id) => self.handle_unexpected_frame(id, effects),
            _ => {}
        }
    }

    /// As [`frame_arrived`](Self::frame_arrived), for the next bytes of a frame.
    pub(crate) fn chunk_arrived(&mut self, id: LinkId, bytes: &[u8], effects: &mut impl ConnectionEffects) {
        match self.handshake_links.append_incoming(id, bytes) {
            Ok(Some((handshake, data))) => self.handshake_arrived(id, handshake, &data, effects),
            Ok(None) => {}
            Err(fault) => self.abort_faulty_handshake_link(id, fault.into(), effects),
        }
    }

    /// Handles a frame that is not a handshake step.
    fn handle_unexpected_frame(&mut self, id: LinkId, effects: &mut impl ConnectionEffects) {
        match &self.role {
            // After this side has shut down, the peer still sends until it has received the
            // shutdown.
            RoleState::Connected(connected) if connected.is_leaving(id) => {}
            _ => self.abort_breached_handshake_link(id, "sends over no connection", effects),
        }
    }

    /// Handles a whole handshake step on a handshake link.
    fn handshake_arrived(
        &mut self,
        id: LinkId,
        handshake: HandshakeHeader,
        data: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        if !self.handshake_links.contains(id) {
            return;
        }
        match &self.role {
            RoleState::Unconnected => {}
            RoleState::Passive(_) => self.handle_step_at_passive(id, handshake, data, effects),
            RoleState::Connected(_) => self.handle_step_at_connected(id, handshake, data, effects),
        }
    }

    /// Handles a handshake step, or the first part of one, on a link that carries messages.
    /// `is_answer_pending` says whether this side still has to send an answer to an earlier step.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the step is out of turn.
    pub(crate) fn handle_step_on_message_link(
        &mut self,
        id: LinkId,
        handshake: HandshakeHeader,
        is_answer_pending: bool,
        effects: &mut impl ConnectionEffects,
    ) -> Result<HandshakeResult, ProtocolViolation> {
        let HandshakeHeader { step, number, .. } = handshake;
        match (&mut self.role, step) {
            (RoleState::Unconnected, HandshakeStep::Request) => {
                // A peer that asks repeatedly but reads no answers must not make this side store more and
                // more answers.
                if is_answer_pending {
                    return Err(ProtocolViolation("asks for a connection again before it was answered"));
                }
                let handshake = HandshakeHeader { step: HandshakeStep::Reject, number, data_bytes: 0 };
                effects.queue_header(id, Header::Connection(handshake));
                Ok(HandshakeResult::Nothing)
            }
            (RoleState::Connected(_), HandshakeStep::Confirm) => {
                self.handle_confirmation(id, number, effects).map(|()| HandshakeResult::Nothing)
            }
            (RoleState::Connected(connected), HandshakeStep::Shutdown) => {
                connected.mark_shut_down_by_peer(id);
                Ok(HandshakeResult::Shutdown)
            }
            (RoleState::Connected(connected), HandshakeStep::Reject) if connected.is_up(id, number) => {
                Ok(HandshakeResult::ReceiveFailed)
            }
            _ => Err(ProtocolViolation("takes a step of a connection that is not its turn")),
        }
    }

    /// Ends a link whose peer has broken the protocol. If an attempt to connect needs the link, the attempt
    /// fails.
    fn abort_breached_handshake_link(
        &mut self,
        id: LinkId,
        reason: &'static str,
        effects: &mut impl ConnectionEffects,
    ) {
        self.abort_faulty_handshake_link(id, ProtocolViolation(reason).into(), effects);
    }

    /// As [`abort_breached_handshake_link`](Self::abort_breached_handshake_link), for any fault.
    fn abort_faulty_handshake_link(
        &mut self,
        id: LinkId,
        fault: LinkFault,
        effects: &mut impl ConnectionEffects,
    ) {
        if self.end_if_handshake_link(id, &fault.link_error(), effects) {
            effects.abort_handshake_link(id, fault.reason());
        }
    }
}

/// Checks the length of the application's data for a handshake step.
fn check_data_len(data: &[u8]) -> Result<(), Error> {
    if data.len() > CONNECTION_DATA_MAX_BYTES {
        return Err(Misuse::Invalid(Argument::ConnectionData { len_bytes: data.len() }).into());
    }
    Ok(())
}
