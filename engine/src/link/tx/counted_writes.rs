//! The short writes that the peer answers by count: injected writes, which report no success.

use super::LinkTx;
use super::message_mark::MessageMark;
use super::order::OpClass;
use crate::flags::Order;
use crate::limits::{COUNTED_WRITES_LINK_MAX_OPS, MESSAGE_COST_BYTES};
use crate::protocol_violation::ProtocolViolation;
use crate::wire::Outcome;

/// The counted writes of a link. They are numbered from 1.
#[derive(Debug, Default)]
pub(super) struct CountedWrites {
    /// How many the link has taken.
    sent_ops: u64,
    /// How many the peer has answered.
    answered_ops: u64,
    /// The messages that the link had taken before the last of these writes.
    messages_before_last: MessageMark,
}

impl CountedWrites {
    /// Returns how many the peer has not answered.
    #[inline(always)]
    pub(super) fn unanswered_ops(&self) -> u64 {
        self.sent_ops - self.answered_ops
    }
}

impl LinkTx {
    /// Whether the link may take a counted write now, if it has room. `with_data` says whether the write
    /// carries remote data, which costs credit.
    #[inline(always)]
    pub(crate) fn may_begin_counted_write(&self, with_data: bool, order: Order) -> bool {
        self.writing.is_none()
            && self.counted_writes.unanswered_ops() < COUNTED_WRITES_LINK_MAX_OPS
            && (!with_data || self.credit_bytes() >= MESSAGE_COST_BYTES)
            && !self.postponed.holds(OpClass::Write, order)
    }

    /// Records that the link took a counted write that
    /// [`may_begin_counted_write`](Self::may_begin_counted_write) allowed.
    #[inline(always)]
    pub(crate) fn record_counted_write(&mut self, with_data: bool) {
        if with_data {
            self.credit.spend(MESSAGE_COST_BYTES);
        }
        self.taken_frames += 1;
        self.counted_writes.sent_ops += 1;
        self.counted_writes.messages_before_last = self.message_mark();
    }

    /// Records the peer's answer to the counted writes up to the number `count`. Returns how many of them
    /// were unanswered.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the link has not taken so many, or if the peer has answered more before.
    /// Also if the answer refuses a write that was answered before.
    pub(crate) fn record_written(&mut self, count: u64, outcome: Outcome) -> Result<u64, ProtocolViolation> {
        let CountedWrites { sent_ops, answered_ops, messages_before_last } = &mut self.counted_writes;
        let newly_answered_ops = count.checked_sub(*answered_ops).filter(|_| count <= *sent_ops);
        let newly_answered_ops = newly_answered_ops
            .filter(|newly_answered_ops| *newly_answered_ops > 0 || outcome == Outcome::Done);
        let newly_answered_ops =
            newly_answered_ops.ok_or(ProtocolViolation("answers writes that were not sent"))?;
        *answered_ops = count;
        if count == *sent_ops {
            // So the peer also has all messages that the link took before these writes.
            self.arrived.advance_to(*messages_before_last);
        }
        Ok(newly_answered_ops)
    }
}
