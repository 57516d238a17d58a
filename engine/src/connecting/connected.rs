//! The connection of an endpoint: how it is made, and how it ends.
//!
//! ```text
//!  Fresh --connect--> Asked --(accept arrives)---+
//!    |                                            +--> Up --(the peer ends it, or is lost)--> Lost --> Over
//!    +--accept--> Accepting --(accept is sent)----+    |                                       ^
//!                                                      +--shutdown--> Leaving --(the peer)-----+
//!  An attempt that fails is Over.
//! ```
//!
//! The requester asks on a link to the passive endpoint, and is answered by the accepting endpoint
//! on another one, which then is the connection. So the accepting endpoint needs no more of the
//! requester than its address, its instance, and the number that only the two of them and the
//! passive endpoint know. The requester waits as long as the first of the two links may bring an
//! answer, and a while longer for the other: the passive endpoint keeps the first until the
//! requester has confirmed that it has one, or the accepting endpoint has given up.
//!
//! The acceptor is connected when it has sent that it is, which it does when it has made sure that
//! the requester is there. So it knows before the requester can have done anything in consequence,
//! such as to ask for another connection.
//!
//! A side that shuts down sends a shutdown behind everything that it sent before, and ends its
//! operations. The peer ends the link when it has read that, which confirms the shutdown. A frame
//! that the link has taken in part is completed from a copy. Only the rest of a long payload, and
//! what the peer may still fetch, is not copied: then the link ends there, and unsent answers to
//! the peer's operations are lost.

use std::mem;

use tracing::debug;

use super::{Connection, ConnectionEffects, Established, RoleState, check_data_len};
use crate::address::Address;
use crate::connection::{ConnectionError, ConnectionReport, Requester};
use crate::errno::Errno;
use crate::error::{Error, Misuse, ObjectState, OperationError};
use crate::limits::UNANSWERED_MAX_MS;
use crate::moment::Moment;
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::timeout::Timeout;
use crate::transport::{LinkError, LinkId};
use crate::wire::{Handshake, HandshakeStep, Header};

/// What an endpoint keeps of its connection.
#[derive(Debug, Default)]
pub(super) struct Connected {
    stage: ConnectStage,
}

#[derive(Debug, Default)]
enum ConnectStage {
    /// No endpoint was asked, or answered.
    #[default]
    Fresh,
    /// The passive endpoint at the end of this link was asked.
    Asked {
        /// Until it ends.
        link: Option<LinkId>,
        number: u64,
        /// Why it does not answer any more, if the link has ended. Another endpoint may still, for a while.
        lost: Option<ConnectionError>,
        /// How long that other endpoint may take.
        patience: Timeout,
    },
    /// A request is to be accepted over this link.
    Accepting { link: LinkId, requester: Requester, data: Box<[u8]> },
    /// Connected.
    Up {
        link: LinkId,
        peer: PeerId,
        number: u64,
        /// Whether the requester is known to know.
        is_confirmed: bool,
    },
    /// The connection has ended, and its shutdown event was not reported yet.
    Lost,
    /// This side has shut down, and the peer is to end the link.
    Leaving { link: LinkId },
    /// There will be no connection, or no more.
    Over,
}

impl Connected {
    /// Whether another endpoint may be about to accept, over a link of its own.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, ConnectStage::Asked { .. })
    }

    /// Whether this link is left to the peer to be ended.
    pub(super) fn is_leaving(&self, id: LinkId) -> bool {
        matches!(self.stage, ConnectStage::Leaving { link } if link == id)
    }

    /// Whether the connection has just ended with this link.
    pub(super) fn end_if_link(&mut self, id: LinkId) -> bool {
        let is_it = matches!(self.stage, ConnectStage::Up { link, .. } if link == id);
        if is_it {
            self.stage = ConnectStage::Lost;
        }
        is_it
    }
}

impl Connection {
    /// Asks the passive endpoint at the end of the link that `open` opens. `number` is drawn at random.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if it has asked or accepted before, or is for no connection;
    /// [`Misuse::Invalid`] for too much data.
    pub(crate) fn connect(
        &mut self,
        number: u64,
        data: &[u8],
        open: impl FnOnce() -> LinkId,
    ) -> Result<(), Error> {
        check_data_len(data)?;
        let stage = self.unused_stage()?;
        let link = open();
        *stage = ConnectStage::Asked { link: Some(link), number, lost: None, patience: Timeout::default() };
        self.handshakes.add(link);
        self.handshakes.send_step(link, HandshakeStep::Request, number, data);
        Ok(())
    }

    /// Accepts a request that a passive endpoint has received, on the link that `open` opens.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub(crate) fn accept(
        &mut self,
        requester: Requester,
        data: &[u8],
        open: impl FnOnce() -> LinkId,
    ) -> Result<(), Error> {
        check_data_len(data)?;
        let stage = self.unused_stage()?;
        let link = open();
        *stage = ConnectStage::Accepting { link, requester, data: data.into() };
        self.handshakes.add(link);
        Ok(())
    }

    /// The connection that this side may shut down; `None` if it has ended already.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there was none yet.
    pub(crate) fn connection_to_shut_down(&self) -> Result<Option<Established>, Error> {
        let RoleState::Connected(connected) = &self.role else {
            return Err(Misuse::NotConnected.into());
        };
        match connected.stage {
            ConnectStage::Up { link, peer, number, .. } => Ok(Some(Established { link, peer, number })),
            ConnectStage::Lost | ConnectStage::Leaving { .. } | ConnectStage::Over => Ok(None),
            _ => Err(Misuse::NotConnected.into()),
        }
    }

    /// This side has shut down a connection that had carried messages, to an instance at an
    /// address, and ended its operations. The shutdown is sent behind the `rest` of a frame which
    /// the link had taken in part, and the answers to the peer's operations.
    pub(crate) fn send_shutdown(
        &mut self,
        of: Established,
        peer: (Address, u64),
        rest: Option<Box<[u8]>>,
        answers: Vec<Header>,
    ) {
        let Established { link, number, .. } = of;
        // The link stays up here, so that closing the endpoint waits until the link has taken what
        // follows.
        self.handshakes.set_peer(link, peer.0, peer.1);
        if let Some(rest) = rest {
            self.handshakes.send_rest_of_frame(link, rest);
        }
        self.handshakes.send_answers(link, answers);
        self.handshakes.send_step(link, HandshakeStep::Shutdown, number, &[]);
        self.set_stage(ConnectStage::Leaving { link });
    }

    /// The peer that everything is sent to, for an endpoint that is for connections; `None` for others.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there is no connection yet, or no longer.
    pub(crate) fn peer(&self) -> Option<Result<PeerId, Error>> {
        match &self.role {
            RoleState::Unconnected => None,
            RoleState::Connected(connected) if let ConnectStage::Up { peer, .. } = connected.stage => {
                Some(Ok(peer))
            }
            _ => Some(Err(Misuse::NotConnected.into())),
        }
    }

    /// Whether an attempt to connect fails unless another endpoint answers in time.
    pub(crate) fn awaits_timeout(&self) -> bool {
        let RoleState::Connected(connected) = &self.role else { return false };
        matches!(connected.stage, ConnectStage::Asked { lost: Some(_), .. })
    }

    /// Until when another endpoint may answer an attempt to connect.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match &self.role {
            RoleState::Connected(connected)
                if let ConnectStage::Asked { lost: Some(_), patience, .. } = &connected.stage =>
            {
                patience.deadline()
            }
            _ => None,
        }
    }

    fn unused_stage(&mut self) -> Result<&mut ConnectStage, Error> {
        match &mut self.role {
            RoleState::Connected(connected) if matches!(connected.stage, ConnectStage::Fresh) => {
                Ok(&mut connected.stage)
            }
            _ => Err(Misuse::State(ObjectState::ConnectionBegun).into()),
        }
    }

    fn set_stage(&mut self, stage: ConnectStage) {
        if let RoleState::Connected(connected) = &mut self.role {
            connected.stage = stage;
        }
    }

    /// A link is up. If it leads to the requester's address, the instance must be the requester's
    /// too.
    pub(super) fn check_requester_and_accept(
        &mut self,
        id: LinkId,
        instance: u64,
        effects: &mut impl ConnectionEffects,
    ) {
        let RoleState::Connected(connected) = &mut self.role else { return };
        let ConnectStage::Accepting { link, requester, data } = &mut connected.stage else { return };
        if *link != id {
            return;
        }
        if requester.instance != instance {
            return self.abort_link_on_breach(id, "not the endpoint that has asked", effects);
        }
        let (number, data) = (requester.number, mem::take(data));
        self.handshakes.send_step(id, HandshakeStep::Accept, number, &data);
    }

    /// The requester will hear on this link that its request is accepted.
    pub(super) fn accept_sent(&mut self, id: LinkId, effects: &mut impl ConnectionEffects) {
        if let RoleState::Connected(connected) = &self.role
            && let ConnectStage::Accepting { link, requester, .. } = connected.stage
            && link == id
        {
            self.establish(id, requester.number, false, effects);
            effects.report(ConnectionReport::Connected { data: Box::default() });
        }
    }

    /// A step of a connection has arrived on a link that carries no messages.
    pub(super) fn handshake_at_connected(
        &mut self,
        id: LinkId,
        handshake: Handshake,
        data: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        let RoleState::Connected(connected) = &self.role else { return };
        let Handshake { step, number, .. } = handshake;
        match (&connected.stage, step) {
            (ConnectStage::Asked { link, number: asked, .. }, HandshakeStep::Reject)
                if *link == Some(id) && *asked == number =>
            {
                self.handshakes.close_when_sent(id);
                self.fail_attempt(ConnectionError::Rejected { data: data.into() }, effects);
            }
            (ConnectStage::Asked { link, number: asked, .. }, HandshakeStep::Accept)
                if *link != Some(id) && *asked == number =>
            {
                self.establish(id, number, true, effects);
                self.handshakes.close_all_when_sent();
                let confirm = Handshake { step: HandshakeStep::Confirm, number, data_bytes: 0 };
                effects.owe(id, Header::Connection(confirm));
                effects.report(ConnectionReport::Connected { data: data.into() });
            }
            (ConnectStage::Leaving { link }, _) if *link == id => {
                if step == HandshakeStep::Shutdown {
                    self.handshakes.close_when_sent(id);
                    self.set_stage(ConnectStage::Lost);
                    self.report_lost_connection(effects);
                }
            }
            _ => self.abort_link_on_breach(id, "takes a step of a connection that is not its turn", effects),
        }
    }

    /// The requester says that it knows of the connection, which it does once.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if it was not to say so.
    pub(super) fn confirm_received(
        &mut self,
        id: LinkId,
        number: u64,
        effects: &mut impl ConnectionEffects,
    ) -> Result<(), ProtocolViolation> {
        if let RoleState::Connected(connected) = &mut self.role
            && let ConnectStage::Up { link, number: of, is_confirmed, .. } = &mut connected.stage
            && (*link, *of, *is_confirmed) == (id, number, false)
        {
            *is_confirmed = true;
            effects.report(ConnectionReport::Confirmed);
            return Ok(());
        }
        Err(ProtocolViolation("confirms what it was not asked"))
    }

    /// A link is the connection from now on, and carries messages.
    fn establish(
        &mut self,
        link: LinkId,
        number: u64,
        is_confirmed: bool,
        effects: &mut impl ConnectionEffects,
    ) {
        let Some((address, instance)) = self.handshakes.peer(link) else { return };
        self.handshakes.remove(link);
        let peer = effects.establish(link, address, instance);
        self.set_stage(ConnectStage::Up { link, peer, number, is_confirmed });
    }

    /// A link that was not the connection has ended.
    pub(super) fn attempt_link_ended(
        &mut self,
        id: LinkId,
        was_up: bool,
        error: &LinkError,
        effects: &mut impl ConnectionEffects,
    ) {
        let may_be_answered = self.handshakes.has_live_peer();
        let RoleState::Connected(connected) = &mut self.role else { return };
        match &mut connected.stage {
            ConnectStage::Asked { link, lost, .. } => {
                if link.take_if(|link| *link == id).is_some() {
                    *lost = Some(unanswered_error(was_up, error));
                }
                if let Some(error) = lost.take_if(|_| !may_be_answered) {
                    self.fail_attempt(error, effects);
                } else if lost.is_some() {
                    effects.arm_timeout();
                }
            }
            ConnectStage::Accepting { link, .. } if *link == id => {
                debug!(%error, "the requester is not reached");
                self.fail_attempt(unreached_error(error), effects);
            }
            ConnectStage::Leaving { link } if *link == id => {
                connected.stage = ConnectStage::Lost;
                self.report_lost_connection(effects);
            }
            _ => {}
        }
    }

    /// Advances the time to `now`. Ends the attempt if no acceptor has answered for too long.
    pub(crate) fn advance_time(&mut self, now: Moment, effects: &mut impl ConnectionEffects) {
        let RoleState::Connected(connected) = &mut self.role else { return };
        let ConnectStage::Asked { lost, patience, .. } = &mut connected.stage else { return };
        if let Some(error) = lost.take_if(|_| patience.check_expired(now, UNANSWERED_MAX_MS)) {
            self.fail_attempt(error, effects);
        }
    }

    /// There will be no connection.
    fn fail_attempt(&mut self, error: ConnectionError, effects: &mut impl ConnectionEffects) {
        self.set_stage(ConnectStage::Over);
        self.handshakes.close_all_when_sent();
        let reason = OperationError::Link(LinkError::System(error.errno()));
        effects.end_receives(&reason);
        effects.report(ConnectionReport::Failed(error));
    }

    /// Reports the end of a connection that was lost, once none of its operations is left.
    pub(crate) fn report_lost_connection(&mut self, effects: &mut impl ConnectionEffects) {
        if let RoleState::Connected(connected) = &mut self.role
            && matches!(connected.stage, ConnectStage::Lost)
        {
            connected.stage = ConnectStage::Over;
            effects.report(ConnectionReport::Shutdown);
        }
    }
}

/// Why a passive endpoint did not answer, from the error that ended its link.
fn unanswered_error(was_up: bool, error: &LinkError) -> ConnectionError {
    match error {
        // A passive endpoint that was closed sends its requesters nothing.
        LinkError::Closed => ConnectionError::NotListening,
        LinkError::System(Errno::ECONNRESET) if !was_up => ConnectionError::NotListening,
        error => ConnectionError::Link(error.clone()),
    }
}

/// Why the requester is not reached of a request that is to be accepted.
fn unreached_error(error: &LinkError) -> ConnectionError {
    match error {
        // No endpoint is there, or another.
        LinkError::Closed
        | LinkError::Protocol(_)
        | LinkError::System(Errno::ECONNREFUSED | Errno::ECONNRESET) => ConnectionError::RequesterGone,
        error => ConnectionError::Link(error.clone()),
    }
}
