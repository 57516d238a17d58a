//! How an access began on its link.

use super::message_mark::MessageMark;

/// How an access began. The link needs this when the access ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BegunAccess {
    /// The messages that the link had taken before.
    pub(super) after: MessageMark,
    /// Whether the target may carry the access out after later operations.
    pub(super) is_postponed: bool,
}
