//! The objects that calls do not find.

/// The object that a call names, but that does not exist: ENOENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// An operation to cancel: there is none, or it can no longer be cancelled.
    #[error("no such operation, or it can no longer be cancelled")]
    Operation,
    /// Deferred work to cancel.
    #[error("no such work, or it was carried out")]
    Work,
    /// A message that a peek has claimed.
    #[error("no message was claimed with this context")]
    ClaimedMessage,
    /// The name of a domain. Every info that `getinfo` returns has one.
    #[error("the info names no domain")]
    DomainName,
    /// A queue or a counter to remove from a poll set.
    #[error("the poll set does not have the queue or the counter")]
    PollSetMember,
}
