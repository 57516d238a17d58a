//! The initiator's side of access to regions: `fi_rma(3)`.
//!
//! ```text
//!  queued --Write--> (being taken) --> Sent --Answer--> ended
//!     |
//!     +----Offer---> Offered --Answer--> ended
//!     |                 |
//!     |                 +--Clear--> Cleared --Data--> Sent --Answer--> ended
//!     |
//!     +----Read----> Requested --ReadData ... Answer--> ended
//!     |
//!     +----Flush---> Sent --Answer--> ended
//! ```
//!
//! An access waits in its peer's queue, among the sends. Only a write with remote data needs
//! credit: its completion takes memory at the target. At any completion level, an access by frames
//! ends with the target's answer, since the target may refuse the access. The number of unanswered
//! accesses on a link is limited. `direct.rs` accesses mapped memory without frames.

use super::Engine;
use super::transmit::Taken;
use crate::completion::Sink;
use crate::link::{FrameKind, Link, LinkAccess, RequestStage, op_number_of};
use crate::mutated;
use crate::operation::{AccessKind, OneSided, Send, SendId};
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{Full, LinkCaps, LinkId, RemotePayload, Sent, Transport};
use crate::wire::{Header, Outcome, Rma, RmaKind};

impl Engine {
    /// Gives a link the access that is first in its peer's queue.
    pub(super) fn transmit_rma(
        &mut self,
        id: LinkId,
        send_id: SendId,
        caps: &LinkCaps,
        transport: &mut impl Transport,
    ) -> Taken {
        let (Some(send), Some(link)) = (self.initiator.get(send_id), self.links.get_mut(id)) else {
            return Taken::Nothing;
        };
        let Some(one_sided) = &send.one_sided else { return Taken::Nothing };
        if let AccessKind::Atomic { form, .. } = one_sided.kind {
            return self.transmit_atomic(id, send_id, form, caps, transport);
        }
        let access = LinkAccess::of(send);
        if !link.tx.may_begin_access(&access) {
            return Taken::Nothing;
        }
        let (sent, stage) = if let AccessKind::Flush(_) = one_sided.kind {
            let flush = rma_header(send_id, send, one_sided, RmaKind::Flush);
            (whole_or_full(transport.send_inline(id, &flush, &[])), RequestStage::Sent)
        } else if let AccessKind::Read(_) = one_sided.kind {
            let request = rma_header(send_id, send, one_sided, RmaKind::Read);
            (whole_or_full(transport.send_inline(id, &request, &[])), RequestStage::Requested)
        } else if let Some((remote, remote_bytes)) =
            expose_write_payload(id, send_id, send, link, caps, transport)
        {
            let kind = RmaKind::Offer { data: send.message.data, remote_bytes };
            let offer = rma_header(send_id, send, one_sided, kind);
            let sent = whole_or_full(transport.send_inline(id, &offer, remote.as_bytes()));
            if sent == Sent::Full {
                link.tx.keep_exposed_description(send_id, remote);
            }
            (sent, RequestStage::Offered)
        } else {
            let write = rma_header(send_id, send, one_sided, RmaKind::Write { data: send.message.data });
            let sent = match send.source.contiguous() {
                Some(bytes) if bytes.len() <= caps.inline_max_bytes => {
                    whole_or_full(transport.send_inline(id, &write, bytes))
                }
                _ => {
                    let mut slices = send.source.slices(0);
                    if mutated!("fi_rma/rma-vectors") {
                        slices.reverse();
                    }
                    transport.send(id, &write, &slices)
                }
            };
            // The peer must not answer before the end of the frame. At the stage `Cleared` the
            // engine accepts no answer.
            let is_cut = matches!(sent, Sent::Partial(_));
            (sent, if is_cut { RequestStage::Cleared } else { RequestStage::Sent })
        };
        if sent == Sent::Full {
            return Taken::Nothing;
        }
        if let Sent::Partial(taken_bytes) = sent {
            link.tx.record_partial_frame(FrameKind::Data, send_id, taken_bytes);
        }
        let begun = link.tx.record_access_begun(send_id, &access, stage, self.config.transmit_order);
        self.initiator.record_access_begun(send_id, stage, begun);
        if sent == Sent::Whole { Taken::Whole } else { Taken::Partly }
    }

    /// Begins a piece of read data. Ends the link if this side has not asked for the piece.
    pub(super) fn begin_read_data_or_abort_link(
        &mut self,
        id: LinkId,
        op: u64,
        len_bytes: u64,
        sink: &mut impl Sink,
    ) {
        let Some(link) = self.links.get_mut(id) else { return };
        // The stage of a fetching atomic operation is `Sent`: its operands were sent.
        let is_asked = |stage| matches!(stage, RequestStage::Requested | RequestStage::Sent);
        let asked = link.tx.send_and_stage_of(op).filter(|(_, stage)| is_asked(*stage));
        let piece = asked.and_then(|(send, _)| self.initiator.next_read_piece(send, len_bytes));
        match piece {
            Some(piece) => link.rx.begin_read_piece(piece),
            None => self.abort_breached_link(id, "sends what was not to be read", sink),
        }
    }

    /// Handles the target's answer to an access.
    pub(super) fn answer_arrived(&mut self, id: LinkId, op: u64, outcome: Outcome, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let is_due =
            |(send, stage): &(SendId, RequestStage)| self.initiator.is_answer_allowed(*send, *stage, outcome);
        let found = link.tx.send_and_stage_of(op).filter(is_due);
        let Some((send_id, _)) = found else {
            return self.abort_breached_link(id, "answers what was not asked for", sink);
        };
        self.record_access_end(id, send_id);
        self.end_with_answer(id, send_id, outcome, sink);
    }

    /// Handles the target's answer to counted writes.
    pub(super) fn written_arrived(&mut self, id: LinkId, count: u64, outcome: Outcome, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let peer = link.peer();
        match link.tx.record_written(count, outcome) {
            Ok(ops) => {
                let (initiator, mut effects) = self.initiator_and_effects(sink);
                initiator.end_counted_writes_with_answer(ops, peer, outcome, &mut effects);
                if outcome != Outcome::Done {
                    self.end_connection_if_failed(sink);
                }
            }
            Err(ProtocolViolation(reason)) => self.abort_breached_link(id, reason, sink),
        }
    }

    /// Tells the link that the peer has answered an access.
    #[inline]
    pub(super) fn record_access_end(&mut self, id: LinkId, send_id: SendId) {
        if let Some(link) = self.links.get_mut(id)
            && let Some(send) = self.initiator.get(send_id)
            && let Some(one_sided) = &send.one_sided
        {
            let order = self.config.transmit_order;
            link.tx.record_access_end(send_id, &LinkAccess::of(send), one_sided.begun, order);
        }
    }

    /// Ends an operation with the peer's answer.
    #[inline(always)]
    pub(super) fn end_with_answer(
        &mut self,
        id: LinkId,
        send: SendId,
        outcome: Outcome,
        sink: &mut impl Sink,
    ) {
        if outcome != Outcome::Done {
            return self.fail_with_answer(id, send, outcome, sink);
        }
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.end_with_success(send, &mut effects);
    }

    /// Fails an operation with the peer's answer.
    #[cold]
    fn fail_with_answer(&mut self, id: LinkId, send: SendId, outcome: Outcome, sink: &mut impl Sink) {
        let Some(peer) = self.links.get(id).map(Link::peer) else { return };
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.end_with_answer(send, peer, outcome, &mut effects);
        self.end_connection_if_failed(sink);
    }
}

/// Returns the header of an access of this kind.
#[inline]
fn rma_header(send_id: SendId, send: &Send, one_sided: &OneSided, kind: RmaKind) -> Header {
    let OneSided { key, address, .. } = *one_sided;
    let (op, len_bytes, durable) = (op_number_of(send_id), send.message.len_bytes, one_sided.kind.durable());
    Header::Rma(Rma { op, key, address, len_bytes, kind, durable })
}

/// Exposes the payload of a write, if the peer is to pull it. Returns the description of the
/// exposed memory, and the length of the description. Returns `None` if the payload travels with
/// the write.
#[inline]
fn expose_write_payload(
    id: LinkId,
    send_id: SendId,
    send: &Send,
    link: &mut Link,
    caps: &LinkCaps,
    transport: &mut impl Transport,
) -> Option<(RemotePayload, u8)> {
    let len_bytes = send.message.len_bytes;
    let exposed = link.tx.take_exposed_description(send_id).or_else(|| {
        let is_offered = send.may_be_fetched
            && len_bytes >= caps.pull_min_bytes as u64
            && len_bytes > 0
            && link.tx.may_expose();
        if is_offered { transport.expose(id, &send.source.slices(0)) } else { None }
    });
    let remote = exposed.filter(|remote| remote.as_bytes().len() <= caps.inline_max_bytes)?;
    let remote_bytes = u8::try_from(remote.as_bytes().len()).ok()?;
    Some((remote, remote_bytes))
}

pub(super) fn whole_or_full(sent: Result<(), Full>) -> Sent {
    match sent {
        Ok(()) => Sent::Whole,
        Err(Full) => Sent::Full,
    }
}
