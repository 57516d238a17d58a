//! The peers that parts of the engine refer to.

use crate::peer_id::PeerId;

/// A set of peers to keep. Before a sweep of the table, each part of the engine adds the peers whose ids it
/// holds.
#[derive(Debug)]
pub(crate) struct PeerMarks {
    /// Whether the set has the peer, by id.
    by_id: Vec<bool>,
}

impl PeerMarks {
    pub(super) fn for_ids_below(count: usize) -> PeerMarks {
        PeerMarks { by_id: vec![false; count] }
    }

    /// Adds peers to the set.
    pub(crate) fn mark(&mut self, peers: impl IntoIterator<Item = PeerId>) {
        for peer in peers {
            self.by_id[peer.index()] = true;
        }
    }

    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.by_id[peer.index()]
    }
}
