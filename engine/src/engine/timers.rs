//! Time limits.
//!
//! The engine reads no clock. While a timeout runs, it asks its caller to pass the time regularly;
//! see docs/decisions/limits-are-times.md.

use super::Engine;
use super::replaced_links::ReplacedLink;
use crate::completion::Sink;
use crate::moment::Moment;

impl Engine {
    /// Whether a timeout runs. Then the caller advances the time every few passes, and before
    /// sleeping.
    #[inline(always)]
    pub fn awaits_timeout(&self) -> bool {
        self.has_timeouts
    }

    /// Advances the engine's time, and ends what has timed out. Call this after
    /// [`receive`](crate::transport::Transport::receive) and before [`transmit`](Self::transmit),
    /// with moments that never go back.
    #[cold]
    pub fn advance_time(&mut self, now: Moment, sink: &mut impl Sink) {
        self.end_idle_replaced_links(now, sink);
        let (connection, mut effects) = self.connection_and_effects(sink);
        connection.advance_time(now, &mut effects);
        self.has_timeouts = !self.replaced.is_empty() || self.connection.awaits_timeout();
    }

    /// Returns when the next timeout is due, by the times that
    /// [`advance_time`](Self::advance_time) got. A sleeping thread wakes then, makes a pass, and
    /// advances the time.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.has_timeouts {
            return None;
        }
        self.replaced.iter().filter_map(ReplacedLink::deadline).chain(self.connection.deadline()).min()
    }
}
