//! How long a test waits.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen before it fails: a minute. Nothing is concluded from how soon it
/// does.
const PATIENCE: Duration = Duration::from_secs(60);

/// The moment when a test stops waiting.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// A minute from now.
    #[expect(clippy::new_without_default, reason = "no two of them are alike")]
    pub fn new() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }

    /// How much of the time is left.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Lets other threads run.
    ///
    /// # Panics
    ///
    /// If the time is over, saying what was waited for.
    #[track_caller]
    pub fn pause(self, what: &str) {
        assert!(self.left() > Duration::ZERO, "waited in vain for {what}");
        thread::yield_now();
    }
}
