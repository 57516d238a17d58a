//! The clock that times large payload. A test sets the time itself.

#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// Counts from this moment.
    System(Instant),
    #[cfg(test)]
    Manual(Arc<AtomicU64>),
}

impl Clock {
    pub(crate) fn system() -> Clock {
        Clock::System(Instant::now())
    }

    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Clock::System(origin) => u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            #[cfg(test)]
            Clock::Manual(now_ns) => now_ns.load(Ordering::Relaxed),
        }
    }
}
