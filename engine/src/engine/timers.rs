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

    /// Whether a timeout of a few milliseconds runs. If so, the caller calls
    /// [`advance_time`](Self::advance_time) in every pass.
    pub fn awaits_short_timeout(&self) -> bool {
        self.receive_side.has_delayed_fetches()
    }

    /// Tells the engine the time. Ends what has timed out: replaced links, an attempt to connect, and the
    /// [delay](crate::limits::FETCH_DELAY_PASSES) of pulls. Call this after
    /// [`receive`](crate::transport::Transport::receive) and before [`transmit`](Self::transmit). `now` must
    /// never go back.
    #[cold]
    pub fn advance_time(&mut self, now: Moment, sink: &mut impl Sink) {
        self.abort_silent_replaced_links(now, sink);
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.advance_time(now, &mut effects);
        self.receive_side.begin_due_fetches(now);
        self.has_timeouts = !self.replaced.is_empty()
            || self.connection.awaits_timeout()
            || self.receive_side.has_delayed_fetches();
    }

    /// Ends the [delay](crate::limits::FETCH_DELAY_PASSES) of all pulls, so that the next
    /// [`transmit`](Self::transmit) begins them. Call this before a thread sleeps that would otherwise post
    /// receives.
    pub fn end_fetch_delays(&mut self) {
        self.receive_side.end_fetch_delays();
    }

    /// Returns when the next timeout is due, on the clock of [`advance_time`](Self::advance_time).
    /// A thread that sleeps until then wakes up, makes a pass, and advances the time.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.has_timeouts {
            return None;
        }
        let deadlines = [
            self.replaced.deadline(),
            self.connection.deadline(),
            self.receive_side.delayed_fetch_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}
