//! The clock that times large payload. A test sets the time itself.

#[cfg(all(test, not(loom)))]
use std::sync::Arc;
#[cfg(all(test, not(loom)))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// Counts from this moment.
    System(Instant),
    #[cfg(all(test, not(loom)))]
    Manual(Arc<ManualTime>),
}

/// The time that a test sets.
#[cfg(all(test, not(loom)))]
#[derive(Debug, Default)]
pub(crate) struct ManualTime {
    pub(crate) now_ns: AtomicU64,
    /// By how much each reading advances the time. A transfer that is timed takes one step: its begin and
    /// its end are read.
    pub(crate) step_ns: AtomicU64,
}

impl Clock {
    pub(crate) fn system() -> Clock {
        Clock::System(Instant::now())
    }

    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Clock::System(origin) => u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            #[cfg(all(test, not(loom)))]
            Clock::Manual(time) => {
                time.now_ns.fetch_add(time.step_ns.load(Ordering::Relaxed), Ordering::Relaxed)
            }
        }
    }
}
