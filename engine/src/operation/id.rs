//! The engine's ids of operations and messages that are under way.

use slotmap::new_key_type;

new_key_type! {
    /// Names a send operation until it ends.
    pub(crate) struct SendId;
    /// Names a receive operation until it ends.
    pub(crate) struct ReceiveId;
    /// Names a message that has arrived before a receive for it was posted.
    pub(crate) struct UnexpectedId;
    /// Names a payload that a peer has offered, until all of the payload has arrived.
    pub(crate) struct FetchId;
    /// Names a peer's write to a region, until all of its payload has arrived.
    pub(crate) struct PeerWriteId;
}
