//! The time for which a test waits.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for an event before it fails, unless the backend asks for another time.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The moment when a test stops waiting.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// Creates a deadline that passes in a minute.
    #[expect(clippy::new_without_default, reason = "each call gives a different moment")]
    pub fn new() -> Deadline {
        Deadline::after(PATIENCE)
    }

    /// Creates a deadline that passes after this time.
    pub fn after(patience: Duration) -> Deadline {
        Deadline(Instant::now() + patience)
    }

    /// Returns the time until the deadline, 0 once it has passed.
    pub fn time_left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Lets other threads run.
    ///
    /// # Panics
    ///
    /// If the deadline has passed. The panic message contains `what`.
    #[track_caller]
    pub fn yield_or_panic(self, what: &str) {
        assert!(self.time_left() > Duration::ZERO, "waited in vain for {what}");
        thread::yield_now();
    }
}
