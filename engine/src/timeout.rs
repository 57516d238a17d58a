//! Limits on silence: see docs/decisions/limits-are-times.md.

use std::time::Duration;

use crate::limits::TIMEOUT_GRACE_MS;
use crate::moment::Moment;

/// A limit on silence. The time starts with the first [`poll_expired`](Self::poll_expired).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeout {
    deadline: Option<Moment>,
    is_past: bool,
}

impl Timeout {
    /// Starts the time, unless it runs already. Returns whether the limit is exceeded at `now`. The
    /// caller repeats this call as long as the silence lasts.
    ///
    /// At the first call after the deadline, the limit is not exceeded yet: an application that
    /// made no passes for long has not received the frames that arrived meanwhile. So a grace
    /// period begins. The limit is exceeded if nothing arrives in this period either, whether the
    /// application makes passes or sleeps.
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
