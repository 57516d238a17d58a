//! The peers that the receiver of one endpoint refers to.

use super::Receiver;
use crate::peers::PeerMarks;

impl Receiver {
    /// Marks the peers that links, receives, messages or held reports refer to.
    pub(crate) fn mark_peers(&self, marks: &mut PeerMarks) {
        marks.mark(self.peers_in_use());
        marks.mark(self.held.peers());
    }
}
