//! The watch for a failed operation that ends its connection.

/// Whether a failed operation ends the connection, and whether one has failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FailureWatch {
    /// Each operation fails alone.
    #[default]
    Off,
    On,
    /// An operation has failed, and the caller has not ended the connection yet.
    Failed,
}

impl FailureWatch {
    /// Records that an operation has failed. Returns whether this is the first failure of the watch.
    pub(crate) fn record_failure(&mut self) -> bool {
        let is_first = *self == FailureWatch::On;
        if is_first {
            *self = FailureWatch::Failed;
        }
        is_first
    }
}
