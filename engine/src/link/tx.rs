//! What is being written to a link, and what of it the peer has not answered.

mod allowance;
mod fence;
mod levels;
mod mapped;
mod message_mark;
mod order;
mod requests;

use self::allowance::Allowance;
use self::fence::Fence;
use self::levels::Levels;
pub(crate) use self::mapped::Mapped;
use self::mapped::MappedRegions;
pub(crate) use self::message_mark::MessageMark;
use self::order::Deferred;
pub(crate) use self::order::OpClass;
use self::requests::Requests;
pub(crate) use self::requests::{RequestStage, SendProtocol, op_of};
use super::Debts;
use crate::breach::Breach;
use crate::limits::{ATOMIC_LINK_MAX_BYTES, RMA_LINK_MAX_OPS};
use crate::operation::SendId;

/// The sending half of a link.
#[derive(Debug, Default)]
pub(crate) struct LinkTx {
    /// The frame that the link has taken in part.
    writing: Option<PartialFrame>,
    /// How many messages and accesses were begun, or asked to be fetched.
    taken_frames: u64,
    /// What may be sent.
    allowance: Allowance,
    /// Eager messages, and how far the peer has come with them.
    levels: Levels,
    /// How many payloads that the peer has asked for the link has taken, and the peer does not answer.
    unanswered_payloads: u64,
    /// What of messages the peer is known to have, since it has answered what came after.
    known: MessageMark,
    /// What this side knows of all messages.
    fence: Fence,
    /// What was offered to be fetched, and accesses to the peer's memory.
    requests: Requests,
    /// How many accesses the peer has not answered.
    outstanding_ops: usize,
    /// How much of the peer's memory those of them that are atomic operations fetch.
    outstanding_bytes: usize,
    /// What holds up operations that must not overtake it.
    deferred: Deferred,
    /// Regions of the peer that are accessed without frames.
    mapped: MappedRegions,
    /// What the peer waits to hear.
    debts: Debts,
}

/// A frame that a link has taken in part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartialFrame {
    pub(crate) frame: Frame,
    /// The operation that it belongs to, if it belongs to one.
    pub(crate) send: SendId,
    pub(crate) taken_bytes: usize,
}

/// What a frame with payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message, eagerly.
    Message,
    /// What the peer has asked for, or what is written to its memory.
    Data,
    /// What the peer reads of this side's memory. It belongs to no send.
    ReadData,
}

/// The operations that have not ended of a link that has.
#[derive(Debug)]
pub(crate) struct UnendedSends {
    /// What the peer can no longer read.
    pub(crate) sends: Vec<SendId>,
    /// What it may still read from where it is.
    pub(crate) exposed: Vec<SendId>,
}

impl LinkTx {
    /// What the peer waits to hear.
    #[inline(always)]
    pub(crate) fn debts(&self) -> &Debts {
        &self.debts
    }

    /// What the peer waits to hear.
    #[inline(always)]
    pub(crate) fn debts_mut(&mut self) -> &mut Debts {
        &mut self.debts
    }

    /// Whether the link is between two frames.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.writing.is_none()
    }

    /// The frame that the link has taken in part.
    #[inline(always)]
    pub(crate) fn writing(&self) -> Option<PartialFrame> {
        self.writing
    }

    /// The link has taken the beginning of a frame.
    pub(crate) fn begin_writing(&mut self, frame: Frame, send: SendId, taken_bytes: usize) {
        self.writing = Some(PartialFrame { frame, send, taken_bytes });
    }

    /// The link has taken more of the frame that it had taken in part.
    pub(crate) fn written(&mut self, more_bytes: usize) {
        if let Some(writing) = &mut self.writing {
            writing.taken_bytes += more_bytes;
        }
    }

    /// The link has taken the rest of the frame that it had taken in part.
    pub(crate) fn end_writing(&mut self) {
        self.writing = None;
    }

    /// Whether a message or an access was begun, or asked to be fetched.
    pub(crate) fn has_taken_any(&self) -> bool {
        self.taken_frames > 0
    }

    /// How much credit is left.
    #[inline(always)]
    pub(crate) fn credit_bytes(&self) -> u64 {
        self.allowance.left_bytes()
    }

    /// The peer has raised the credit that it has granted in all.
    ///
    /// # Errors
    ///
    /// A [`Breach`] if that is less than before.
    pub(crate) fn credited(&mut self, granted_bytes: u64) -> Result<(), Breach> {
        if self.allowance.raise(granted_bytes) { Ok(()) } else { Err(Breach("takes credit back")) }
    }

    /// Whether a message that is not held up by others could be begun now, if there is credit for it.
    #[inline(always)]
    pub(crate) fn may_begin_message(&self) -> bool {
        self.writing.is_none() && !self.deferred.holds_sends()
    }

    /// The link has begun to take an eager message.
    #[inline(always)]
    pub(crate) fn message_begun(&mut self, cost_bytes: u64) {
        self.levels.begin();
        self.taken_frames += 1;
        self.allowance.spend(cost_bytes);
    }

    /// Whether an access may begin now, with this cost and, for an atomic operation, this many
    /// fetched bytes.
    pub(crate) fn may_begin_access(&self, cost_bytes: u64, fetched_bytes: usize) -> bool {
        self.outstanding_ops < RMA_LINK_MAX_OPS
            && self.outstanding_bytes + fetched_bytes <= ATOMIC_LINK_MAX_BYTES
            && self.credit_bytes() >= cost_bytes
    }

    /// The link has begun to take an access, which [may be begun](Self::may_begin_access). Returns
    /// what it had taken of messages before it.
    pub(crate) fn access_begun(
        &mut self,
        send: SendId,
        stage: RequestStage,
        cost_bytes: u64,
        fetched_bytes: usize,
    ) -> MessageMark {
        self.allowance.spend(cost_bytes);
        self.taken_frames += 1;
        self.outstanding_ops += 1;
        self.outstanding_bytes += fetched_bytes;
        self.requests.begin(send, stage);
        self.taken()
    }

    /// The peer has answered an access that began `after` this mark.
    pub(crate) fn access_ended(&mut self, send: SendId, fetched_bytes: usize, after: MessageMark) {
        self.requests.end(send);
        self.outstanding_ops -= 1;
        self.outstanding_bytes -= fetched_bytes;
        // All that the link had taken before has arrived.
        self.known.advance_to(after);
    }

    /// Whether the peer has answered all accesses.
    #[inline(always)]
    pub(crate) fn has_no_accesses(&self) -> bool {
        self.outstanding_ops == 0
    }

    /// Whether the peer is known to have all of every message that the link has taken. An access
    /// that needs no frame overtakes the others.
    pub(crate) fn all_messages_have_arrived(&self) -> bool {
        let have_eager = self.known.messages.max(self.levels.acked_messages()) == self.levels.sent_messages();
        have_eager && self.known.payloads == self.unanswered_payloads && self.requests.is_empty()
    }

    /// What the link has taken of messages. It is not in the middle of one.
    fn taken(&self) -> MessageMark {
        MessageMark { messages: self.levels.sent_messages(), payloads: self.unanswered_payloads }
    }

    #[cfg(test)]
    pub(crate) fn outstanding_accesses(&self) -> (usize, usize) {
        (self.outstanding_ops, self.outstanding_bytes)
    }

    /// Regions of the peer that are accessed without frames.
    #[inline(always)]
    pub(crate) fn mapped(&self) -> &MappedRegions {
        &self.mapped
    }

    /// Regions of the peer that are accessed without frames.
    pub(crate) fn mapped_mut(&mut self) -> &mut MappedRegions {
        &mut self.mapped
    }

    /// The link has ended.
    pub(crate) fn into_unended(self) -> UnendedSends {
        // Names every field, so that none with operations is forgotten: they would never end.
        let LinkTx {
            writing,
            levels,
            requests,
            taken_frames: _,
            allowance: _,
            unanswered_payloads: _,
            known: _,
            fence: _,
            outstanding_ops: _,
            outstanding_bytes: _,
            deferred: _,
            mapped: _,
            debts: _,
        } = self;
        let mut sends = levels.into_sends();
        // Payload that the peer has asked for belongs to a request.
        let mid_message = writing.filter(|writing| writing.frame == Frame::Message);
        sends.extend(mid_message.map(|writing| writing.send));
        UnendedSends { sends, exposed: requests.into_sends() }
    }
}
