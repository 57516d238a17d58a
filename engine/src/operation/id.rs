//! The numbers by which the engine names what is under way.

use slotmap::new_key_type;

new_key_type! {
    /// Names a send operation until it ends.
    pub(crate) struct SendId;
    /// Names a receive operation until it ends.
    pub(crate) struct ReceiveId;
    /// Names a message that has arrived before a receive for it was posted.
    pub(crate) struct UnexpectedId;
    /// Names a message whose sender asked for it to be fetched, until all of it is there.
    pub(crate) struct FetchId;
    /// Names what a peer is writing to a region, until all of it is there.
    pub(crate) struct InboundId;
}
