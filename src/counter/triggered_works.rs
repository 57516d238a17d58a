//! Counters as triggers of works: `fi_trigger(3)`.

use std::sync::{Arc, OnceLock};

use homespun_engine::error::Error;

use super::{Counter, CounterShared, DomainCounters};
use crate::mutated;
use crate::sync::{AtomicU64, Ordering, fence_for_loom};
use crate::works::queue::WorkQueue;
use crate::works::work::CounterChange;

/// The highest threshold of works. The threshold `u64::MAX` stands for none.
pub(crate) const THRESHOLD_MAX: u64 = u64::MAX - 1;

/// The works that a counter triggers.
pub(super) struct TriggeredWorks {
    /// When value plus error value reaches this number, the counter marks itself as due in the work queue.
    /// `u64::MAX` if no work waits. Also `u64::MAX` after the counter has marked itself, until the work
    /// queue calls [`arm_threshold`](CounterShared::arm_threshold).
    threshold: AtomicU64,
    /// The domain's work queue, and the counter's number in that queue. Set when the counter gets its first
    /// work.
    works: OnceLock<(Arc<WorkQueue>, u64)>,
}

impl Default for TriggeredWorks {
    fn default() -> Self {
        TriggeredWorks { threshold: AtomicU64::new(u64::MAX), works: OnceLock::new() }
    }
}

/// The part of a counter that only its handles share, so the last handle drops it. From the counter's first
/// work until that drop, the counter drives all endpoints of its domain that may have works.
pub(super) struct WorkCounter {
    counter: Arc<CounterShared>,
    domain_counters: OnceLock<Arc<DomainCounters>>,
}

impl WorkCounter {
    pub(super) fn new(counter: Arc<CounterShared>) -> Arc<WorkCounter> {
        Arc::new(WorkCounter { counter, domain_counters: OnceLock::new() })
    }
}

impl Drop for WorkCounter {
    fn drop(&mut self) {
        if let Some(domain_counters) = self.domain_counters.get() {
            domain_counters.remove_counter_use(&self.counter);
        }
    }
}

impl Counter {
    /// Makes the counter drive the endpoints of its domain that may have works.
    ///
    /// # Errors
    ///
    /// The system's error if an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    pub(crate) fn add_to_domain_counters(&self, domain_counters: &Arc<DomainCounters>) -> Result<(), Error> {
        if self.work_counter.domain_counters.get().is_some() {
            return Ok(());
        }
        domain_counters.add_counter_use(&self.shared)?;
        if self.work_counter.domain_counters.set(domain_counters.clone()).is_err() {
            // Another thread was faster.
            domain_counters.remove_counter_use(&self.shared);
        }
        Ok(())
    }
}

impl CounterShared {
    /// Makes the counter trigger works of this queue. Returns the counter's number in the queue.
    pub(crate) fn register_work_queue(&self, works: &Arc<WorkQueue>) -> u64 {
        self.triggering.works.get_or_init(|| (works.clone(), works.allocate_number())).1
    }

    /// Makes the counter mark itself as due when value plus error value reaches `threshold`. If the sum has
    /// reached it already, marks the counter at once. The caller has the waiting works locked.
    pub(crate) fn arm_threshold(&self, threshold: u64) {
        self.triggering.threshold.fetch_min(threshold, Ordering::SeqCst);
        // SYNC POINT threshold.
        fence_for_loom();
        if self.sum() >= threshold {
            self.mark_counter_due_in_queue();
        }
    }

    /// Returns the number to compare with thresholds: the sum of the value and the error value.
    pub(crate) fn sum(&self) -> u64 {
        let [value, errors, _] = self.values_and_change_count();
        if mutated!("fi_trigger/errors-count-for-work") { value } else { value.saturating_add(errors) }
    }

    /// Marks the counter as due if value plus error value has reached the threshold. Call this after each
    /// change of a value.
    #[inline]
    pub(super) fn mark_due_if_threshold_reached(&self) {
        // SYNC POINT threshold.
        fence_for_loom();
        if self.triggering.threshold.load(Ordering::SeqCst) != u64::MAX {
            self.compare_sum_and_mark_due();
        }
    }

    #[cold]
    fn compare_sum_and_mark_due(&self) {
        if self.sum() >= self.triggering.threshold.load(Ordering::SeqCst) {
            self.mark_counter_due_in_queue();
        }
    }

    #[cold]
    fn mark_counter_due_in_queue(&self) {
        if let Some((works, number)) = self.triggering.works.get() {
            // The work queue needs no second notice before it has checked the waiting works.
            self.triggering.threshold.store(u64::MAX, Ordering::SeqCst);
            works.mark_counter_due(*number);
        }
    }

    /// Marks the works that are due now. Call this before setting a value. The marked works then run even
    /// if the new value is lower.
    pub(super) fn mark_reached_works_due(&self) {
        if let Some((works, number)) = self.triggering.works.get() {
            works.mark_reached_works_due(*number);
        }
    }

    /// Runs the due works.
    pub(super) fn fire_due_works(&self) {
        if let Some((works, _)) = self.triggering.works.get() {
            works.fire_due_works();
        }
    }

    /// Calls `act`, and keeps other threads from running due works meanwhile. Then runs the works that are
    /// due. If the counter has no work queue, only calls `act`.
    pub(super) fn call_while_nothing_fires<R>(&self, act: impl FnOnce(&CounterShared) -> R) -> R {
        match self.triggering.works.get() {
            Some((works, _)) => works.call_while_nothing_fires(|| act(self)),
            None => act(self),
        }
    }

    /// Changes the value, and wakes sleepers.
    pub(crate) fn apply_change(&self, change: CounterChange) {
        match change {
            CounterChange::Add(value) => self.add_to_value(&self.value, value),
            CounterChange::Set(value) => {
                self.mark_reached_works_due();
                self.value.store(value, Ordering::SeqCst);
            }
        }
        self.count_change_wake_and_fire();
    }

    /// Adds to one of the two values. If the value wraps around to 0, marks all waiting works as due, since
    /// each has reached its threshold.
    pub(super) fn add_to_value(&self, number: &AtomicU64, value: u64) {
        let added =
            number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| before.checked_add(value));
        if added.is_err() {
            self.add_and_mark_works_if_wrapped(number, value);
        }
    }

    #[cold]
    fn add_and_mark_works_if_wrapped(&self, number: &AtomicU64, value: u64) {
        let add = || number.fetch_add(value, Ordering::SeqCst).checked_add(value).is_none();
        match self.triggering.works.get() {
            Some((works, counter_number)) => works.change_and_mark_all_due_if_wrapped(*counter_number, add),
            None => _ = add(),
        }
    }

    /// Marks all waiting works as due, after a value has wrapped to 0.
    #[cold]
    pub(super) fn mark_all_works_due(&self) {
        if let Some((works, number)) = self.triggering.works.get() {
            works.change_and_mark_all_due_if_wrapped(*number, || true);
        }
    }
}
