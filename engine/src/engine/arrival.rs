//! Arrival: the handlers of the frames that a transport reports.

use super::Engine;
use crate::completion::Sink;
use crate::limits::MESSAGE_COST_BYTES;
use crate::link::{Collected, CollectedHeader};
use crate::link_fault::LinkFault;
use crate::operation::SendId;
use crate::protocol_violation::ProtocolViolation;
use crate::reassembly::Reassembly;
use crate::receiver::EndedAtOnce;
use crate::transport::{FrameHandler, LinkEvent, LinkId, Space};
use crate::wire::{Atomic, CountedWrite, Header, Message, Rma, RmaKind};

/// The [`FrameHandler`] of an engine: handles what a transport reports, and puts the resulting
/// completions into a [`Sink`].
#[derive(Debug)]
pub struct Arrivals<'a, S> {
    engine: &'a mut Engine,
    sink: &'a mut S,
    has_held_report: bool,
}

impl<S> Arrivals<'_, S> {
    /// Whether a message [was taken](FrameHandler::take_message) whose report waits for room in the sink.
    #[inline(always)]
    pub fn has_held_report(&self) -> bool {
        self.has_held_report
    }
}

impl Engine {
    /// Returns the handler for [`Transport::receive`](crate::transport::Transport::receive). A pass begins:
    /// peeks may find all that earlier ones have received.
    pub fn arrivals<'a, S: Sink>(&'a mut self, sink: &'a mut S) -> Arrivals<'a, S> {
        self.receive_side.show_all_to_peeks();
        Arrivals { engine: self, sink, has_held_report: false }
    }

    /// Lets peeks find what has arrived before this frame: one of the two applications may learn of it. Of a
    /// message it learns only if the receiver finds a match, of a grant of credit never.
    #[inline(always)]
    fn show_earlier_to_peeks(&mut self, header: &Header) {
        match header {
            Header::Message(_) | Header::Request { .. } | Header::Credit { .. } => {}
            _ => self.receive_side.show_arrived_to_peeks(),
        }
    }

    /// Handles a message that the receiver has refused: the link is for handshakes, the peer has
    /// broken the protocol, or there is no memory for the message.
    #[cold]
    fn handle_refused_message(
        &mut self,
        id: LinkId,
        fault: LinkFault,
        header: &Header,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        if self.links.get(id).is_none() {
            return self.frame_arrived_on_handshake_link(id, header, payload, sink);
        }
        self.abort_faulty_link(id, fault, sink);
    }

    /// Handles a peer's offer of a message.
    fn message_offer_arrived(
        &mut self,
        id: LinkId,
        message: &Message,
        op: u64,
        remote: &[u8],
        sink: &mut impl Sink,
    ) {
        if self.target.has_offer(id, op) {
            return self.abort_breached_link(id, "offers two messages under one number", sink);
        }
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        let outcome = receiver.message_offered(id, message, op, remote, &mut effects);
        self.has_timeouts |= self.receive_side.has_delayed_fetches();
        self.abort_link_on_fault(id, outcome, sink);
    }

    /// Spends the credit of an access. Only a write with remote data costs credit: as much as an
    /// empty message. If the peer lacks the credit, ends the link and returns false. Otherwise
    /// returns true.
    fn spend_write_data_credit_or_abort_link(
        &mut self,
        id: LinkId,
        data: Option<u64>,
        sink: &mut impl Sink,
    ) -> bool {
        if data.is_none() {
            return true;
        }
        let outcome = self.receive_side.spend_credit(id, MESSAGE_COST_BYTES);
        self.abort_link_on_fault(id, outcome, sink)
    }

    /// Handles a peer's access to a region.
    fn rma_arrived(&mut self, id: LinkId, rma: &Rma, payload: &[u8], sink: &mut impl Sink) {
        let is_offer = matches!(rma.kind, RmaKind::Offer { .. });
        if is_offer && self.receive_side.has_offer(id, rma.op) {
            return self.abort_breached_link(id, "offers two payloads under one number", sink);
        }
        if !self.spend_write_data_credit_or_abort_link(id, rma.kind.data(), sink) {
            return;
        }
        let (target, mut effects) = self.target_and_effects(sink);
        let outcome = match rma.kind {
            RmaKind::Read => target.read_request_arrived(id, rma, &mut effects),
            RmaKind::Offer { .. } => target.write_offered(id, rma, payload, &mut effects),
            RmaKind::Write { .. } => target.write_arrived(id, rma, payload, &mut effects),
            RmaKind::Flush => target.flush_arrived(id, rma, &mut effects).map_err(LinkFault::from),
        };
        self.abort_link_on_fault(id, outcome, sink);
    }

    /// Begins to collect a frame with `len_bytes` of payload.
    fn begin_collecting(&mut self, id: LinkId, of: CollectedHeader, len_bytes: usize, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let outcome = link.rx.begin_collecting(of, len_bytes);
        self.abort_link_on_fault(id, outcome, sink);
    }

    /// Handles the beginning of a peer's access to a region.
    fn begin_arriving_rma(&mut self, id: LinkId, rma: &Rma, sink: &mut impl Sink) {
        match rma.kind {
            RmaKind::Read | RmaKind::Flush => {}
            RmaKind::Offer { remote_bytes, .. } => {
                self.begin_collecting(id, CollectedHeader::Write(*rma), usize::from(remote_bytes), sink);
            }
            RmaKind::Write { .. } => {
                if self.spend_write_data_credit_or_abort_link(id, rma.kind.data(), sink) {
                    let (target, mut effects) = self.target_and_effects(sink);
                    let outcome = target.begin_write(id, rma, &mut effects);
                    self.abort_link_on_fault(id, outcome, sink);
                }
            }
        }
    }

    /// Handles a counted write of a peer.
    fn counted_write_arrived(
        &mut self,
        id: LinkId,
        write: &CountedWrite,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        if self.spend_write_data_credit_or_abort_link(id, write.data, sink) {
            let (target, mut effects) = self.target_and_effects(sink);
            let outcome = target.counted_write_arrived(id, write, payload, &mut effects);
            self.abort_link_on_fault(id, outcome, sink);
        }
    }

    /// Handles the beginning of a counted write of a peer.
    fn begin_counted_write(&mut self, id: LinkId, write: &CountedWrite, sink: &mut impl Sink) {
        if self.spend_write_data_credit_or_abort_link(id, write.data, sink) {
            let (target, mut effects) = self.target_and_effects(sink);
            let outcome = target.begin_counted_write(id, write, &mut effects);
            self.abort_link_on_fault(id, outcome, sink);
        }
    }

    /// Handles a whole atomic operation of a peer.
    fn atomic_arrived(&mut self, id: LinkId, atomic: &Atomic, payload: &[u8], sink: &mut impl Sink) {
        let (target, mut effects) = self.target_and_effects(sink);
        let outcome = target.atomic_arrived(id, atomic, payload, &mut effects);
        self.abort_link_on_fault(id, outcome, sink);
    }

    /// Returns the piece of a read that is arriving on a link.
    fn arriving_read_piece(&self, id: LinkId) -> Option<Reassembly<SendId>> {
        self.links.get(id)?.rx.arriving_read_piece()
    }

    /// Records that a receive of the peer has matched a message.
    fn match_report_arrived(&mut self, id: LinkId, number: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let send = match link.tx.take_matched_send(number) {
            Ok(send) => send,
            Err(ProtocolViolation(reason)) => return self.abort_breached_link(id, reason, sink),
        };
        self.end_with_success(send, sink);
    }

    /// Records that the peer has granted more credit.
    fn credit_grant_arrived(&mut self, id: LinkId, granted_bytes: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let outcome = link.tx.record_credit_grant(granted_bytes);
        self.abort_link_on_fault(id, outcome, sink);
    }

    fn ack_arrived(&mut self, id: LinkId, received_count: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        if let Err(ProtocolViolation(reason)) = link.tx.record_ack(received_count) {
            return self.abort_breached_link(id, reason, sink);
        }
        while let Some(send) = self.links.get_mut(id).and_then(|link| link.tx.pop_acknowledged()) {
            self.end_with_success(send, sink);
        }
    }
}

impl<S: Sink> Arrivals<'_, S> {
    /// Lists the peer of a link as active if it is blocked.
    #[inline(always)]
    fn unblock_peer_if_any_blocked(&mut self, id: LinkId) {
        if self.engine.initiator.has_blocked_peers() {
            self.engine.unblock_peer_of(id);
        }
    }

    /// Puts the next bytes of a payload into their destination.
    fn put_payload(&mut self, id: LinkId, bytes: &[u8]) {
        let engine = &mut *self.engine;
        if let Some(filling) = engine.arriving_read_piece(id) {
            let bytes = filling.clip_bytes(bytes);
            engine.initiator.put_read_piece(&filling, bytes);
            self.count_read_bytes(id, bytes.len());
        } else if engine.target.is_write_arriving(id) {
            let (target, mut effects) = engine.target_and_effects(self.sink);
            let outcome = target.put_payload(id, bytes, &mut effects);
            engine.abort_link_on_fault(id, outcome, self.sink);
        } else {
            let (receiver, mut effects) = engine.receive_side_and_effects(self.sink);
            receiver.put_payload(id, bytes, &mut effects);
        }
    }

    /// Counts bytes of a read that are in their destination.
    fn count_read_bytes(&mut self, id: LinkId, count_bytes: usize) {
        let engine = &mut *self.engine;
        let Some(ended) = engine.links.get_mut(id).and_then(|link| link.rx.count_read_bytes(count_bytes))
        else {
            return;
        };
        if engine.initiator.finish_read_piece(&ended) {
            engine.atomic_results_arrived(id, ended.owner, self.sink);
        }
    }

    /// Handles the beginning of a payload that the peer sends. Ends the link if this side has not
    /// requested the payload.
    fn begin_data_or_abort_link(&mut self, id: LinkId, op: u64, len_bytes: u64) {
        let engine = &mut *self.engine;
        let is_wanted = engine.receive_side.begin_data_if_requested(id, op, len_bytes)
            || engine.target.begin_data_if_requested(id, op, len_bytes);
        // A shared receiver may have requested the payload before this engine left the receiver.
        if !is_wanted && !engine.receive_side.has_left_shared_receiver() {
            engine.abort_breached_link(id, "sends what was not asked for", self.sink);
        }
    }
}

impl<S: Sink> FrameHandler for Arrivals<'_, S> {
    #[inline(always)]
    fn take_message(&mut self, id: LinkId, message: &Message, read: impl FnOnce(&mut [u8])) -> bool {
        let ended = self.engine.end_receive_at_once(id, message, read, self.sink);
        self.has_held_report |= ended == EndedAtOnce::ReportHeld;
        ended != EndedAtOnce::No
    }

    #[inline(always)]
    fn frame(&mut self, id: LinkId, header: &Header, payload: &[u8]) {
        if let Header::Message(message) = header {
            let engine = &mut *self.engine;
            let (receiver, mut effects) = engine.receive_side_and_effects(self.sink);
            if let Err(fault) = receiver.message_arrived(id, message, payload, &mut effects) {
                engine.handle_refused_message(id, fault, header, payload, self.sink);
            }
            return;
        }
        // A message lets no operation of this side go on. Any other frame may.
        self.unblock_peer_if_any_blocked(id);
        let engine = &mut *self.engine;
        if engine.links.get(id).is_none() {
            return engine.frame_arrived_on_handshake_link(id, header, payload, self.sink);
        }
        engine.show_earlier_to_peeks(header);
        match header {
            Header::Message(_) => {}
            Header::Ack { received } => engine.ack_arrived(id, *received, self.sink),
            Header::Request { message, op, .. } => {
                engine.message_offer_arrived(id, message, *op, payload, self.sink);
            }
            Header::Clear { op, cannot_pull } => engine.clear_arrived(id, *op, *cannot_pull, self.sink),
            Header::Data { op, len_bytes } => {
                self.begin_data_or_abort_link(id, *op, *len_bytes);
                self.put_payload(id, payload);
            }
            Header::Done { op, fault } => engine.done_arrived(id, *op, *fault, self.sink),
            Header::Matched { number } => engine.match_report_arrived(id, *number, self.sink),
            Header::Credit { granted_bytes } => engine.credit_grant_arrived(id, *granted_bytes, self.sink),
            Header::Fence { matched } => engine.fence_arrived(id, *matched, self.sink),
            Header::Fenced => engine.fence_answer_arrived(id, self.sink),
            Header::Rma(rma) => engine.rma_arrived(id, rma, payload, self.sink),
            Header::CountedWrite(write) => engine.counted_write_arrived(id, write, payload, self.sink),
            Header::Written { count, outcome } => engine.written_arrived(id, *count, *outcome, self.sink),
            Header::Atomic(atomic) => engine.atomic_arrived(id, atomic, payload, self.sink),
            Header::ReadData { op, len_bytes } => {
                engine.begin_read_data_or_abort_link(id, *op, *len_bytes, self.sink);
                self.put_payload(id, payload);
            }
            Header::MappableRegion(shown) => {
                engine.mappable_region_arrived(id, *shown, payload, self.sink);
            }
            Header::Answer { op, outcome } => engine.answer_arrived(id, *op, *outcome, self.sink),
            Header::Connection(handshake) => engine.handle_step_on_message_link(id, *handshake, self.sink),
        }
    }

    fn frame_begun(&mut self, id: LinkId, header: &Header) {
        let engine = &mut *self.engine;
        if engine.links.get(id).is_none() {
            return engine.frame_begun_on_handshake_link(id, header, self.sink);
        }
        engine.show_earlier_to_peeks(header);
        match *header {
            Header::Message(message) => {
                let (receiver, mut effects) = engine.receive_side_and_effects(self.sink);
                let outcome = receiver.begin_message(id, &message, &mut effects);
                engine.abort_link_on_fault(id, outcome, self.sink);
            }
            Header::Request { message, op, remote_bytes } => {
                let of = CollectedHeader::Message(message, op);
                engine.begin_collecting(id, of, usize::from(remote_bytes), self.sink);
            }
            Header::Data { op, len_bytes } => self.begin_data_or_abort_link(id, op, len_bytes),
            Header::Rma(rma) => engine.begin_arriving_rma(id, &rma, self.sink),
            Header::CountedWrite(write) => engine.begin_counted_write(id, &write, self.sink),
            Header::Atomic(atomic) => {
                let of = CollectedHeader::Atomic(atomic);
                engine.begin_collecting(id, of, atomic.form.payload_len_bytes(), self.sink);
            }
            Header::ReadData { op, len_bytes } => {
                engine.begin_read_data_or_abort_link(id, op, len_bytes, self.sink);
            }
            Header::MappableRegion(shown) => {
                let of = CollectedHeader::Region(shown);
                engine.begin_collecting(id, of, usize::from(shown.remote_bytes), self.sink);
            }
            // On a link that carries messages, no handshake step needs its data. So the header
            // suffices.
            Header::Connection(handshake) => engine.handle_step_on_message_link(id, handshake, self.sink),
            Header::Ack { .. }
            | Header::Clear { .. }
            | Header::Done { .. }
            | Header::Matched { .. }
            | Header::Credit { .. }
            | Header::Fence { .. }
            | Header::Fenced
            | Header::Answer { .. }
            | Header::Written { .. } => {
                debug_assert_eq!(header.payload_len_bytes(), 0, "no payload is awaited of {header:?}");
            }
        }
    }

    fn payload_space(&mut self, id: LinkId) -> Space<'_> {
        let engine = &mut *self.engine;
        if let Some(filling) = engine.arriving_read_piece(id) {
            return engine.initiator.read_piece_space(&filling);
        }
        if engine.target.is_write_arriving(id) {
            engine.target.payload_space(id)
        } else {
            engine.receive_side.payload_space(id)
        }
    }

    fn bytes_placed(&mut self, id: LinkId, count_bytes: usize) {
        self.unblock_peer_if_any_blocked(id);
        let engine = &mut *self.engine;
        if engine.arriving_read_piece(id).is_some() {
            self.count_read_bytes(id, count_bytes);
        } else if engine.target.is_write_arriving(id) {
            let (target, mut effects) = engine.target_and_effects(self.sink);
            let outcome = target.bytes_placed(id, count_bytes, &mut effects);
            engine.abort_link_on_fault(id, outcome, self.sink);
        } else {
            let (receiver, mut effects) = engine.receive_side_and_effects(self.sink);
            receiver.bytes_placed(id, count_bytes, &mut effects);
        }
    }

    fn payload_arrived(&mut self, id: LinkId, bytes: &[u8]) {
        self.unblock_peer_if_any_blocked(id);
        let engine = &mut *self.engine;
        let Some(link) = engine.links.get_mut(id) else {
            return engine.chunk_arrived_on_handshake_link(id, bytes, self.sink);
        };
        let whole = match link.rx.collect_bytes(bytes) {
            Ok(Collected::Nothing) => return self.put_payload(id, bytes),
            Ok(Collected::Part) => return,
            Ok(Collected::Whole(whole)) => whole,
            Err(fault) => return engine.abort_faulty_link(id, fault.into(), self.sink),
        };
        let payload = whole.payload();
        match whole.header() {
            CollectedHeader::Message(message, op) => {
                engine.message_offer_arrived(id, &message, op, payload, self.sink);
            }
            CollectedHeader::Write(rma) => engine.rma_arrived(id, &rma, payload, self.sink),
            CollectedHeader::Region(shown) => {
                engine.mappable_region_arrived(id, shown, payload, self.sink);
            }
            CollectedHeader::Atomic(atomic) => engine.atomic_arrived(id, &atomic, payload, self.sink),
        }
    }

    fn link_writable(&mut self, id: LinkId) {
        self.unblock_peer_if_any_blocked(id);
    }

    fn link_event(&mut self, id: LinkId, event: LinkEvent) {
        self.unblock_peer_if_any_blocked(id);
        let engine = &mut *self.engine;
        engine.receive_side.show_arrived_to_peeks();
        match event {
            LinkEvent::Up { peer, instance, proof, .. } if engine.connection.is_connection_oriented() => {
                let (connection, mut effects) = engine.connection_and_effects(self.sink);
                connection.link_up(id, peer, instance, proof, &mut effects);
            }
            LinkEvent::Up { peer, instance, proof, has_ended } => {
                engine.link_up(id, peer, instance, proof, has_ended, self.sink);
            }
            LinkEvent::Confirmed => {
                if let Some(link) = engine.links.get_mut(id) {
                    link.mark_proven();
                }
                engine.receive_side.peer_proven(id);
                engine.connection.confirm_link(id);
            }
            LinkEvent::Down(error) => {
                let (connection, mut effects) = engine.connection_and_effects(self.sink);
                if !connection.end_if_handshake_link(id, &error, &mut effects) {
                    engine.link_lost(id, &error, self.sink);
                }
            }
        }
    }
}
