//! Atomic operations as endpoints post them.

use homespun_engine::operation::{AtomicLocal, AtomicRequest, Level};
use homespun_engine::peer_id::PeerId;

use crate::endpoint::AtomicTarget;

/// An atomic operation as an endpoint posts it.
pub(crate) struct AtomicPost {
    pub(crate) target: AtomicTarget,
    pub(crate) local: AtomicLocal,
    pub(crate) context: u64,
    pub(crate) level: Level,
    pub(crate) signalled: bool,
    pub(crate) inject: bool,
    /// As [`SendPost::fence`](super::SendPost::fence).
    pub(crate) fence: bool,
    /// As [`SendPost::more`](super::SendPost::more).
    pub(crate) more: bool,
}

impl AtomicPost {
    /// The same for the engine, which knows the peer by another name.
    pub(super) fn request(self, to: PeerId) -> AtomicRequest {
        let AtomicPost { target, local, context, level, signalled, inject, fence, .. } = self;
        let AtomicTarget { key, address, op, datatype, .. } = target;
        AtomicRequest { to, local, op, datatype, key, address, context, level, signalled, inject, fence }
    }
}
