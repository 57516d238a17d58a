//! Pauses of a closing endpoint.

use std::thread;
use std::time::Duration;

use crate::clock::Clock;

/// Pauses between checks of a condition that sends no notification, such as whether a peer's kernel has
/// received everything. The first 99 pauses only yield, later ones sleep.
#[derive(Default)]
pub(super) struct Backoff {
    pauses: u32,
}

impl Backoff {
    pub(super) fn pause(&mut self, clock: &Clock) {
        self.pauses += 1;
        if self.pauses < 100 {
            thread::yield_now();
        } else {
            clock.sleep(Duration::from_micros(100));
        }
    }
}
