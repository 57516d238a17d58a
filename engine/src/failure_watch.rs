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
    /// The connection has ended. An operation that ends later has failed with it.
    Ended,
}

impl FailureWatch {
    /// Whether the caller must end the connection, since an operation has failed.
    #[inline(always)]
    pub(crate) fn asks_for_end(self) -> bool {
        self == FailureWatch::Failed
    }

    /// Whether no operation may succeed any more.
    pub(crate) fn forbids_success(self) -> bool {
        matches!(self, FailureWatch::Failed | FailureWatch::Ended)
    }

    /// Records that an operation has failed. Returns whether this is the first failure of the watch.
    pub(crate) fn record_failure(&mut self) -> bool {
        let is_first = *self == FailureWatch::On;
        if is_first {
            *self = FailureWatch::Failed;
        }
        is_first
    }
}
