//! The connection of an endpoint: how it is made, and how it ends.
//!
//! ```text
//!  Fresh --connect--> Asked --(accept arrives)---+
//!    |                                            +--> Up --(the peer ends it, or is lost)--> Ended --> Over
//!    +--accept--> Accepting --(accept is sent)----+    |                                        ^
//!                                                      +--shutdown--> Leaving --(the peer)------+
//!  An attempt that fails is Over.
//! ```
//!
//! The requester asks on a link to the passive endpoint. The accepting endpoint (the acceptor) answers on a
//! second link, and the second link becomes the connection. To accept, an endpoint needs the requester's
//! address and instance, and the random number of the request. No other endpoint knows the number. The
//! passive endpoint keeps the first link until the requester has confirmed the connection, or the acceptor
//! has given up. If the first link ends early but the second link is up, the requester waits for an answer
//! on the second link, for a limited time.
//!
//! The acceptor first checks that the requester still exists. The acceptor is connected once the second link
//! has taken the `Accept`. So the acceptor reports the connection before the requester can use the
//! connection.
//!
//! A side that shuts down ends its operations, and sends a shutdown after all its earlier frames. When the
//! peer has read the shutdown, the peer ends the link. That confirms the shutdown. If the link has taken a
//! frame in part, this side sends the rest from a copy. There is no copy of a long payload, nor of payload
//! that the peer may still fetch. In these cases this side closes the link at once, and what the link does
//! not take at once is lost. A peer that did not read a shutdown takes the end of the link for a loss
//! ([`ConnectionEnd`]).

use std::mem;

use tracing::debug;

use super::{Connection, ConnectionEffects, Established, RoleState, check_data_len};
use crate::address::Address;
use crate::connection::{ConnectionEnd, ConnectionError, ConnectionReport, Requester};
use crate::errno::Errno;
use crate::error::{Error, Misuse, ObjectState, OperationError};
use crate::limits::{REQUESTER_MAX_LINKS, REQUESTER_WAIT_MAX_MS};
use crate::moment::Moment;
use crate::mutated;
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::timeout::Timeout;
use crate::transport::{AddressProof, LinkError, LinkId};
use crate::wire::{HandshakeHeader, HandshakeStep, Header};

/// The connection of an endpoint with the role
/// [`EndpointRole::Connected`](crate::connection::EndpointRole::Connected).
#[derive(Debug, Default)]
pub(super) struct Connected {
    stage: ConnectStage,
}

#[derive(Debug, Default)]
enum ConnectStage {
    /// The endpoint has neither asked nor accepted.
    #[default]
    Fresh,
    /// The endpoint has asked a passive endpoint for a connection.
    Asked {
        /// The link to the passive endpoint; `None` once it has ended.
        link: Option<LinkId>,
        number: u64,
        /// Why the link to the passive endpoint has ended, if the link has ended. The acceptor may still
        /// answer.
        lost: Option<ConnectionError>,
        /// The time limit for the acceptor's answer. The time runs from the end of the link to the passive
        /// endpoint.
        patience: Timeout,
        /// The application's time limit for the answer, if it has set one.
        limit: Option<Timeout>,
    },
    /// The endpoint accepts a request over this link. Either the link is not up yet, or the link has not
    /// taken the `Accept`.
    Accepting { link: LinkId, requester: Requester, data: Box<[u8]> },
    /// The endpoint is connected.
    Up {
        link: LinkId,
        peer: PeerId,
        number: u64,
        /// Whether this side knows that the requester is connected.
        is_confirmed: bool,
        /// Whether the peer has shut the connection down. The link is about to end.
        is_shut_down_by_peer: bool,
    },
    /// The connection has ended, but its shutdown event was not reported yet.
    Ended(ConnectionEnd),
    /// This side has shut down, and waits for the peer to end the link.
    Leaving { link: LinkId },
    /// The attempt to connect has failed, or the connection has ended.
    Over,
}

impl Connected {
    /// Whether this endpoint has asked for a connection, and an acceptor may still answer.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, ConnectStage::Asked { .. })
    }

    /// Whether this side has shut down on this link, and waits for the peer to end the link.
    pub(super) fn is_leaving(&self, id: LinkId) -> bool {
        matches!(self.stage, ConnectStage::Leaving { link } if link == id)
    }

    /// If this link is the connection, records that the connection has ended, and returns `true`. `error` is
    /// the reason for the operations of the connection.
    pub(super) fn end_if_connection_link(&mut self, id: LinkId, error: &OperationError) -> bool {
        let ConnectStage::Up { link, is_shut_down_by_peer, .. } = self.stage else { return false };
        if link != id {
            return false;
        }
        self.stage = ConnectStage::Ended(match error {
            OperationError::Link(error) if !is_shut_down_by_peer => ConnectionEnd::Lost(error.clone()),
            OperationError::Flushed => ConnectionEnd::OperationFailed,
            OperationError::PeerReceive => ConnectionEnd::Lost(LinkError::Closed),
            _ => ConnectionEnd::Closed,
        });
        true
    }

    /// Whether this link is the connection, which has this number.
    pub(super) fn is_up(&self, id: LinkId, of: u64) -> bool {
        matches!(self.stage, ConnectStage::Up { link, number, .. } if (link, number) == (id, of))
    }

    /// Records that the peer has shut down the connection on this link.
    pub(super) fn mark_shut_down_by_peer(&mut self, id: LinkId) {
        if let ConnectStage::Up { link, is_shut_down_by_peer, .. } = &mut self.stage
            && *link == id
        {
            *is_shut_down_by_peer = true;
        }
    }
}

impl Connection {
    /// Asks for a connection. `open` opens a link to the passive endpoint. `random_number` identifies the
    /// request. If neither the passive endpoint nor an acceptor has answered by the deadline, the attempt
    /// fails.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the endpoint has already asked for a connection or accepted a request, or has
    /// another role; [`Misuse::Invalid`] for too much data.
    pub(crate) fn connect(
        &mut self,
        random_number: u64,
        data: &[u8],
        deadline: Option<Moment>,
        open: impl FnOnce() -> LinkId,
    ) -> Result<(), Error> {
        check_data_len(data)?;
        let stage = self.stage_if_fresh()?;
        let link = open();
        *stage = ConnectStage::Asked {
            link: Some(link),
            number: random_number,
            lost: None,
            patience: Timeout::default(),
            limit: deadline.map(Timeout::until),
        };
        self.handshake_links.add(link);
        self.handshake_links.queue_step(link, HandshakeStep::Request, random_number, data);
        Ok(())
    }

    /// Accepts a request that a passive endpoint has received. `open` opens a link to the requester.
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
        let stage = self.stage_if_fresh()?;
        let link = open();
        *stage = ConnectStage::Accepting { link, requester, data: data.into() };
        self.handshake_links.add(link);
        Ok(())
    }

    /// Fails to accept a request whose requester is known to be gone.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] as for [`connect`](Self::connect).
    pub(crate) fn accept_withdrawn(&mut self, effects: &mut impl ConnectionEffects) -> Result<(), Error> {
        self.stage_if_fresh()?;
        self.fail_attempt(ConnectionError::RequesterGone, effects);
        Ok(())
    }

    /// Returns the connection, if there is one to shut down. Returns `None` if the connection has ended or
    /// was shut down by this side, or if the attempt to connect has failed.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there was no connection yet, or if the endpoint has another role.
    pub(crate) fn connection_to_shut_down(&self) -> Result<Option<Established>, Error> {
        let RoleState::Connected(connected) = &self.role else {
            return Err(Misuse::NotConnected.into());
        };
        match connected.stage {
            ConnectStage::Up { link, peer, number, .. } => Ok(Some(Established { link, peer, number })),
            ConnectStage::Ended(_) | ConnectStage::Leaving { .. } | ConnectStage::Over => Ok(None),
            _ => Err(Misuse::NotConnected.into()),
        }
    }

    /// Returns the header by which a side shuts a connection down.
    pub(crate) fn shutdown_header(connection: Established) -> Header {
        let (step, number) = (HandshakeStep::Shutdown, connection.number);
        Header::Connection(HandshakeHeader { step, number, data_bytes: 0 })
    }

    /// Returns the header by which a side tells its peer that a receive has been too short for a message. It
    /// ends the link next.
    pub(crate) fn receive_failed_header(connection: Established) -> Header {
        let (step, number) = (HandshakeStep::Reject, connection.number);
        Header::Connection(HandshakeHeader { step, number, data_bytes: 0 })
    }

    /// Queues what this side still sends when it shuts down: the `rest` of a frame that the link has taken
    /// in part, the answers to the peer's operations, and the shutdown. `peer` is the peer's address and
    /// instance. The caller has already ended the operations of the connection.
    pub(crate) fn queue_shutdown(
        &mut self,
        connection: Established,
        peer: (Address, u64),
        rest: Option<Box<[u8]>>,
        answers: Vec<Header>,
    ) {
        let Established { link, number, .. } = connection;
        // Mark the link as up: an endpoint that closes then waits until the link has taken the frames.
        self.handshake_links.mark_up(link, peer.0, peer.1);
        if let Some(rest) = rest {
            self.handshake_links.queue_rest_of_frame(link, rest);
        }
        self.handshake_links.queue_answers(link, answers);
        self.handshake_links.queue_step(link, HandshakeStep::Shutdown, number, &[]);
        self.set_stage(ConnectStage::Leaving { link });
    }

    /// Returns the only peer of an endpoint with connections, or `None` for an RDM endpoint.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there is no connection yet, if the connection has ended, or if the
    /// endpoint is passive.
    pub(crate) fn peer(&self) -> Option<Result<PeerId, Error>> {
        match &self.role {
            RoleState::Unconnected => None,
            RoleState::Connected(connected) if let ConnectStage::Up { peer, .. } = connected.stage => {
                Some(Ok(peer))
            }
            _ => Some(Err(Misuse::NotConnected.into())),
        }
    }

    /// Whether an attempt to connect fails unless it is answered in time.
    pub(crate) fn awaits_timeout(&self) -> bool {
        let RoleState::Connected(connected) = &self.role else { return false };
        matches!(
            connected.stage,
            ConnectStage::Asked { lost: Some(_), .. } | ConnectStage::Asked { limit: Some(_), .. }
        )
    }

    /// Returns the time until which the attempt to connect may be answered.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let RoleState::Connected(connected) = &self.role else { return None };
        let ConnectStage::Asked { lost, patience, limit, .. } = &connected.stage else { return None };
        let patience = lost.as_ref().and_then(|_| patience.deadline());
        let limit = limit.as_ref().and_then(Timeout::deadline);
        patience.into_iter().chain(limit).min()
    }

    /// Returns the stage for the caller to replace. Fails if the endpoint has already asked for a connection
    /// or accepted a request.
    fn stage_if_fresh(&mut self) -> Result<&mut ConnectStage, Error> {
        match &mut self.role {
            RoleState::Connected(connected)
                if matches!(connected.stage, ConnectStage::Fresh) || mutated!("fi_cm/connect-once") =>
            {
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

    /// Handles a link that has come up to the requester's address: sends the `Accept`. If the endpoint at
    /// this address is not the requester, ends the link instead.
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
            return self.abort_breached_handshake_link(id, "not the endpoint that has asked", effects);
        }
        let (number, data) = (requester.number, mem::take(data));
        self.handshake_links.queue_step(id, HandshakeStep::Accept, number, &data);
    }

    /// Handles a link that has taken an `Accept`: the connection is established.
    pub(super) fn establish_if_accepting(&mut self, id: LinkId, effects: &mut impl ConnectionEffects) {
        if let RoleState::Connected(connected) = &self.role
            && let ConnectStage::Accepting { link, requester, .. } = connected.stage
            && link == id
        {
            self.establish(id, requester.number, false, effects);
            let is_given_data = mutated!("fi_eq/connected-without-data-for-listener");
            let data = if is_given_data { [0].into() } else { Box::default() };
            if !mutated!("fi_eq/connected-on-both-sides") {
                effects.report(ConnectionReport::Connected { data });
            }
        }
    }

    /// Handles a handshake step on a handshake link.
    pub(super) fn handle_step_at_connected(
        &mut self,
        id: LinkId,
        handshake: HandshakeHeader,
        data: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        let RoleState::Connected(connected) = &self.role else { return };
        let HandshakeHeader { step, number, .. } = handshake;
        match (&connected.stage, step) {
            (ConnectStage::Asked { link, number: asked, .. }, HandshakeStep::Reject)
                if *link == Some(id) && *asked == number =>
            {
                self.handshake_links.close_when_sent(id);
                self.fail_attempt(ConnectionError::Rejected { data: data.into() }, effects);
            }
            (ConnectStage::Asked { link, number: asked, .. }, HandshakeStep::Accept)
                if *link != Some(id) && *asked == number =>
            {
                self.establish(id, number, true, effects);
                self.handshake_links.close_all_when_sent();
                let confirm = HandshakeHeader { step: HandshakeStep::Confirm, number, data_bytes: 0 };
                effects.queue_header(id, Header::Connection(confirm));
                if !mutated!("fi_cm/accept-connects-both") {
                    effects.report(ConnectionReport::Connected { data: data.into() });
                }
            }
            (ConnectStage::Leaving { link }, _) if *link == id => {
                if step == HandshakeStep::Shutdown {
                    self.handshake_links.close_when_sent(id);
                    self.set_stage(ConnectStage::Ended(ConnectionEnd::Closed));
                    self.report_connection_if_ended(effects);
                }
            }
            _ => self.abort_breached_handshake_link(
                id,
                "takes a step of a connection that is not its turn",
                effects,
            ),
        }
    }

    /// Handles the requester's confirmation of the connection.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the connection awaits no confirmation.
    pub(super) fn handle_confirmation(
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

    /// Makes a link the connection. The link carries messages from now on.
    fn establish(
        &mut self,
        link: LinkId,
        number: u64,
        is_confirmed: bool,
        effects: &mut impl ConnectionEffects,
    ) {
        let Some((address, instance)) = self.handshake_links.peer(link) else { return };
        // The application has asked for this connection or accepted it, so the application trusts the peer.
        let proof = match self.handshake_links.proof(link) {
            Some(proof) if !proof.is_claim() => proof,
            _ => AddressProof::Confirmed,
        };
        self.handshake_links.remove(link);
        let peer = effects.add_message_link(link, address, instance, proof);
        self.set_stage(ConnectStage::Up { link, peer, number, is_confirmed, is_shut_down_by_peer: false });
    }

    /// If a requester has more links than it keeps, ends one. Strangers may make links, too, so they must not
    /// keep the acceptor out.
    pub(super) fn end_surplus_link(&mut self, effects: &mut impl ConnectionEffects) {
        if self.handshake_links.len() > REQUESTER_MAX_LINKS
            && let RoleState::Connected(connected) = &self.role
            && let ConnectStage::Asked { link: own, .. } = connected.stage
            && let Some(surplus) = self.handshake_links.find_surplus(own)
        {
            self.handshake_links.remove(surplus);
            effects.abort_handshake_link(surplus, "gives its place to another link");
        }
    }

    /// Handles the end of a handshake link. This may end an attempt to connect, or a shutdown.
    pub(super) fn handle_handshake_link_end(
        &mut self,
        id: LinkId,
        was_up: bool,
        error: &LinkError,
        effects: &mut impl ConnectionEffects,
    ) {
        let may_be_answered = self.handshake_links.has_live_peer();
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
                // However the link ends: a peer that reads the shutdown may be in the middle of a frame.
                connected.stage = ConnectStage::Ended(ConnectionEnd::Closed);
                self.report_connection_if_ended(effects);
            }
            _ => {}
        }
    }

    /// Advances the time to `now`. Ends the attempt to connect if it was not answered in time.
    pub(crate) fn advance_time(&mut self, now: Moment, effects: &mut impl ConnectionEffects) {
        let RoleState::Connected(connected) = &mut self.role else { return };
        let ConnectStage::Asked { lost, patience, limit, .. } = &mut connected.stage else { return };
        if let Some(error) = lost.take_if(|_| patience.poll_expired(now, REQUESTER_WAIT_MAX_MS)) {
            self.fail_attempt(error, effects);
        } else if limit.as_mut().is_some_and(|limit| limit.poll_expired(now, 0)) {
            // Close the links at once. A link that is still connecting would deliver the request later.
            for link in self.handshake_links.take_ids() {
                effects.abort_handshake_link(link, "a request was not answered in time");
            }
            self.fail_attempt(ConnectionError::TimedOut, effects);
        }
    }

    /// Ends the attempt to connect.
    fn fail_attempt(&mut self, error: ConnectionError, effects: &mut impl ConnectionEffects) {
        self.set_stage(ConnectStage::Over);
        self.handshake_links.close_all_when_sent();
        let reason = OperationError::Link(LinkError::System(error.errno()));
        effects.fail_all_receives(&reason);
        effects.report(ConnectionReport::Failed(error));
    }

    /// If the connection has ended and the end is not yet reported, reports the end. The caller has ended
    /// the connection's operations.
    pub(crate) fn report_connection_if_ended(&mut self, effects: &mut impl ConnectionEffects) {
        let RoleState::Connected(connected) = &mut self.role else { return };
        let ConnectStage::Ended(_) = connected.stage else { return };
        if let ConnectStage::Ended(end) = mem::replace(&mut connected.stage, ConnectStage::Over)
            && !mutated!("fi_cm/shutdown-event")
        {
            effects.report(ConnectionReport::Shutdown(end));
        }
    }
}

/// Returns why a passive endpoint has not answered. `error` ended the link to that endpoint.
fn unanswered_error(was_up: bool, error: &LinkError) -> ConnectionError {
    match error {
        // A passive endpoint that closes ends the links of its requesters, and sends no answer.
        LinkError::Closed => ConnectionError::NotListening,
        LinkError::System(Errno::ECONNRESET) if !was_up => ConnectionError::NotListening,
        error => ConnectionError::Link(error.clone()),
    }
}

/// Returns why an acceptor has not reached the requester. `error` ended the acceptor's link.
fn unreached_error(error: &LinkError) -> ConnectionError {
    match error {
        // The address has no endpoint, or another endpoint.
        LinkError::Closed
        | LinkError::Protocol(_)
        | LinkError::NoEndpoint { .. }
        | LinkError::System(Errno::ECONNREFUSED | Errno::ECONNRESET) => ConnectionError::RequesterGone,
        error => ConnectionError::Link(error.clone()),
    }
}
