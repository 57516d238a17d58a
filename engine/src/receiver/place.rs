//! Where a message goes.

use crate::operation::{ReceiveId, UnexpectedId};

/// Where the bytes of an arriving message go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Posted(ReceiveId),
    Unexpected(UnexpectedId),
    /// Nowhere: it was thrown away before all of it was there.
    Nowhere,
}
