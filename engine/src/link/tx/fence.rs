//! Fences, and the messages before them.

use super::LinkTx;
use crate::protocol_violation::ProtocolViolation;
use crate::wire::AwaitedReply;

/// Whether the sender has asked about the messages before a fence, and whether the peer has
/// answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fence {
    /// The peer was not asked.
    #[default]
    Open,
    /// The peer was asked, and has not answered. Before the fence, the link had taken
    /// `taken_frames` frames.
    Asked { matched: bool, taken_frames: u64 },
    /// The first `taken_frames` frames have arrived and, if `matched`, receives have matched them.
    Met { matched: bool, taken_frames: u64 },
}

impl LinkTx {
    /// Whether all operations that the link has taken have completed.
    pub(crate) fn all_operations_have_completed(&self) -> bool {
        self.writing.is_none()
            && self.requests.is_empty()
            && self.counted_writes.unanswered_ops() == 0
            && self.awaited_sends.has_no_waiting_sends()
    }

    /// Whether this side knows that all operations on the link have reached the completion level of
    /// a fenced operation. `awaits` is the reply that this level requires.
    pub(crate) fn all_operations_have_reached_level(&self, awaits: AwaitedReply) -> bool {
        match self.fence {
            _ if !awaits.wants_answer() => true,
            Fence::Met { matched, taken_frames } => {
                taken_frames == self.taken_frames && (matched || !awaits.wants_match())
            }
            _ => self.taken_frames == 0,
        }
    }

    /// Whether the link has taken a fence that the peer has not answered.
    pub(crate) fn is_fence_unanswered(&self) -> bool {
        matches!(self.fence, Fence::Asked { .. })
    }

    /// Records that the link took a fence. The fence asks whether all frames before it have arrived
    /// or, if `asks_match`, were matched.
    pub(crate) fn record_fence_sent(&mut self, asks_match: bool) {
        self.fence = Fence::Asked { matched: asks_match, taken_frames: self.taken_frames };
    }

    /// Records the peer's answer to the fence.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if no fence was sent.
    pub(crate) fn record_fence_answer(&mut self) -> Result<(), ProtocolViolation> {
        let Fence::Asked { matched, taken_frames } = self.fence else {
            return Err(ProtocolViolation("answers a fence that was not sent"));
        };
        self.fence = Fence::Met { matched, taken_frames };
        Ok(())
    }
}
