//! The engine's ids of other endpoints.

/// The id of another endpoint that this endpoint knows: a number. Once the engine has forgotten a
/// peer, it may give the number to another peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// Returns the number of the peer. Numbers are small, so a table can have an entry for each
    /// peer.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
