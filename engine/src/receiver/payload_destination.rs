//! The destination of an arriving message.

use crate::operation::{ReceiveId, UnexpectedId};

/// Where the bytes of an arriving message go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadDestination {
    Posted(ReceiveId),
    Unexpected(UnexpectedId),
    /// Nowhere: it was discarded before all of it had arrived.
    Nowhere,
}
