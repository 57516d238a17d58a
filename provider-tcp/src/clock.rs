//! The clock by which bursts are timed. A test sets the time itself.

use std::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    System,
    /// Stands still.
    #[cfg(test)]
    Stopped(Instant),
}

impl Clock {
    pub(crate) fn now(self) -> Instant {
        match self {
            Clock::System => Instant::now(),
            #[cfg(test)]
            Clock::Stopped(at) => at,
        }
    }
}
