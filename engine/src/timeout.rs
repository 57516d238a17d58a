//! Limits of silence: see docs/decisions/limits-are-times.md.

use std::time::Duration;

use crate::limits::TIMEOUT_GRACE_MS;
use crate::moment::Moment;

/// How long something may be silent. The time runs from the first [`check_expired`](Self::check_expired) on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeout {
    deadline: Option<Moment>,
    is_past: bool,
}

impl Timeout {
    /// It is `now`, and still silent. Returns whether the limit is exceeded.
    ///
    /// It is not when the deadline is found past for the first time: an application that makes no
    /// passes for long has not received what arrived meanwhile. So it has a little longer, in which
    /// its passes, or its sleep, have to find nothing either.
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

    /// When the limit is reached, if the time runs.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.deadline
    }
}
