//! How long probes wait for what may never come. At first they wait as long as a machine needs that has
//! little else to do, and take note when that was too short; an outcome that matters is confirmed by a second
//! run that waits much longer, so that no outcome depends on what else the machine does.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How much longer the second run waits.
const GENEROUS: u32 = 8;

static FACTOR: AtomicU32 = AtomicU32::new(1);
static HAS_RUN_OUT: AtomicBool = AtomicBool::new(false);

/// Makes all limits of this process those of the second run.
pub(crate) fn be_generous() {
    FACTOR.store(GENEROUS, Ordering::Relaxed);
}

/// For what comes if nothing is wrong, as a connection does.
pub(crate) fn step() -> Duration {
    Duration::from_millis(800) * FACTOR.load(Ordering::Relaxed)
}

/// For what may well not come.
pub(crate) fn short_limit() -> Duration {
    Duration::from_millis(150) * FACTOR.load(Ordering::Relaxed)
}

/// For a whole probe, which hangs if it takes longer.
pub(crate) fn probe() -> Duration {
    Duration::from_millis(2000) * FACTOR.load(Ordering::Relaxed)
}

/// Whether a limit was reached in this process.
pub(crate) fn has_run_out() -> bool {
    HAS_RUN_OUT.load(Ordering::Relaxed)
}

/// The end of a limit.
#[derive(Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Deadline {
        Deadline(Instant::now() + limit)
    }

    /// Whether the limit is reached, which is noted.
    pub(crate) fn is_over(&self) -> bool {
        let is_over = Instant::now() >= self.0;
        if is_over {
            HAS_RUN_OUT.store(true, Ordering::Relaxed);
        }
        is_over
    }
}

/// Gives other probes the processor, longer each time: these wait for the kernel, and many of them at once.
#[derive(Debug, Default)]
pub(crate) struct Pauses(u32);

impl Pauses {
    pub(crate) fn rest(&mut self) {
        std::thread::sleep(Duration::from_micros(20 << self.0));
        self.0 = (self.0 + 1).min(5);
    }
}
