//! The works that wait for counters, by threshold and by the name that cancels them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// A counter that works wait for.
pub(super) trait TriggerCounter {
    /// Returns the current sum of its values.
    fn sum(&self) -> u64;

    /// Makes the counter notify its work queue when its sum reaches a threshold. If the sum has reached it
    /// already, the counter notifies at once.
    fn arm_threshold(&self, threshold: u64);
}

/// A work that can be cancelled by its name.
pub(super) trait CancellableWork {
    /// The name by which the application cancels the work. Several works may have the same name.
    type Name: Eq + Hash + Copy;

    fn name(&self) -> Self::Name;
}

/// The works (`W`) that wait for counters (`C`). Counters and works have numbers; an older work has a lower
/// number. Finding, adding or removing one of `n` works takes O(log n) steps, unless many works have the
/// same name.
pub(super) struct WaitingWorks<C, W: CancellableWork> {
    counters: HashMap<u64, CounterWorks<C, W>>,
    /// The numbers of the works with each name.
    names: HashMap<W::Name, BTreeSet<u64>>,
    /// The counter of each work, and its threshold.
    places: HashMap<u64, (u64, u64)>,
}

/// The works that wait for one counter.
struct CounterWorks<C, W> {
    counter: C,
    /// Works whose threshold the counter has reached, in the order in which they will run. Later changes of
    /// the counter do not affect them.
    reached: BTreeMap<i64, (u64, W)>,
    /// The key in `reached` of each of these works.
    turns: HashMap<u64, i64>,
    /// The other works, by threshold, then by age.
    unreached: BTreeMap<(u64, u64), W>,
}

impl<C, W: CancellableWork> Default for WaitingWorks<C, W> {
    fn default() -> Self {
        WaitingWorks { counters: HashMap::new(), names: HashMap::new(), places: HashMap::new() }
    }
}

impl<C: TriggerCounter, W: CancellableWork> WaitingWorks<C, W> {
    /// Adds a work that waits until its counter has reached a threshold.
    pub(super) fn add(&mut self, (counter_number, counter): (u64, C), threshold: u64, number: u64, work: W) {
        self.index_work(counter_number, threshold, number, &work);
        let works = self.counters.entry(counter_number).or_insert_with(|| CounterWorks::new(counter));
        works.unreached.insert((threshold, number), work);
        works.counter.arm_threshold(threshold);
    }

    /// Puts back a work from [`pop_due_or_arm`](Self::pop_due_or_arm) whose endpoint had no room. The work
    /// is the first of its counter again.
    pub(super) fn put_back(
        &mut self,
        (counter_number, counter): (u64, C),
        threshold: u64,
        number: u64,
        work: W,
    ) {
        self.index_work(counter_number, threshold, number, &work);
        let works = self.counters.entry(counter_number).or_insert_with(|| CounterWorks::new(counter));
        let turn = works.reached.first_key_value().map_or(0, |(first, _)| first - 1);
        works.turns.insert(number, turn);
        works.reached.insert(turn, (number, work));
    }

    /// Marks works of a counter as due if its sum has reached their threshold. They remain due even if the
    /// sum falls. Returns whether any work of the counter is due.
    pub(super) fn mark_reached_works_due(&mut self, counter_number: u64) -> bool {
        self.counters.get_mut(&counter_number).is_some_and(CounterWorks::mark_reached_works_due)
    }

    /// Marks all works of a counter as due. Returns whether there are any.
    pub(super) fn mark_all_works_due(&mut self, counter_number: u64) -> bool {
        self.counters.get_mut(&counter_number).is_some_and(|works| works.mark_due_up_to(u64::MAX))
    }

    /// Removes and returns the first work of a counter if the work is due. Otherwise makes the counter
    /// notify the work queue once the work is due.
    pub(super) fn pop_due_or_arm(&mut self, counter_number: u64) -> Option<(u64, W)> {
        let (number, work) = self.counters.get_mut(&counter_number)?.pop_due_or_arm()?;
        self.unindex_work(number, &work);
        self.forget_counter_if_empty(counter_number);
        Some((number, work))
    }

    /// Removes and returns the oldest work with this name that `is_meant` selects.
    pub(super) fn take_oldest(&mut self, name: W::Name, is_meant: impl Fn(&W) -> bool) -> Option<W> {
        let numbers = self.names.get(&name)?;
        let (number, counter_number, threshold) = numbers.iter().find_map(|number| {
            let (counter_number, threshold) = self.places.get(number)?;
            let work = self.counters.get(counter_number)?.get(*threshold, *number)?;
            is_meant(work).then_some((*number, *counter_number, *threshold))
        })?;
        let work = self.counters.get_mut(&counter_number)?.take(threshold, number)?;
        self.unindex_work(number, &work);
        self.forget_counter_if_empty(counter_number);
        Some(work)
    }

    /// Removes and returns all works that `is_meant` selects.
    pub(super) fn take_where(&mut self, is_meant: impl Fn(&W) -> bool) -> Vec<W> {
        let mut taken = Vec::new();
        self.counters.retain(|_, works| {
            works.take_where(&is_meant, &mut taken);
            !works.is_empty()
        });
        taken.iter().for_each(|(number, work)| self.unindex_work(*number, work));
        taken.into_iter().map(|(_, work)| work).collect()
    }

    fn index_work(&mut self, counter_number: u64, threshold: u64, number: u64, work: &W) {
        self.names.entry(work.name()).or_default().insert(number);
        self.places.insert(number, (counter_number, threshold));
    }

    fn unindex_work(&mut self, number: u64, work: &W) {
        self.places.remove(&number);
        let name = work.name();
        if let Some(numbers) = self.names.get_mut(&name) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.names.remove(&name);
            }
        }
    }

    fn forget_counter_if_empty(&mut self, counter_number: u64) {
        if self.counters.get(&counter_number).is_some_and(CounterWorks::is_empty) {
            self.counters.remove(&counter_number);
        }
    }
}

impl<C, W> CounterWorks<C, W> {
    fn new(counter: C) -> CounterWorks<C, W> {
        CounterWorks { counter, reached: BTreeMap::new(), turns: HashMap::new(), unreached: BTreeMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.reached.is_empty() && self.unreached.is_empty()
    }

    fn get(&self, threshold: u64, number: u64) -> Option<&W> {
        match self.turns.get(&number) {
            Some(turn) => self.reached.get(turn).map(|(_, work)| work),
            None => self.unreached.get(&(threshold, number)),
        }
    }

    fn take(&mut self, threshold: u64, number: u64) -> Option<W> {
        match self.turns.remove(&number) {
            Some(turn) => self.reached.remove(&turn).map(|(_, work)| work),
            None => self.unreached.remove(&(threshold, number)),
        }
    }

    /// Moves the works with thresholds up to `sum` to the end of `reached`. Returns whether `reached` has
    /// any works now.
    fn mark_due_up_to(&mut self, sum: u64) -> bool {
        let mut turn = self.reached.last_key_value().map_or(0, |(last, _)| last + 1);
        while let Some(first) = self.unreached.first_entry().filter(|first| first.key().0 <= sum) {
            let ((_, number), work) = first.remove_entry();
            self.turns.insert(number, turn);
            self.reached.insert(turn, (number, work));
            turn += 1;
        }
        !self.reached.is_empty()
    }

    fn take_where(&mut self, is_meant: impl Fn(&W) -> bool, taken: &mut Vec<(u64, W)>) {
        for (_, (number, work)) in self.reached.extract_if(.., |_, (_, work)| is_meant(work)) {
            self.turns.remove(&number);
            taken.push((number, work));
        }
        let unreached = self.unreached.extract_if(.., |_, work| is_meant(work));
        taken.extend(unreached.map(|((_, number), work)| (number, work)));
    }
}

impl<C: TriggerCounter, W> CounterWorks<C, W> {
    fn mark_reached_works_due(&mut self) -> bool {
        self.mark_due_up_to(self.counter.sum())
    }

    fn pop_due_or_arm(&mut self) -> Option<(u64, W)> {
        if self.mark_reached_works_due() {
            let (_, (number, work)) = self.reached.pop_first()?;
            self.turns.remove(&number);
            return Some((number, work));
        }
        let ((threshold, _), _) = self.unreached.first_key_value()?;
        // `arm_threshold` compares the sum again, so a change after the comparison above is not missed.
        self.counter.arm_threshold(*threshold);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A counter with this sum.
    struct At(u64);

    impl TriggerCounter for At {
        fn sum(&self) -> u64 {
            self.0
        }

        fn arm_threshold(&self, _: u64) {}
    }

    /// A work with this name.
    #[derive(Debug, PartialEq, Eq)]
    struct Job(u64);

    impl CancellableWork for Job {
        type Name = u64;

        fn name(&self) -> u64 {
            self.0
        }
    }

    const JOBS: u64 = 1000;

    /// Returns works of ten counters, half of which are due.
    fn make_half_due_works() -> WaitingWorks<At, Job> {
        let mut waiting = WaitingWorks::default();
        for number in 0..JOBS {
            waiting.add((number % 10, At(JOBS / 2)), number, number, Job(number));
        }
        (0..10).for_each(|counter| assert!(waiting.mark_reached_works_due(counter)));
        waiting
    }

    #[test]
    fn work_is_cancelled_without_looking_at_others() {
        let mut waiting = make_half_due_works();
        for name in [0, 499, 501, 999] {
            let looks = Cell::new(0);
            let taken = waiting.take_oldest(name, |_| {
                looks.set(looks.get() + 1);
                true
            });
            assert_eq!((taken, looks.get()), (Some(Job(name)), 1));
            assert_eq!(waiting.take_oldest(name, |_| true), None);
        }
    }

    #[test]
    fn oldest_of_works_with_one_context_is_cancelled_first() {
        let mut waiting = WaitingWorks::default();
        // The older work waits for the higher threshold.
        waiting.add((7, At(5)), 9, 1, Job(3));
        waiting.add((8, At(5)), 4, 2, Job(3));
        assert!(!waiting.mark_reached_works_due(7) && waiting.mark_reached_works_due(8));
        assert_eq!(waiting.take_oldest(3, |_| true), Some(Job(3)));
        assert_eq!(waiting.pop_due_or_arm(8), Some((2, Job(3))));
        assert!(waiting.counters.is_empty() && waiting.names.is_empty() && waiting.places.is_empty());
    }

    #[test]
    fn work_that_is_put_back_is_first_again() {
        let mut waiting = WaitingWorks::default();
        waiting.add((7, At(5)), 4, 1, Job(1));
        waiting.add((7, At(5)), 5, 2, Job(2));
        let (number, job) = waiting.pop_due_or_arm(7).expect("it is due");
        waiting.put_back((7, At(5)), 4, number, job);
        assert_eq!(waiting.pop_due_or_arm(7), Some((1, Job(1))));
        assert_eq!(waiting.take_where(|_| true), [Job(2)]);
        assert!(waiting.counters.is_empty() && waiting.names.is_empty() && waiting.places.is_empty());
    }
}
