//! The coordinator's half of [connections](crate::connecting): what applications ask for, and the
//! links that it is about.

use std::io::IoSlice;

use super::Engine;
use super::links::ClosingLink;
use crate::address::Address;
use crate::completion::Sink;
use crate::connecting::{Established, HandshakeResult};
use crate::connection::{RequestId, Requester};
use crate::error::{Error, OperationError};
use crate::limits::EAGER_MAX_BYTES;
use crate::link::{Frame, PartialFrame};
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{Close, LinkError, LinkId, Transport};
use crate::wire::{Handshake, Header};

impl Engine {
    /// Asks the passive endpoint at `to` for a connection. Only once in the life of an endpoint.
    /// `number` is drawn at random.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if it has asked or accepted before, or is no endpoint for connections;
    /// [`Misuse::Invalid`] for more data than
    /// [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
    ///
    /// [`Misuse::State`]: crate::error::Misuse::State
    /// [`Misuse::Invalid`]: crate::error::Misuse::Invalid
    pub fn connect(
        &mut self,
        to: Address,
        number: u64,
        data: &[u8],
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.connection.connect(number, data, || transport.connect(to))?;
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

    /// Listens for requests for connections: keeps up to so many waiting, and rejects the others;
    /// with `None` all of them, as before the first call. Requests that wait already are not
    /// affected.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`](crate::error::Misuse::State) if it is no passive endpoint.
    pub fn listen(&mut self, backlog_requests: Option<usize>) -> Result<(), Error> {
        self.connection.listen(backlog_requests)
    }

    /// Rejects a request. A requester that is gone does not hear of it.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if it is no passive endpoint, [`Misuse::Invalid`] for more data than
    /// [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
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

    /// Says that another endpoint is about to accept a request: it waits no longer. The requester
    /// goes on waiting on the link to this endpoint until [`settle_request`](Self::settle_request), or until the
    /// other endpoint has accepted.
    pub fn begin_accepting(&mut self, request: RequestId) {
        self.connection.begin_accepting(request);
    }

    /// Ends the wait of a requester: its request was accepted, or the acceptor has failed.
    pub fn settle_request(
        &mut self,
        request: RequestId,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) {
        self.connection.settle_request(request);
        self.transmit_handshakes(transport, sink);
    }

    /// The only peer of an endpoint with connections; `None` for an RDM endpoint.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`](crate::error::Misuse::NotConnected) if there is no connection yet,
    /// or no longer.
    pub fn connected_peer(&self) -> Option<Result<PeerId, Error>> {
        self.connection.peer()
    }

    /// Shuts the connection down. Frames that the link has taken still reach the peer, and so do
    /// answers to its operations; every other operation is cancelled, and reported so before this
    /// returns. [`ConnectionEvent::Shutdown`] follows when the peer has confirmed, or has shut down
    /// too. A second call does nothing.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there was no connection yet.
    ///
    /// [`ConnectionEvent::Shutdown`]: crate::connection::ConnectionReport::Shutdown
    /// [`Misuse::NotConnected`]: crate::error::Misuse::NotConnected
    pub fn shutdown(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) -> Result<(), Error> {
        let Some(established) = self.connection.connection_to_shut_down()? else { return Ok(()) };
        let Established { link: id, peer, .. } = established;
        let instance = self.peers.peer(peer).instance.map_or(0, |(instance, _)| instance);
        // What the peer may still read must not end before the link.
        let is_exposed = self.links.get(id).is_some_and(|link| link.tx.has_exposed());
        let rest = if is_exposed { None } else { self.copy_rest_of_frame(id) };
        let is_mid_frame = self.links.get(id).is_some_and(|link| !link.tx.is_idle());
        // Nothing can be said behind half a frame.
        let is_cut_off = is_exposed || is_mid_frame && rest.is_none();
        // Operations of the peer have succeeded that this side has reported; they must not fail there.
        let answers = self.send_last_answers(id, transport);
        let unended = self.end_link(id, &OperationError::Cancelled, sink);
        if is_cut_off {
            transport.close(id, Close::Drain);
            self.fail_exposed_sends(unended, &OperationError::Cancelled, sink);
            self.report_lost_connection(sink);
        } else {
            self.fail_exposed_sends(unended, &OperationError::Cancelled, sink);
            self.connection.send_shutdown(
                established,
                (self.peers.address_of(peer), instance),
                rest,
                answers,
            );
            self.transmit_handshakes(transport, sink);
        }
        Ok(())
    }

    /// A copy of what is left of the frame that a link has taken in part, since what it is of ends
    /// before the link. `None` also for more than travels eagerly, but for a piece that the peer
    /// reads: no more is sent at once without being asked for.
    fn copy_rest_of_frame(&mut self, id: LinkId) -> Option<Box<[u8]>> {
        let PartialFrame { frame, send, taken_bytes } = self.links.get(id)?.tx.partial_frame()?;
        let slices = match frame {
            Frame::Message | Frame::Data => self.initiator.get(send)?.source.slices(taken_bytes),
            Frame::ReadData => self.target.next_outgoing_read(id)?.piece_slices(taken_bytes),
        };
        let rest_bytes = slices.iter().map(|slice| slice.len()).sum();
        if frame == Frame::Data && rest_bytes > EAGER_MAX_BYTES {
            return None;
        }
        let mut rest = Vec::with_capacity(rest_bytes);
        slices.iter().for_each(|slice| rest.extend_from_slice(slice));
        Some(rest.into())
    }

    /// Says what is to be said on links that make or end connections, and closes those that have served.
    #[cold]
    pub(super) fn transmit_handshakes(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        let send = |id, header: Option<&Header>, data: &[u8]| match header {
            Some(header) => transport.send(id, header, &[IoSlice::new(data)]),
            None => transport.resume(id, &[IoSlice::new(data)]),
        };
        for served in connection.transmit(send, &mut effects) {
            transport.close(served, Close::Drain);
        }
    }

    /// A frame has arrived on a link that carries no messages, or is none at all.
    #[cold]
    pub(super) fn frame_received_without_messages(
        &mut self,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.frame_arrived(id, header, payload, &mut effects);
    }

    /// As [`frame_received_without_messages`](Self::frame_received_without_messages), for the beginning of a frame.
    #[cold]
    pub(super) fn header_received_without_messages(
        &mut self,
        id: LinkId,
        header: &Header,
        sink: &mut impl Sink,
    ) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.frame_begun(id, header, &mut effects);
    }

    /// As [`frame_received_without_messages`](Self::frame_received_without_messages), for what follows a beginning.
    #[cold]
    pub(super) fn payload_received_without_messages(
        &mut self,
        id: LinkId,
        bytes: &[u8],
        sink: &mut impl Sink,
    ) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.chunk_arrived(id, bytes, &mut effects);
    }

    /// A step of a connection has arrived, or begun to, on a link that carries messages.
    #[cold]
    pub(super) fn handshake_among_messages(
        &mut self,
        id: LinkId,
        handshake: Handshake,
        sink: &mut impl Sink,
    ) {
        let Some(link) = self.links.get(id) else { return };
        let owes_answer = link.tx.debts().has_header(|header| matches!(header, Header::Connection(_)));
        let (connection, mut effects) = self.connection_and_effects(sink);
        match connection.handshake_among_messages(id, handshake, owes_answer, &mut effects) {
            Ok(HandshakeResult::Nothing) => {}
            Ok(HandshakeResult::Shutdown) => {
                let error = OperationError::Link(LinkError::Closed);
                let unended = self.end_link(id, &error, sink);
                // The peer has said that it reads nothing more.
                self.fail_exposed_sends(unended, &error, sink);
                self.condemned.push(ClosingLink::without_sends(id, Close::Drain));
                self.report_lost_connection(sink);
            }
            Err(ProtocolViolation(reason)) => self.condemn(id, reason, sink),
        }
    }

    /// Reports the end of a connection that was lost, once none of its operations is left.
    pub(super) fn report_lost_connection(&mut self, sink: &mut impl Sink) {
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.report_lost_connection(&mut effects);
    }
}
