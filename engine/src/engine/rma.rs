//! The initiator's side of access to regions: `fi_rma(3)`.
//!
//! ```text
//!  queued --Write--> (being taken) --> Sent --Answer--> ended
//!     |
//!     +----Offer---> Exposed --Answer--> ended
//!     |                 |
//!     |                 +--Clear--> Cleared --Data--> Sent --Answer--> ended
//!     |
//!     +----Read----> Requested --ReadData ... Answer--> ended
//! ```
//!
//! An access waits in its peer's queue like a send, and travels in its order. Only a write with
//! remote data needs credit, for the completion at the target; other accesses need no new memory.
//! An access ends with its answer, at any level: only then the initiator knows that the target did
//! not refuse it. The number of unanswered accesses on a link is limited.

use super::Engine;
use super::direct::Attempt;
use crate::buffer::Source;
use crate::completion::Sink;
use crate::error::{Again, Misuse};
use crate::limits::MESSAGE_COST_BYTES;
use crate::link::{Frame, Link, MessageMark, OpClass, RequestStage, op_number_of};
use crate::operation::{Level, OneSided, RmaLocal, RmaRequest, Send, SendId};
use crate::rejected::Rejected;
use crate::remote_memory::RemoteMemory;
use crate::transport::{Full, LinkCaps, LinkId, RemotePayload, Sent, Transport};
use crate::wire::{Durable, Header, Message, Outcome, Rma, RmaKind};

/// How much of an access a link has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessSent {
    /// The link has taken the whole frame.
    Whole,
    /// The link has begun to take the payload.
    Partly,
    /// Nothing: the link has no room, or too many accesses of the target are unanswered.
    Nothing,
}

impl Engine {
    /// Posts an access to a region of a peer. If nothing is queued before it, the transport gets it
    /// at once.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    pub fn post_rma(
        &mut self,
        request: RmaRequest,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Rejected<RmaLocal>> {
        self.post_rma_after_attempt(Attempt::NotMade, request, transport, sink)
    }

    /// As [`post_rma`](Self::post_rma), after an attempt to carry the access out at once, which is
    /// not repeated.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    pub fn post_rma_after_attempt(
        &mut self,
        attempt: Attempt,
        mut request: RmaRequest,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Rejected<RmaLocal>> {
        let len_bytes = request.local.len_bytes() as u64;
        let max_bytes = self.config.message_max_bytes;
        if len_bytes > max_bytes {
            let error = Misuse::TooLong { len_bytes, max_bytes }.into();
            return Err(Rejected { error, returned: request.local });
        }
        if self.outstanding_sends() >= self.config.tx_depth_ops {
            return Err(Rejected { error: Again::QueueFull.into(), returned: request.local });
        }
        let RmaRequest { to, key, address, level, fence, .. } = request;
        let is_direct = attempt == Attempt::NotMade
            && self.try_direct_access(to, &mut request.local, RemoteMemory { key, address }, level, fence);
        if is_direct {
            let (initiator, mut effects) = self.initiator_and_effects(sink);
            initiator.access_completed_at_once(request, &mut effects);
            return Ok(());
        }
        let RmaRequest { to: _, local, key: _, address: _, context, level: _, signalled, inject, fence: _ } =
            request;
        let (source, data, read) = match local {
            RmaLocal::Write { source, data } => (source, data, None),
            RmaLocal::Read(destination) => (Source::default(), None, Some((destination, 0))),
        };
        let durable = match (level, &read) {
            (Level::Commit, None) if fence => Durable::Everything,
            (Level::Commit, None) => Durable::Written,
            _ => Durable::Nothing,
        };
        let send = Send {
            source,
            message: Message { data, awaits: level.awaited_reply(), ..Message::of_len(len_bytes) },
            context,
            signalled,
            may_be_fetched: !inject,
            fence,
            turn: self.initiator.take_turn(to),
            one_sided: Some(Box::new(OneSided {
                key,
                address,
                read,
                atomic: None,
                durable,
                is_deferred: false,
                after: MessageMark::default(),
            })),
        };
        let id = self.initiator.enqueue(to, send);
        if self.transmit_to(to, transport, sink) {
            self.initiator.activate(to);
        }
        if inject && let Some(send) = self.initiator.get_mut(id) {
            send.source.detach();
        }
        Ok(())
    }

    /// Gives a link the access that is its peer's first queued send.
    pub(super) fn transmit_rma(
        &mut self,
        id: LinkId,
        send_id: SendId,
        caps: &LinkCaps,
        transport: &mut impl Transport,
    ) -> AccessSent {
        let (Some(send), Some(link)) = (self.initiator.get_mut(send_id), self.links.get_mut(id)) else {
            return AccessSent::Nothing;
        };
        let effect = OpClass::of(send);
        let Some(one_sided) = &mut send.one_sided else { return AccessSent::Nothing };
        if let Some(form) = one_sided.atomic {
            return self.transmit_atomic(id, send_id, form, caps, transport);
        }
        let Message { len_bytes, data, .. } = send.message;
        let cost_bytes = if data.is_some() { MESSAGE_COST_BYTES } else { 0 };
        if !link.tx.may_begin_access(cost_bytes, 0) {
            return AccessSent::Nothing;
        }
        let OneSided { key, address, durable, .. } = **one_sided;
        let op = op_number_of(send_id);
        let header = |kind: RmaKind| Header::Rma(Rma { op, key, address, len_bytes, kind, durable });
        let exposed_before = link.tx.take_exposed(send_id);
        let is_read = one_sided.read.is_some();
        let is_offered = !is_read
            && send.may_be_fetched
            && len_bytes >= caps.pull_min_bytes as u64
            && len_bytes > 0
            && link.tx.may_expose();
        let exposed = match exposed_before {
            Some(remote) => Some(remote),
            None if is_offered => transport.expose(id, &send.source.slices(0)),
            None => None,
        };
        let exposed = exposed.filter(|remote| remote.as_bytes().len() <= caps.inline_max_bytes);
        let remote_bytes = |remote: &RemotePayload| u8::try_from(remote.as_bytes().len()).ok();
        let (sent, stage) = if is_read {
            (whole_or_full(transport.send_inline(id, &header(RmaKind::Read), &[])), RequestStage::Requested)
        } else if let Some(remote) = exposed
            && let Some(remote_bytes) = remote_bytes(&remote)
        {
            let offer = header(RmaKind::Offer { data, remote_bytes });
            let sent = whole_or_full(transport.send_inline(id, &offer, remote.as_bytes()));
            if sent == Sent::Full {
                link.tx.keep_exposed(send_id, remote);
            }
            (sent, RequestStage::Exposed)
        } else {
            let write = header(RmaKind::Write { data });
            let sent = match send.source.contiguous() {
                Some(bytes) if bytes.len() <= caps.inline_max_bytes => {
                    whole_or_full(transport.send_inline(id, &write, bytes))
                }
                _ => transport.send(id, &write, &send.source.slices(0)),
            };
            match sent {
                Sent::Partial(taken_bytes) => {
                    link.tx.begin_writing(Frame::Data, send_id, taken_bytes);
                    // An answer before the end of the frame would break the protocol.
                    (sent, RequestStage::Cleared)
                }
                Sent::Whole => {
                    send.source.release();
                    (sent, RequestStage::Sent)
                }
                Sent::Full => (sent, RequestStage::Sent),
            }
        };
        if sent == Sent::Full {
            return AccessSent::Nothing;
        }
        one_sided.after = link.tx.access_begun(send_id, stage, cost_bytes, 0);
        let order = self.config.transmit_order;
        one_sided.is_deferred =
            link.tx.record_if_deferred(effect, stage == RequestStage::Exposed, len_bytes, order);
        if sent == Sent::Whole { AccessSent::Whole } else { AccessSent::Partly }
    }

    /// Begins a piece of a read. Ends the link if this side has not asked for the piece.
    pub(super) fn begin_read_data(&mut self, id: LinkId, op: u64, len_bytes: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        // A fetching atomic operation is at the stage `Sent`, since its operands were sent.
        let is_asked = |stage| matches!(stage, RequestStage::Requested | RequestStage::Sent);
        let asked = link.tx.send_and_stage_of(op).filter(|(_, stage)| is_asked(*stage));
        let piece = asked.and_then(|(send, _)| self.initiator.next_read_piece(send, len_bytes));
        match piece {
            Some(piece) => link.rx.begin_read_piece(piece),
            None => self.condemn(id, "sends what was not to be read", sink),
        }
    }

    /// Handles the target's answer to an access.
    pub(super) fn rma_answered(&mut self, id: LinkId, op: u64, outcome: Outcome, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let is_due =
            |(send, stage): &(SendId, RequestStage)| self.initiator.is_answer_allowed(*send, *stage, outcome);
        let found = link.tx.send_and_stage_of(op).filter(is_due);
        let Some((send_id, _)) = found else {
            return self.condemn(id, "answers what was not asked for", sink);
        };
        if let Some(send) = self.initiator.get(send_id)
            && let Some(one_sided) = &send.one_sided
        {
            link.tx.access_ended(send_id, send.fetch_len_bytes(), one_sided.after);
            if one_sided.is_deferred {
                link.tx.deferred_ended(OpClass::of(send), self.config.transmit_order);
            }
        }
        self.answered(id, send_id, outcome, sink);
    }

    /// Ends an operation that the peer has answered.
    #[inline(always)]
    pub(super) fn answered(&mut self, id: LinkId, send: SendId, outcome: Outcome, sink: &mut impl Sink) {
        if outcome != Outcome::Done {
            return self.answered_with_failure(id, send, outcome, sink);
        }
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.completed(send, &mut effects);
    }

    /// Ends an operation that the peer has not carried out, by its answer.
    #[cold]
    fn answered_with_failure(&mut self, id: LinkId, send: SendId, outcome: Outcome, sink: &mut impl Sink) {
        let Some(peer) = self.links.get(id).map(Link::peer) else { return };
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.answered(send, peer, outcome, &mut effects);
    }
}

pub(super) fn whole_or_full(sent: Result<(), Full>) -> Sent {
    match sent {
        Ok(()) => Sent::Whole,
        Err(Full) => Sent::Full,
    }
}
