//! The clock that times large payload, and the kernel's count of the times when a thread lost its processor.
//! A test sets both itself.

#[cfg(all(test, not(loom)))]
use std::sync::Arc;
#[cfg(all(test, not(loom)))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use homespun_engine::thread;

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
    /// How often the calling thread has lost its processor.
    pub(crate) forced_switches: AtomicU64,
}

impl Clock {
    pub(crate) fn system() -> Clock {
        Clock::System(Instant::now())
    }

    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Clock::System(origin) => u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            #[cfg(all(test, not(loom)))]
            Clock::Manual(time) => time.now_ns.load(Ordering::Relaxed),
        }
    }

    /// Returns how often the calling thread has lost its processor although it could go on: another thread
    /// took it, or this thread yielded.
    pub(crate) fn forced_switches(&self) -> u64 {
        match self {
            Clock::System(_) => thread::forced_switches(),
            #[cfg(all(test, not(loom)))]
            Clock::Manual(time) => time.forced_switches.load(Ordering::Relaxed),
        }
    }
}
