//! The time-outs of probes. In the first run the time-outs suit an idle machine, and each probe in which a
//! wait timed out is marked. A second run, with much longer time-outs, repeats the marked probes and those
//! with a mismatch. So outcomes hardly depend on the load of the machine.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How many times longer the time-outs of the second run are.
const GENEROUS: u32 = 8;

static FACTOR: AtomicU32 = AtomicU32::new(1);
static HAS_TIMED_OUT: AtomicBool = AtomicBool::new(false);

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

/// The time-out of a whole probe, after which the probe counts as hanging.
pub(crate) fn probe_timeout() -> Duration {
    Duration::from_millis(2000) * FACTOR.load(Ordering::Relaxed)
}

/// Whether any wait of this process has timed out.
pub(crate) fn has_any_wait_timed_out() -> bool {
    HAS_TIMED_OUT.load(Ordering::Relaxed)
}

/// The end of a time-out.
#[derive(Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Deadline {
        Deadline(Instant::now() + limit)
    }

    /// Whether the time is over. If so, records that a wait has timed out.
    pub(crate) fn record_if_expired(&self) -> bool {
        let is_over = Instant::now() >= self.0;
        if is_over {
            HAS_TIMED_OUT.store(true, Ordering::Relaxed);
        }
        is_over
    }
}

/// Sleeps between polls. Many probes wait at once, so they must leave the processors to probes that work.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_micros(200));
}
