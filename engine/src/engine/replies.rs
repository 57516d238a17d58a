//! Sends the frames that peers wait for: acknowledgements, answers, credit, and data of reads.

use super::Engine;
use super::receive_side::ReceiveSide;
use crate::completion::Sink;
use crate::limits::READ_PIECE_MAX_BYTES;
use crate::link::{FrameKind, LinkTx};
use crate::link_fault::LinkFault;
use crate::operation::SendId;
use crate::target::Target;
use crate::transport::{LinkId, RemotePayload, Sent, Transport};
use crate::wire::{Header, Outcome};

/// The parts of the engine that replies come from. The receive side knows the counts of
/// acknowledgements and credit. The target has the data of reads.
struct ReplySources<'a> {
    receive_side: &'a mut ReceiveSide,
    target: &'a mut Target,
    /// A link for whose replies there is no memory.
    starved: Option<LinkId>,
}

impl Engine {
    /// Sends the pending replies of all links, as far as the links take them.
    pub(super) fn send_pending_replies(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        let mut sources = ReplySources::new(&mut self.receive_side, &mut self.target);
        self.links
            .send_pending_replies(|id, tx| sources.send_pending_replies_on_link(id, tx, transport, sink));
        if let Some(id) = sources.starved {
            self.abort_faulty_link(id, LinkFault::NoMemory, sink);
        }
    }

    /// As [`send_pending_replies`](Self::send_pending_replies), on one link. Returns whether the link
    /// can take another frame. If there is no memory, the next pass ends the link.
    pub(super) fn try_send_pending_replies_of(
        &mut self,
        id: LinkId,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> bool {
        let mut sources = ReplySources::new(&mut self.receive_side, &mut self.target);
        self.links.try_send_pending_replies_of(id, |id, tx| {
            sources.send_pending_replies_on_link(id, tx, transport, sink);
        })
    }

    /// Prepares a link for the shutdown of its connection. Drops the pending requests to the peer.
    /// Sends the pending answers to the peer's operations, unless the link is in the middle of a
    /// frame. Returns those answers without payload that the link has not taken, in order.
    #[cold]
    pub(super) fn send_last_answers_or_return_rest(
        &mut self,
        id: LinkId,
        transport: &mut impl Transport,
    ) -> Vec<Header> {
        let Some(link) = self.links.get_mut(id) else { return Vec::new() };
        let tx = &mut link.tx;
        tx.pending_replies_mut().drop_requests();
        let mut sources = ReplySources::new(&mut self.receive_side, &mut self.target);
        if tx.is_between_frames() {
            sources.send_answers(id, tx, transport);
        }
        let received = sources.receive_side.arrived_eager_count(id);
        let replies = tx.pending_replies();
        let ack = replies.is_ack_pending().then_some(Header::Ack { received });
        let count = sources.target.written_count(id);
        let written =
            replies.is_written_pending().then_some(Header::Written { count, outcome: Outcome::Done });
        ack.into_iter().chain(replies.headers_without_payload()).chain(written).collect()
    }
}

impl<'a> ReplySources<'a> {
    fn new(receive_side: &'a mut ReceiveSide, target: &'a mut Target) -> ReplySources<'a> {
        ReplySources { receive_side, target, starved: None }
    }
    /// Sends the pending replies of one link. When a read of the peer ends, may count an event at
    /// the sink.
    fn send_pending_replies_on_link(
        &mut self,
        id: LinkId,
        tx: &mut LinkTx,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) {
        let is_reading = tx.partial_frame().is_some_and(|writing| writing.kind == FrameKind::ReadData);
        if is_reading {
            self.send_read_data(id, tx, transport, sink);
        }
        if !tx.is_between_frames() {
            return;
        }
        self.send_answers(id, tx, transport);
        if tx.pending_replies().is_written_count_next() {
            self.send_written_count(id, tx, transport);
        }
        if tx.pending_replies().is_credit_grant_next() {
            let credit = Header::Credit { granted_bytes: self.receive_side.granted_bytes(id) };
            if transport.send_inline(id, &credit, &[]).is_ok() {
                tx.pending_replies_mut().record_credit_sent();
                self.receive_side.credit_sent(id);
            }
        }
        if tx.pending_replies().has_only_read_data() && !is_reading {
            self.send_read_data(id, tx, transport, sink);
        }
    }

    /// Sends answers to the peer's operations, as far as the link has room.
    #[inline(always)]
    fn send_answers(&mut self, id: LinkId, tx: &mut LinkTx, transport: &mut impl Transport) {
        let replies = tx.pending_replies_mut();
        if replies.is_ack_pending() {
            let ack = Header::Ack { received: self.receive_side.arrived_eager_count(id) };
            if transport.send_inline(id, &ack, &[]).is_err() {
                return;
            }
            replies.record_ack_sent();
        }
        while let Some(header) = replies.peek_header() {
            let payload = match header {
                Header::MappableRegion(shown) => {
                    self.target.describe_mappable_region(id, shown.key, &transport.caps(id))
                }
                _ => Some(RemotePayload::default()),
            };
            if let Some(payload) = payload
                && transport.send_inline(id, header, payload.as_bytes()).is_err()
            {
                break;
            }
            match header {
                Header::Answer { .. } => self.target.answer_sent(id),
                Header::Written { count, .. } => self.target.written_count_sent(id, *count),
                _ => {}
            }
            replies.pop_header();
        }
    }

    /// Sends the count of the peer's counted writes.
    #[inline]
    fn send_written_count(&mut self, id: LinkId, tx: &mut LinkTx, transport: &mut impl Transport) {
        let count = self.target.written_count(id);
        let written = Header::Written { count, outcome: Outcome::Done };
        if transport.send_inline(id, &written, &[]).is_ok() {
            tx.pending_replies_mut().record_written_count_sent();
            self.target.written_count_sent(id, count);
        }
    }

    /// Sends data of the peer's reads, and answers the reads that end. One call sends at most
    /// [`READ_PIECE_MAX_BYTES`], so that other frames can go in between. If the link has taken a
    /// part of a piece, the call sends only the rest of the piece. The link must not be in the
    /// middle of another frame. Without memory for a piece, the call sends no more, and remembers the
    /// link.
    fn send_read_data(
        &mut self,
        id: LinkId,
        tx: &mut LinkTx,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) {
        let mut left_bytes = READ_PIECE_MAX_BYTES as u64;
        tx.pending_replies_mut().unpause_reads();
        while let Some(reading) = self.target.next_outgoing_read(id) {
            if let Some(writing) = tx.partial_frame() {
                left_bytes = 0;
                let slices = reading.piece_slices(writing.taken_bytes);
                let Ok(sent) = slices.map(|slices| transport.resume(id, &slices)) else {
                    return self.starved = Some(id);
                };
                match sent {
                    Sent::Full => return,
                    Sent::Partial(more_bytes) => return tx.advance_partial_frame(more_bytes),
                    Sent::Whole => {
                        tx.end_partial_frame();
                        reading.record_piece_sent();
                    }
                }
            }
            let Ok(is_piece_left) = reading.prepare_piece_if_left() else {
                return self.starved = Some(id);
            };
            if !is_piece_left {
                if let Some(answer) = reading.answer_header()
                    && transport.send_inline(id, &answer, &[]).is_err()
                {
                    return;
                }
                if let Some(event) = self.target.end_outgoing_read(id)
                    && sink.has_counters()
                {
                    sink.count(event);
                }
                continue;
            }
            let piece_bytes = reading.next_piece_len_bytes();
            if piece_bytes > left_bytes {
                return tx.pending_replies_mut().pause_reads();
            }
            left_bytes -= piece_bytes;
            let header = reading.piece_header();
            let slices = reading.piece_slices(0);
            let Ok(sent) = slices.map(|slices| transport.send(id, &header, &slices)) else {
                return self.starved = Some(id);
            };
            match sent {
                Sent::Full => return,
                Sent::Whole => reading.record_piece_sent(),
                Sent::Partial(taken_bytes) => {
                    return tx.record_partial_frame(FrameKind::ReadData, SendId::default(), taken_bytes);
                }
            }
        }
        tx.pending_replies_mut().clear_read_data();
    }
}
