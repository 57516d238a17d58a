//! Fences, and the messages before them.

use super::LinkTx;
use crate::protocol_violation::ProtocolViolation;
use crate::wire::AwaitedReply;

/// The sender's record of the messages before a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fence {
    /// The peer was not asked.
    #[default]
    Open,
    /// The peer was asked when the link had taken this many frames.
    Asked { matched: bool, taken_frames: u64 },
    /// The first `taken_frames` frames have all arrived and, if `matched`, were also matched.
    Met { matched: bool, taken_frames: u64 },
}

impl LinkTx {
    /// Whether everything that the link has taken has completed.
    pub(crate) fn has_all_completed(&self) -> bool {
        self.writing.is_none() && self.requests.is_empty() && self.awaited_sends.has_no_waiting_sends()
    }

    /// Whether everything that the link has taken has reached the level of a fenced send, as far as
    /// this side knows.
    pub(crate) fn is_known_to_reach(&self, awaits: AwaitedReply) -> bool {
        match self.fence {
            _ if !awaits.wants_answer() => true,
            Fence::Met { matched, taken_frames } => {
                taken_frames == self.taken_frames && (matched || !awaits.wants_match())
            }
            _ => self.taken_frames == 0,
        }
    }

    /// Whether the peer has not answered the fence that the link has taken.
    pub(crate) fn is_fence_unanswered(&self) -> bool {
        matches!(self.fence, Fence::Asked { .. })
    }

    /// Records that the link took a fence, which asks whether all frames before it have arrived, or
    /// were `matched`.
    pub(crate) fn fence_sent(&mut self, matched: bool) {
        self.fence = Fence::Asked { matched, taken_frames: self.taken_frames };
    }

    /// Records the peer's answer to the fence.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if it was not asked.
    pub(crate) fn fence_answered(&mut self) -> Result<(), ProtocolViolation> {
        let Fence::Asked { matched, taken_frames } = self.fence else {
            return Err(ProtocolViolation("answers a fence that was not sent"));
        };
        self.fence = Fence::Met { matched, taken_frames };
        Ok(())
    }
}
