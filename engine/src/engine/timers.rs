//! Limits that are times.
//!
//! The engine reads no clock. While something may time out it says so, and is told the time now and then; see
//! docs/decisions/limits-are-times.md.

use super::Engine;
use super::former::Former;
use crate::completion::Sink;
use crate::moment::Moment;

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
        let (connection, mut effects) = self.connecting(sink);
        connection.elapsed(now, &mut effects);
        self.has_timeouts = !self.former.is_empty() || self.connection.awaits_timeout();
    }

    /// When the next time-out is due, by what [`advance_time`](Self::advance_time) has told: a thread that sleeps is to wake
    /// then, make a pass, and tell the engine the time.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.has_timeouts {
            return None;
        }
        self.former.iter().filter_map(Former::deadline).chain(self.connection.deadline()).min()
    }
}
