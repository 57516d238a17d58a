//! Time limits.
//!
//! The engine reads no clock. While a timeout runs, the caller regularly passes the time to the
//! engine; see docs/decisions/limits-are-times.md.

use super::Engine;
use crate::completion::Sink;
use crate::moment::Moment;

impl Engine {
    /// Whether a timeout runs. If so, the caller calls [`advance_time`](Self::advance_time) every
    /// few passes, and before it sleeps.
    #[inline(always)]
    pub fn awaits_timeout(&self) -> bool {
        self.has_timeouts
    }

    /// Tells the engine the time. Ends what has timed out: replaced links, and an attempt to
    /// connect. Call this after [`receive`](crate::transport::Transport::receive) and before
    /// [`transmit`](Self::transmit). `now` must never go back.
    #[cold]
    pub fn advance_time(&mut self, now: Moment, sink: &mut impl Sink) {
        self.abort_silent_replaced_links(now, sink);
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.advance_time(now, &mut effects);
        self.has_timeouts = !self.replaced.is_empty() || self.connection.awaits_timeout();
    }

    /// Returns when the next timeout is due, on the clock of [`advance_time`](Self::advance_time).
    /// A thread that sleeps until then wakes up, makes a pass, and advances the time.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.has_timeouts {
            return None;
        }
        self.replaced.deadline().into_iter().chain(self.connection.deadline()).min()
    }
}
