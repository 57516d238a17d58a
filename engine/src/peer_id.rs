//! How the engine names the other endpoints.

/// An endpoint that this endpoint knows, numbered by the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// The number, small enough to index a table that has an entry for each peer.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
