//! Unmatched offers whose payload is not pulled yet, since the application may be about to post their
//! receives.

use std::mem;
use std::time::Duration;

use crate::limits::{FETCH_DELAY_MS, FETCH_DELAY_PASSES};
use crate::link_fault::NoMemory;
use crate::moment::Moment;
use crate::operation::FetchId;

/// Offers that wait for a number of passes, or for some time. Receives may have matched some of them since.
#[derive(Debug, Default)]
pub(super) struct DelayedFetches {
    is_enabled: bool,
    /// The offers that are due at the deadline.
    old: Vec<FetchId>,
    /// The offers that have come since the deadline was set.
    young: Vec<FetchId>,
    /// `None` until the receiver is told the time.
    deadline: Option<Moment>,
    /// How many passes have gone by since the deadline was set.
    passes: u32,
}

impl DelayedFetches {
    pub(super) fn enable(&mut self) {
        self.is_enabled = true;
    }

    pub(super) fn are_enabled(&self) -> bool {
        self.is_enabled
    }

    pub(super) fn len(&self) -> usize {
        self.old.len() + self.young.len()
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// Makes room for one more offer.
    pub(super) fn try_reserve(&mut self) -> Result<(), NoMemory> {
        Ok(self.young.try_reserve(1)?)
    }

    pub(super) fn add(&mut self, id: FetchId) {
        self.young.push(id);
    }

    /// Forgets the offers for which `is_live` returns false.
    pub(super) fn retain(&mut self, is_live: impl Fn(FetchId) -> bool) {
        self.old.retain(|id| is_live(*id));
        self.young.retain(|id| is_live(*id));
    }

    /// Counts a pass. Returns the offers that have waited for [`FETCH_DELAY_PASSES`] or
    /// [`FETCH_DELAY_MS`]. None waits for twice as long, unless this call is late.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<FetchId> {
        self.passes += 1;
        let is_past =
            self.deadline.is_some_and(|deadline| now >= deadline) || self.passes > FETCH_DELAY_PASSES;
        let due = if is_past { mem::take(&mut self.old) } else { Vec::new() };
        if is_past || self.deadline.is_none() {
            self.old.append(&mut self.young);
            self.passes = 0;
            self.deadline = (!self.old.is_empty()).then(|| now + Duration::from_millis(FETCH_DELAY_MS));
        }
        due
    }

    /// Returns all offers.
    pub(super) fn take_all(&mut self) -> Vec<FetchId> {
        (self.deadline, self.passes) = (None, 0);
        self.old.append(&mut self.young);
        mem::take(&mut self.old)
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    fn allocate_ids() -> [FetchId; 3] {
        let mut ids = SlotMap::<FetchId, ()>::with_key();
        [ids.insert(()), ids.insert(()), ids.insert(())]
    }

    #[test]
    fn offer_is_due_after_one_to_two_delays() {
        let [first, second, third] = allocate_ids();
        let mut delayed = DelayedFetches::default();
        delayed.add(first);
        let mut due = Vec::new();
        for ms in 0..10 * FETCH_DELAY_MS {
            due.extend(delayed.take_due(Moment::from_ms(ms)).into_iter().map(|id| (ms, id)));
            if ms == 0 {
                delayed.add(second);
            } else if ms == 5 * FETCH_DELAY_MS {
                delayed.add(third);
            }
        }
        let third_due_ms = 5 * FETCH_DELAY_MS + 1 + FETCH_DELAY_MS;
        assert_eq!(due, [(FETCH_DELAY_MS, first), (2 * FETCH_DELAY_MS, second), (third_due_ms, third)]);
        assert_eq!((delayed.len(), delayed.deadline()), (0, None));
    }

    #[test]
    fn offer_is_due_at_the_second_of_two_calls_that_are_far_apart() {
        let [first, ..] = allocate_ids();
        let mut delayed = DelayedFetches::default();
        delayed.add(first);
        assert_eq!(delayed.take_due(Moment::from_ms(1000)), []);
        assert_eq!(delayed.take_due(Moment::from_ms(2000)), [first]);
    }

    #[test]
    fn offer_is_due_after_many_passes_although_no_time_has_gone_by() {
        let [first, ..] = allocate_ids();
        let mut delayed = DelayedFetches::default();
        delayed.add(first);
        for _ in 0..=FETCH_DELAY_PASSES {
            assert_eq!(delayed.take_due(Moment::from_ms(7)), []);
        }
        assert_eq!(delayed.take_due(Moment::from_ms(7)), [first]);
    }

    #[test]
    fn ended_offer_is_forgotten() {
        let [first, second, third] = allocate_ids();
        let mut delayed = DelayedFetches::default();
        delayed.add(first);
        delayed.take_due(Moment::from_ms(0));
        [second, third].into_iter().for_each(|id| delayed.add(id));
        delayed.retain(|id| id == third);
        assert_eq!((delayed.take_all(), delayed.len(), delayed.deadline()), (vec![third], 0, None));
    }
}
