//! The arguments of a send.

use bytes::Bytes;
use homespun_engine::flags::OpFlags;

use crate::av::FabricAddress;
use crate::tag::Tag;

/// A send with all options: the arguments of `fi_sendmsg` and `fi_tsendmsg`.
/// `B` is the type of the memory: `Vec<Bytes>` for [`sendmsg`](crate::Endpoint::sendmsg), `&[Segment]` for
/// [`post_send`](crate::Endpoint::post_send).
#[derive(Debug, Clone, Copy, Default)]
pub struct SendMsg<B = Vec<Bytes>> {
    /// The message, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces.
    pub buffers: B,
    /// The receiver, from the endpoint's address vector.
    pub to: FabricAddress,
    /// The tag of a tagged message.
    pub tag: Option<Tag>,
    /// Remote data for the receiver's completion.
    pub data: Option<u64>,
    /// The context of the completion.
    pub context: u64,
    /// Flags, in place of the endpoint's [default flags](crate::Endpoint::tx_op_flags). If they name no
    /// completion level, the endpoint's default level applies. If they name several, the strongest applies:
    /// for a send, [`OpFlags::MATCH_COMPLETE`] is the strongest. A default level of
    /// [`OpFlags::COMMIT_COMPLETE`] is for writes; a send then completes as with
    /// [`OpFlags::DELIVERY_COMPLETE`].
    ///
    /// With [`OpFlags::FENCE`], this send and all later operations to the same peer wait for the earlier
    /// operations to that peer. All earlier operations must have completed and have reached the completion
    /// level of this send.
    pub flags: OpFlags,
}
