//! The engine's ids of other endpoints.

/// The id of another endpoint that this endpoint knows. The engine numbers its peers. Once it has
/// forgotten a peer, it may give the peer's number to a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// Returns the number of the peer. It is small enough to index a table with an entry for each
    /// peer.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
