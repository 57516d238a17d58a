//! The engine's numbers for other endpoints.

/// Another endpoint that this endpoint knows, numbered by the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// Returns the number, which is small enough to index a table with an entry for each peer.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
