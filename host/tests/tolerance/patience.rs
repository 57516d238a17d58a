//! The time-outs of probes. In the first run they suit an idle machine, and a time-out is recorded; an
//! outcome that matters is confirmed by a second run with much longer time-outs, so that no outcome depends
//! on the load of the machine.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The factor of the second run's time-outs.
const GENEROUS: u32 = 8;

static FACTOR: AtomicU32 = AtomicU32::new(1);
static HAS_RUN_OUT: AtomicBool = AtomicBool::new(false);

/// Sets the time-outs of this process to those of the second run.
pub(crate) fn extend_timeouts() {
    FACTOR.store(GENEROUS, Ordering::Relaxed);
}

/// The time-out of an expected event, such as a connection.
pub(crate) fn step_timeout() -> Duration {
    Duration::from_millis(800) * FACTOR.load(Ordering::Relaxed)
}

/// The time-out of an event that may not come.
pub(crate) fn absence_timeout() -> Duration {
    Duration::from_millis(150) * FACTOR.load(Ordering::Relaxed)
}

/// The time-out of a whole probe; after it the probe counts as hanging.
pub(crate) fn probe_timeout() -> Duration {
    Duration::from_millis(2000) * FACTOR.load(Ordering::Relaxed)
}

/// Whether a wait of this process has timed out.
pub(crate) fn has_any_timed_out() -> bool {
    HAS_RUN_OUT.load(Ordering::Relaxed)
}

/// The end of a time-out.
#[derive(Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Deadline {
        Deadline(Instant::now() + limit)
    }

    /// Checks whether the time is over, and records it.
    pub(crate) fn check_expired(&self) -> bool {
        let is_over = Instant::now() >= self.0;
        if is_over {
            HAS_RUN_OUT.store(true, Ordering::Relaxed);
        }
        is_over
    }
}

/// Sleeps between polls, longer each time: many probes wait at once, and they wait for the kernel.
#[derive(Debug, Default)]
pub(crate) struct Pauses(u32);

impl Pauses {
    pub(crate) fn sleep_and_back_off(&mut self) {
        std::thread::sleep(Duration::from_micros(20 << self.0));
        self.0 = (self.0 + 1).min(5);
    }
}
