//! Connections at the engine: calls of the application, and frames on handshake links. The state of
//! a connection is in [`connecting`](crate::connecting).

use std::io::IoSlice;

use super::Engine;
use super::links::ClosingLink;
use crate::address::Address;
use crate::completion::Sink;
use crate::connecting::{Connection, Established, HandshakeResult};
use crate::connection::{RequestId, Requester};
use crate::error::{Error, OperationError};
use crate::limits::EAGER_MAX_BYTES;
use crate::link::{FrameKind, PartialFrame};
use crate::moment::Moment;
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{Close, LinkError, LinkId, Transport};
use crate::wire::{HandshakeHeader, Header};

impl Engine {
    /// Asks the passive endpoint at `to` for a connection. An endpoint may ask once in its life.
    /// `random_number` identifies the request. If the request is neither accepted nor rejected by the
    /// deadline, the attempt fails with
    /// [`ConnectionError::TimedOut`](crate::connection::ConnectionError::TimedOut), up to
    /// [`TIMEOUT_GRACE_MS`](crate::limits::TIMEOUT_GRACE_MS) later.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the endpoint has asked for a connection or accepted one before, or if
    /// its role is not [`EndpointRole::Connected`](crate::connection::EndpointRole::Connected).
    /// [`Misuse::Invalid`] if `data` is longer than
    /// [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
    ///
    /// [`Misuse::State`]: crate::error::Misuse::State
    /// [`Misuse::Invalid`]: crate::error::Misuse::Invalid
    pub fn connect(
        &mut self,
        to: Address,
        random_number: u64,
        data: &[u8],
        deadline: Option<Moment>,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.connection.connect(random_number, data, deadline, || transport.connect(to))?;
        self.has_timeouts |= deadline.is_some();
        self.transmit_handshakes(transport, sink);
        Ok(())
    }

    /// Accepts a request for a connection that a passive endpoint has received.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn accept(
        &mut self,
        requester: Requester,
        data: &[u8],
        transport: &mut impl Transport,
    ) -> Result<(), Error> {
        self.connection.accept(requester, data, || transport.connect(requester.address))
    }

    /// As [`accept`](Self::accept), for a request whose requester is [known to be
    /// gone](Self::mark_request_being_accepted). Reports
    /// [`ConnectionError::RequesterGone`](crate::connection::ConnectionError::RequesterGone) before it
    /// returns.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`](crate::error::Misuse::State) as for [`connect`](Self::connect).
    pub fn accept_withdrawn(&mut self, sink: &mut impl Sink) -> Result<(), Error> {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.accept_withdrawn(&mut effects)
    }

    /// Listens for connection requests. Up to `backlog_requests` requests may wait for the
    /// application. The endpoint rejects all further requests. With `None` it rejects all new
    /// requests, as before the first call. Waiting requests stay.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`](crate::error::Misuse::State) if the endpoint is not passive.
    pub fn listen(&mut self, backlog_requests: Option<usize>) -> Result<(), Error> {
        self.connection.listen(backlog_requests)
    }

    /// Rejects a request. If the link to the requester was lost, no rejection is sent.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the endpoint is not passive. [`Misuse::Invalid`] if `data` is longer
    /// than [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
    ///
    /// [`Misuse::State`]: crate::error::Misuse::State
    /// [`Misuse::Invalid`]: crate::error::Misuse::Invalid
    pub fn reject(
        &mut self,
        request: RequestId,
        data: &[u8],
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.connection.reject(request, data)?;
        self.transmit_handshakes(transport, sink);
        Ok(())
    }

    /// Removes a request from the waiting requests: another endpoint is about to accept it. The
    /// link to the requester stays until [`end_accepted_request`](Self::end_accepted_request), or
    /// until the requester knows of the acceptance. Returns false if the requester is known to be gone.
    pub fn mark_request_being_accepted(&mut self, request: RequestId) -> bool {
        self.connection.mark_request_being_accepted(request)
    }

    /// Ends the requester's link to this endpoint. Call this when another endpoint has accepted the
    /// request, or has failed to accept it.
    pub fn end_accepted_request(
        &mut self,
        request: RequestId,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) {
        self.connection.end_accepted_request(request);
        self.transmit_handshakes(transport, sink);
    }

    /// Returns the only peer of a connected endpoint. Returns `None` if the endpoint has no
    /// connections (`FI_EP_RDM`).
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`](crate::error::Misuse::NotConnected) if there is no connection yet,
    /// if the connection has ended, or if the endpoint is passive.
    pub fn connected_peer(&self) -> Option<Result<PeerId, Error>> {
        self.connection.peer()
    }

    /// Shuts the connection down. Cancels all operations that have not ended, and reports them
    /// before it returns. The peer still gets the frames that the link has taken, and the answers
    /// to the peer's operations. [`ConnectionReport::Shutdown`] follows when the peer has confirmed
    /// the shutdown, or has shut down too. A second call does nothing.
    ///
    /// If the link has taken only a part of a long payload, or if the peer may still read exposed
    /// payload, this call closes the link and reports [`ConnectionReport::Shutdown`] itself.
    /// Answers that the link has not taken are then lost. If the link has not taken the shutdown either, the
    /// peer's connection is [lost](crate::connection::ConnectionEnd::Lost).
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there was no connection yet.
    ///
    /// [`ConnectionReport::Shutdown`]: crate::connection::ConnectionReport::Shutdown
    /// [`Misuse::NotConnected`]: crate::error::Misuse::NotConnected
    pub fn shutdown(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) -> Result<(), Error> {
        let shut_down = self.connection.connection_to_shut_down()?;
        self.refuse_late_posts();
        let Some(established) = shut_down else { return Ok(()) };
        let Established { link: id, peer, .. } = established;
        let instance = self.peers.peer(peer).instance().unwrap_or(0);
        // Sends that the peer may still read must not end before the link.
        let is_exposed = self.links.get(id).is_some_and(|link| link.tx.has_exposed_payload());
        let rest = if is_exposed { None } else { self.copy_rest_of_frame(id) };
        let is_mid_frame = self.links.get(id).is_some_and(|link| !link.tx.is_between_frames());
        // After a frame that is cut off, no other frame can follow.
        let is_cut_off = is_exposed || is_mid_frame && rest.is_none();
        // These frames answer operations of the peer that this side has carried out. The peer must
        // not see these operations fail.
        let answers = self.send_last_answers_or_return_rest(id, transport);
        let unended = self.end_link(id, &OperationError::Cancelled, sink);
        if is_cut_off {
            if !is_mid_frame && answers.is_empty() {
                // The peer learns by it that this is the end. If the link is full, the peer does not.
                let _may_be_full = transport.send(id, &Connection::shutdown_header(established), &[]);
            }
            transport.close(id, Close::Drain);
            self.fail_exposed_sends(unended, &OperationError::Cancelled, sink);
            self.report_connection_if_ended(sink);
        } else {
            self.fail_exposed_sends(unended, &OperationError::Cancelled, sink);
            self.connection.queue_shutdown(
                established,
                (self.peers.address_of(peer), instance),
                rest,
                answers,
            );
            self.transmit_handshakes(transport, sink);
        }
        Ok(())
    }

    /// Copies the rest of the frame that a link has taken in part: the frame's operation ends
    /// before the link does. Returns `None` if there is no such frame, or if more than
    /// [`EAGER_MAX_BYTES`] are left of a requested payload, a write or an atomic operation. Other
    /// frames are always short enough.
    fn copy_rest_of_frame(&mut self, id: LinkId) -> Option<Box<[u8]>> {
        let PartialFrame { kind, send, taken_bytes } = self.links.get(id)?.tx.partial_frame()?;
        let slices = match kind {
            FrameKind::Message | FrameKind::Data => self.initiator.get(send)?.source.slices(taken_bytes),
            FrameKind::ReadData => self.target.next_outgoing_read(id)?.piece_slices(taken_bytes).ok()?,
        };
        let rest_bytes = slices.iter().map(|slice| slice.len()).sum();
        if kind == FrameKind::Data && rest_bytes > EAGER_MAX_BYTES {
            return None;
        }
        let mut rest = Vec::new();
        rest.try_reserve_exact(rest_bytes).ok()?;
        slices.iter().for_each(|slice| rest.extend_from_slice(slice));
        Some(rest.into())
    }

    /// Sends the frames that are queued for handshake links. Closes the handshake links that are no
    /// longer needed.
    #[cold]
    pub(super) fn transmit_handshakes(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        let send = |id, header: Option<&Header>, data: &[u8]| match header {
            Some(header) => transport.send(id, header, &[IoSlice::new(data)]),
            None => transport.resume(id, &[IoSlice::new(data)]),
        };
        for served in connection.transmit_and_take_links_to_close(send, &mut effects) {
            transport.close(served, Close::Drain);
        }
    }

    /// Handles a frame on a link that carries no messages: a handshake link, or an unknown one.
    #[cold]
    pub(super) fn frame_arrived_on_handshake_link(
        &mut self,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.frame_arrived(id, header, payload, &mut effects);
    }

    /// As [`frame_arrived_on_handshake_link`](Self::frame_arrived_on_handshake_link), for the
    /// beginning of a frame.
    #[cold]
    pub(super) fn frame_begun_on_handshake_link(
        &mut self,
        id: LinkId,
        header: &Header,
        sink: &mut impl Sink,
    ) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.frame_begun(id, header, &mut effects);
    }

    /// As [`frame_arrived_on_handshake_link`](Self::frame_arrived_on_handshake_link), for the next
    /// bytes of a frame.
    #[cold]
    pub(super) fn chunk_arrived_on_handshake_link(&mut self, id: LinkId, bytes: &[u8], sink: &mut impl Sink) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.chunk_arrived(id, bytes, &mut effects);
    }

    /// Handles a handshake step, or its beginning, on a link that carries messages.
    #[cold]
    pub(super) fn handle_step_on_message_link(
        &mut self,
        id: LinkId,
        handshake: HandshakeHeader,
        sink: &mut impl Sink,
    ) {
        let Some(link) = self.links.get(id) else { return };
        let is_answer_pending =
            link.tx.pending_replies().has_header(|header| matches!(header, Header::Connection(_)));
        let (connection, mut effects) = self.connection_and_effects(sink);
        match connection.handle_step_on_message_link(id, handshake, is_answer_pending, &mut effects) {
            Ok(HandshakeResult::Nothing) => {}
            Ok(result @ (HandshakeResult::Shutdown | HandshakeResult::ReceiveFailed)) => {
                let error = match result {
                    HandshakeResult::ReceiveFailed => OperationError::PeerReceive,
                    _ => OperationError::Link(LinkError::Closed),
                };
                let unended = self.end_link(id, &error, sink);
                // After such a step the peer reads nothing more.
                self.fail_exposed_sends(unended, &error, sink);
                self.condemned.push_back(ClosingLink::without_sends(id, Close::Drain));
                self.report_connection_if_ended(sink);
            }
            Err(ProtocolViolation(reason)) => self.abort_breached_link(id, reason, sink),
        }
    }

    /// If the connection has ended and its end was not reported yet, reports the end. The caller
    /// has ended all operations of the connection.
    pub(super) fn report_connection_if_ended(&mut self, sink: &mut impl Sink) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.report_connection_if_ended(&mut effects);
    }
}
