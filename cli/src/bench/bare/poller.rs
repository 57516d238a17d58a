//! Polls for actions of the other process, with a time-out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::CommandFailure;

/// The number of polls between two reads of the clock.
const SPINS_PER_CLOCK: u32 = 1024;

/// The number of polls after which each further poll yields to other threads. For processes that may
/// share a core.
const SPINS_BEFORE_YIELD_SHARED: u32 = 256;

/// The number of polls after which each further poll yields, for processes that each have a core of
/// their own. The number is so large that yielding does not affect the measurement.
const SPINS_BEFORE_YIELD_PINNED: u32 = 1 << 20;

/// Polls until the other process has acted.
#[derive(Debug)]
pub(in crate::bench) struct BarePoller {
    gone: Arc<AtomicBool>,
    timeout: Duration,
    spins_before_yield: u32,
}

impl BarePoller {
    /// A poller that waits at most `timeout`. `gone` becomes true when the other process ends. `pinned`
    /// means that each process has its own core.
    pub(in crate::bench) fn new(gone: Arc<AtomicBool>, timeout: Duration, pinned: bool) -> BarePoller {
        let spins_before_yield = if pinned { SPINS_BEFORE_YIELD_PINNED } else { SPINS_BEFORE_YIELD_SHARED };
        BarePoller { gone, timeout, spins_before_yield }
    }

    /// Polls until `look` returns a value.
    ///
    /// # Errors
    ///
    /// An error of `look`. [`CommandFailure::PeerGone`] if the other process ends.
    /// [`CommandFailure::PeerSilent`] after the time-out.
    #[inline]
    pub(in crate::bench) fn poll_until_some<T>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, CommandFailure>,
    ) -> Result<T, CommandFailure> {
        match look()? {
            Some(found) => Ok(found),
            None => self.keep_polling(look),
        }
    }

    fn keep_polling<T>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, CommandFailure>,
    ) -> Result<T, CommandFailure> {
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
                return Err(CommandFailure::PeerGone);
            }
            if since.get_or_insert_with(Instant::now).elapsed() > self.timeout {
                return Err(CommandFailure::PeerSilent { timeout: self.timeout });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_fails_for_a_peer_that_is_gone_or_silent() {
        for pinned in [false, true] {
            let gone = Arc::new(AtomicBool::new(true));
            let poller = BarePoller::new(gone.clone(), Duration::from_secs(60), pinned);
            assert!(matches!(poller.poll_until_some(|| Ok(None::<()>)), Err(CommandFailure::PeerGone)));
            gone.store(false, Ordering::Relaxed);
            let poller = BarePoller::new(gone, Duration::ZERO, pinned);
            assert!(matches!(
                poller.poll_until_some(|| Ok(None::<()>)),
                Err(CommandFailure::PeerSilent { .. })
            ));
            assert_eq!(poller.poll_until_some(|| Ok(Some(7))).unwrap(), 7);
        }
    }
}
