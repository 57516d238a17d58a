//! The destination of an arriving message's payload.

use crate::operation::{ReceiveId, UnexpectedId};

/// Where the payload of an arriving message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadDestination {
    Posted(ReceiveId),
    Unexpected(UnexpectedId),
    /// Nowhere: the message was discarded before all of its payload had arrived.
    Nowhere,
}
