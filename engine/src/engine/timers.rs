//! Limits that are times.
//!
//! The engine reads no clock. While something may time out it says so, and is told the time now and then; see
//! docs/decisions/limits-are-times.md.

use std::time::Duration;

use super::Engine;
use super::former::Former;
use crate::completion::Sink;
use crate::limits::TIMEOUT_GRACE_MS;
use crate::moment::Moment;

/// How long something may be silent. The time runs from the first [`elapse`](Self::elapse) on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timeout {
    deadline: Option<Moment>,
    is_past: bool,
}

impl Timeout {
    /// It is `now`, and still silent. Returns whether the limit is exceeded.
    ///
    /// It is not when the deadline is found past for the first time: an application that makes no passes for long
    /// has not received what arrived meanwhile. So it has a little longer, in which its passes, or its sleep, have
    /// to find nothing either.
    pub(super) fn elapse(&mut self, now: Moment, limit_ms: u64) -> bool {
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
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.deadline
    }
}

impl Engine {
    /// Whether something may time out: then the engine is to be told the time, every few passes and before sleeping.
    #[inline(always)]
    pub fn awaits_timeout(&self) -> bool {
        self.has_timeouts
    }

    /// Tells the engine what time it is, and ends what has timed out. To be called after
    /// [`receive`](crate::transport::Transport::receive) and before [`transmit`](Self::transmit), with moments that never
    /// go back.
    #[cold]
    pub fn advance_time(&mut self, now: Moment, sink: &mut impl Sink) {
        self.age_former_links(now, sink);
        self.await_others(now, sink);
        self.has_timeouts = !self.former.is_empty() || self.is_awaiting_others();
    }

    /// When the next time-out is due, by what [`advance_time`](Self::advance_time) has told: a thread that sleeps is to wake
    /// then, make a pass, and tell the engine the time.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.has_timeouts {
            return None;
        }
        self.former.iter().filter_map(Former::deadline).chain(self.others_deadline()).min()
    }
}
