//! The peers that the receiver of one endpoint refers to.

use super::Receiver;
use crate::peers::PeerMarks;

impl Receiver {
    /// Marks the peers that links, receives, messages or held reports refer to.
    pub(crate) fn mark_peers(&self, marks: &mut PeerMarks) {
        // Each field is named, so that a new one is not overlooked.
        let Receiver {
            // `peers_in_use` goes through these.
            untagged: _,
            tagged: _,
            unexpected: _,
            turns: _,
            multi_receives: _,
            links: _,
            held,
            // These refer to no peers, or only to those of receives and messages.
            depth_ops: _,
            receives: _,
            has_special_cases: _,
            claimed: _,
            fetches: _,
            delayed: _,
            deferred: _,
            untried_offers: _,
            tried_at_released_bytes: _,
            budget: _,
            starved: _,
            retrying: _,
            leftovers: _,
            dropped_messages: _,
            dropped_in_step: _,
            abandoned_in_step: _,
            needs_drop_step: _,
            abandoned: _,
            end_error: _,
            failure_watch: _,
            horizon: _,
        } = self;
        marks.mark(self.peers_in_use());
        marks.mark(held.peers());
    }
}
