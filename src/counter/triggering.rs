//! What a counter is to work that waits for counters: `fi_trigger(3)`.

use std::sync::{Arc, OnceLock};

use homespun_engine::error::Error;

use super::{Counter, RegionalCounters, Shared};
use crate::sync::{AtomicU64, Ordering};
use crate::trigger::{CounterChange, WorkQueue};

/// The works that a counter is to tell when they are due.
pub(super) struct Triggering {
    /// From which sum of both values on a work is due; the largest number if none waits.
    threshold: AtomicU64,
    /// The works of the domain, and the counter's number there, once it was to trigger one.
    works: OnceLock<(Arc<WorkQueue>, u64)>,
}

impl Default for Triggering {
    fn default() -> Self {
        Triggering { threshold: AtomicU64::new(u64::MAX), works: OnceLock::new() }
    }
}

/// The counters of a domain that works depend on. Such a counter drives all endpoints that may have such work, from its
/// first work until its last handle is gone.
pub(super) struct Enlisted {
    counter: Arc<Shared>,
    all: OnceLock<Arc<RegionalCounters>>,
}

impl Enlisted {
    pub(super) fn new(counter: Arc<Shared>) -> Arc<Enlisted> {
        Arc::new(Enlisted { counter, all: OnceLock::new() })
    }
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        if let Some(all) = self.all.get() {
            all.remove(&self.counter);
        }
    }
}

impl Counter {
    /// Has the counter drive the endpoints of its domain that may have work, whose `all` counters these are.
    ///
    /// # Errors
    ///
    /// What the system says, where an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    pub(crate) fn enlist(&self, all: &Arc<RegionalCounters>) -> Result<(), Error> {
        if self.enlisted.all.get().is_some() {
            return Ok(());
        }
        all.add(&self.shared)?;
        if self.enlisted.all.set(all.clone()).is_err() {
            // Another thread was faster.
            all.remove(&self.shared);
        }
        Ok(())
    }
}

impl Shared {
    /// Tells this queue when a work is due. The counter's number there.
    pub(crate) fn triggers(&self, works: &Arc<WorkQueue>) -> u64 {
        self.triggering.works.get_or_init(|| (works.clone(), works.unused_number())).1
    }

    /// Tells when both values together reach this threshold, or that they have. Thresholds are added under the lock of
    /// the works.
    pub(crate) fn await_threshold(&self, threshold: u64) {
        self.triggering.threshold.fetch_min(threshold, Ordering::SeqCst);
        // After that, as a change looks for thresholds after it was made: one of the two sees the other.
        if self.sum() >= threshold {
            self.tell_due();
        }
    }

    /// What is compared with thresholds: all operations that have ended, whether they have succeeded or failed.
    pub(crate) fn sum(&self) -> u64 {
        let [value, errors, _] = self.state();
        value.saturating_add(errors)
    }

    /// Tells that a work is due, if a change has made it so.
    #[inline]
    pub(super) fn look_for_due(&self) {
        if self.triggering.threshold.load(Ordering::SeqCst) != u64::MAX {
            self.compare_threshold();
        }
    }

    #[cold]
    fn compare_threshold(&self) {
        if self.sum() >= self.triggering.threshold.load(Ordering::SeqCst) {
            self.tell_due();
        }
    }

    #[cold]
    fn tell_due(&self) {
        if let Some((works, number)) = self.triggering.works.get() {
            // Once is enough until the works were looked through.
            self.triggering.threshold.store(u64::MAX, Ordering::SeqCst);
            works.note_due(*number);
        }
    }

    /// A value is about to be set: works whose thresholds were reached are carried out, also if it is set back.
    pub(super) fn keep_reached(&self) {
        if let Some((works, number)) = self.triggering.works.get() {
            works.keep_reached(*number);
        }
    }

    /// Carries out what is due, after a change by the application.
    pub(super) fn fire(&self) {
        if let Some((works, _)) = self.triggering.works.get() {
            works.fire();
        }
    }

    /// Changes the value, and wakes sleepers.
    pub(crate) fn change(&self, change: CounterChange) {
        match change {
            CounterChange::Add(value) => _ = self.value.fetch_add(value, Ordering::SeqCst),
            CounterChange::Set(value) => {
                self.keep_reached();
                self.value.store(value, Ordering::SeqCst);
            }
        }
        self.changed();
    }
}
