//! Limits on silence: see docs/decisions/limits-are-times.md.

use std::time::Duration;

use crate::limits::TIMEOUT_GRACE_MS;
use crate::moment::Moment;

/// A limit on silence. The time starts with the first [`poll_expired`](Self::poll_expired), unless it has
/// [started](Self::until) before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeout {
    deadline: Option<Moment>,
    is_past: bool,
}

impl Timeout {
    /// Creates a limit whose time runs already, until `deadline`.
    pub(crate) fn until(deadline: Moment) -> Timeout {
        Timeout { deadline: Some(deadline), is_past: false }
    }

    /// Starts the time, unless it already runs. Returns whether the limit is exceeded at `now`. The
    /// caller repeats this call as long as the silence lasts.
    ///
    /// The first call after the deadline only starts a grace period: an application that made no
    /// passes for long may not yet have received frames that have arrived. A call after the grace
    /// period finds the limit exceeded.
    pub(crate) fn poll_expired(&mut self, now: Moment, limit_ms: u64) -> bool {
        let deadline = *self.deadline.get_or_insert(now + Duration::from_millis(limit_ms));
        if now < deadline {
            return false;
        }
        if !self.is_past {
            self.is_past = true;
            self.deadline = Some(now + Duration::from_millis(TIMEOUT_GRACE_MS));
            return false;
        }
        true
    }

    /// Returns when the limit is reached, if the time has started.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.deadline
    }
}
