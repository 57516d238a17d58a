//! Pauses of a closing endpoint.

use std::thread;
use std::time::Duration;

use homespun_engine::moment::Moment;

use crate::clock::Clock;

/// Pauses between checks of a condition that sends no notification, such as whether a peer's kernel has
/// received everything. The first 99 pauses only yield, later ones sleep. In a simulation, each pause drives
/// the other endpoints.
#[derive(Default)]
pub(super) struct Backoff {
    pauses: u32,
}

impl Backoff {
    pub(super) fn pause(&mut self, clock: &Clock, deadline: Moment) {
        self.pauses += 1;
        if self.pauses < 100 && !clock.is_of_simulation() {
            thread::yield_now();
        } else {
            clock.sleep_or_step(Duration::from_micros(100), deadline);
        }
    }
}
