//! The time limit of a wait.

use std::time::{Duration, Instant};

/// The end of a wait, if it has one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns the time at which the timeout ends. A timeout too long for the clock means no deadline.
    pub(super) fn after(timeout: Option<Duration>) -> Deadline {
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    pub(super) fn has_passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the time until the deadline.
    pub(super) fn remaining(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }
}
