//! Unmatched offers that the receiver does not pull yet, since the application may be about to post their
//! receives.

use std::mem;

use crate::limits::POSTPONED_OFFER_PASSES;
use crate::operation::FetchId;

/// Offers that wait for a number of passes. Receives may have matched some of them since.
#[derive(Debug)]
pub(super) struct PostponedOffers {
    /// How many passes an offer waits, at least. With 0, nothing is postponed.
    wait_passes: u32,
    /// The offers that have come since the last turn.
    young: Vec<FetchId>,
    /// The offers that came before it.
    old: Vec<FetchId>,
    /// How many passes have gone by since the last turn.
    passes: u32,
}

impl Default for PostponedOffers {
    fn default() -> Self {
        // Most unit tests make few passes.
        let wait_passes = if cfg!(test) { 0 } else { POSTPONED_OFFER_PASSES };
        PostponedOffers { wait_passes, young: Vec::new(), old: Vec::new(), passes: 0 }
    }
}

impl PostponedOffers {
    #[cfg(test)]
    pub(super) fn set_wait_passes(&mut self, wait_passes: u32) {
        self.wait_passes = wait_passes;
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.wait_passes > 0
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(super) fn add(&mut self, id: FetchId) {
        self.young.push(id);
    }

    /// Forgets the offers for which `is_live` returns false.
    pub(super) fn retain(&mut self, is_live: impl Fn(FetchId) -> bool) {
        self.young.retain(|id| is_live(*id));
        self.old.retain(|id| is_live(*id));
    }

    /// Counts a pass. Returns the offers that have waited for the set number of passes or more, but not for
    /// twice as many.
    pub(super) fn count_pass_and_take_due(&mut self) -> Vec<FetchId> {
        self.passes += 1;
        if self.passes < self.wait_passes {
            return Vec::new();
        }
        self.passes = 0;
        mem::replace(&mut self.old, mem::take(&mut self.young))
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn offer_is_due_after_one_to_two_periods() {
        let mut ids = SlotMap::<FetchId, ()>::with_key();
        let (first, second) = (ids.insert(()), ids.insert(()));
        let mut postponed = PostponedOffers::default();
        postponed.set_wait_passes(5);
        postponed.add(first);
        let mut due = Vec::new();
        for pass in 1..=15 {
            if pass == 6 {
                postponed.add(second);
            }
            due.extend(postponed.count_pass_and_take_due().into_iter().map(|id| (pass, id)));
        }
        assert_eq!(due, [(10, first), (15, second)]);
        assert_eq!(postponed.len(), 0);
    }

    #[test]
    fn offer_that_has_ended_is_forgotten() {
        let mut ids = SlotMap::<FetchId, ()>::with_key();
        let (first, second) = (ids.insert(()), ids.insert(()));
        let mut postponed = PostponedOffers::default();
        [first, second].into_iter().for_each(|id| postponed.add(id));
        postponed.retain(|id| id == second);
        assert_eq!((postponed.len(), postponed.young), (1, vec![second]));
    }
}
