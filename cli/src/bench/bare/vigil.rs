//! Waiting for the other process without a system call, but not for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// How often in vain one looks between looks at the clock.
const SPINS_PER_CLOCK: u32 = 1024;

/// How often one looks in vain before the other process is let run between looks, where both may share a
/// core.
const SPINS_BEFORE_YIELD_SHARED: u32 = 256;

/// The same where each has a core of its own: late enough to play no part in what is measured.
const SPINS_BEFORE_YIELD_PINNED: u32 = 1 << 20;

/// How one process waits for the other.
#[derive(Debug)]
pub(in crate::bench) struct Vigil {
    gone: Arc<AtomicBool>,
    timeout: Duration,
    spins_before_yield: u32,
}

impl Vigil {
    /// Waits at most so long for a process that is there until `gone` becomes true. `pinned` says that both
    /// processes have cores of their own.
    pub(in crate::bench) fn new(gone: Arc<AtomicBool>, timeout: Duration, pinned: bool) -> Vigil {
        let spins_before_yield = if pinned { SPINS_BEFORE_YIELD_PINNED } else { SPINS_BEFORE_YIELD_SHARED };
        Vigil { gone, timeout, spins_before_yield }
    }

    /// Looks until there is something.
    ///
    /// # Errors
    ///
    /// That of a look; [`Failure::PeerGone`] and [`Failure::PeerSilent`] if there is never anything.
    #[inline]
    pub(super) fn until<T>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        match look()? {
            Some(found) => Ok(found),
            None => self.go_on(look),
        }
    }

    fn go_on<T>(&self, mut look: impl FnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
        let mut spins: u32 = 0;
        let mut since = None;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            spins = spins.saturating_add(1);
            if spins > self.spins_before_yield {
                thread::yield_now();
            } else if !spins.is_multiple_of(SPINS_PER_CLOCK) {
                continue;
            }
            if self.gone.load(Ordering::Relaxed) {
                return Err(Failure::PeerGone);
            }
            if since.get_or_insert_with(Instant::now).elapsed() > self.timeout {
                return Err(Failure::PeerSilent { timeout: self.timeout });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_waited_for_who_is_gone_or_silent() {
        for pinned in [false, true] {
            let gone = Arc::new(AtomicBool::new(true));
            let vigil = Vigil::new(gone.clone(), Duration::from_secs(60), pinned);
            assert!(matches!(vigil.until(|| Ok(None::<()>)), Err(Failure::PeerGone)));
            gone.store(false, Ordering::Relaxed);
            let vigil = Vigil::new(gone, Duration::ZERO, pinned);
            assert!(matches!(vigil.until(|| Ok(None::<()>)), Err(Failure::PeerSilent { .. })));
            assert_eq!(vigil.until(|| Ok(Some(7))).unwrap(), 7);
        }
    }
}
