//! Limits on silence: see docs/decisions/limits-are-times.md.

use std::time::Duration;

use crate::limits::TIMEOUT_GRACE_MS;
use crate::moment::Moment;

/// A limit on silence. The time runs from the first [`check_expired`](Self::check_expired) on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeout {
    deadline: Option<Moment>,
    is_past: bool,
}

impl Timeout {
    /// Returns whether the limit is exceeded at `now`. Callers call this while the silence lasts.
    ///
    /// When the deadline is found past for the first time, the limit is not exceeded yet: an
    /// application that makes no passes for long has not received frames that arrived meanwhile. It
    /// gets a grace period, in which its passes, or its sleep, must find nothing either.
    pub(crate) fn check_expired(&mut self, now: Moment, limit_ms: u64) -> bool {
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

    /// Returns when the limit is reached, if the time runs.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.deadline
    }
}
