//! The time for which a test waits.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for an event. No test depends on how soon the event comes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The time at which a test stops waiting.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Default for Deadline {
    fn default() -> Deadline {
        Deadline::new()
    }
}

impl Deadline {
    /// A deadline from now on.
    pub fn new() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }

    /// Yields to other threads, and fails the test after the deadline.
    #[track_caller]
    pub fn yield_or_panic(self, what: &str) {
        self.yield_or_panic_with(|| what.to_owned());
    }

    /// As [`yield_or_panic`](Self::yield_or_panic), but makes the description only on failure.
    #[track_caller]
    pub fn yield_or_panic_with(self, what: impl FnOnce() -> String) {
        if Instant::now() >= self.0 {
            panic!("no progress while waiting for {}", what());
        }
        thread::yield_now();
    }
}
