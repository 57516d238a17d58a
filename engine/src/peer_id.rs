//! The engine's ids of other endpoints.

/// The id of another endpoint that this endpoint knows. The engine numbers them, and gives the number of a
/// peer that it has forgotten to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// Returns the number of the peer. It is small enough to index a table with an entry for each
    /// peer.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
