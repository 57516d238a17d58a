//! The destination of an arriving message.

use crate::operation::{ReceiveId, UnexpectedId};

/// The destination of an arriving message's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadDestination {
    Posted(ReceiveId),
    Unexpected(UnexpectedId),
    /// None: the message was discarded before all of it had arrived.
    Nowhere,
}
