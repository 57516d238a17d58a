//! The works that wait for one counter.

use std::collections::{BTreeMap, VecDeque};

/// What works wait for: a number that changes, and tells when it has come to a threshold.
pub(super) trait Threshold {
    /// The number now.
    fn reached(&self) -> u64;

    /// Has the number tell when it has come to this one, also if it is there already.
    fn await_threshold(&self, threshold: u64);
}

/// The works (`W`) that wait for one counter, each with a number by which its age is known.
pub(super) struct Waiting<C, W> {
    counter: C,
    /// Works whose threshold the counter has reached, in the order in which they are carried out. They stay here whatever
    /// becomes of the counter.
    reached: VecDeque<(u64, W)>,
    /// The others, by their thresholds; those with the same threshold keep the order in which they came.
    works: BTreeMap<(u64, u64), W>,
}

impl<C: Threshold, W> Waiting<C, W> {
    pub(super) fn new(counter: C) -> Waiting<C, W> {
        Waiting { counter, reached: VecDeque::new(), works: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reached.is_empty() && self.works.is_empty()
    }

    pub(super) fn add(&mut self, threshold: u64, number: u64, work: W) {
        self.works.insert((threshold, number), work);
        self.counter.await_threshold(threshold);
    }

    /// Remembers which works are due by the counter as it is now. Whether there are some.
    pub(super) fn keep_reached(&mut self) -> bool {
        let sum = self.counter.reached();
        while self.works.first_key_value().is_some_and(|((threshold, _), _)| *threshold <= sum) {
            let first = self.works.pop_first().map(|((_, number), work)| (number, work));
            self.reached.extend(first);
        }
        !self.reached.is_empty()
    }

    /// The first work, if it is due. If not, the counter tells when it is.
    pub(super) fn take_due(&mut self) -> Option<(u64, W)> {
        if self.keep_reached() {
            return self.reached.pop_front();
        }
        let ((threshold, _), _) = self.works.first_key_value()?;
        // It looks once more after it has promised, so nothing that is counted meanwhile is missed.
        self.counter.await_threshold(*threshold);
        None
    }

    /// Puts a work back that was taken and found no room.
    pub(super) fn put_back(&mut self, number: u64, work: W) {
        self.reached.push_front((number, work));
    }

    /// The number of the oldest work that is meant.
    pub(super) fn oldest(&self, is_meant: impl Fn(&W) -> bool) -> Option<u64> {
        let reached = self.reached.iter().map(|(number, work)| (*number, work));
        let others = self.works.iter().map(|((_, number), work)| (*number, work));
        reached.chain(others).filter(|(_, work)| is_meant(work)).map(|(number, _)| number).min()
    }

    /// Takes out the work with this number.
    pub(super) fn take(&mut self, number: u64) -> Option<W> {
        if let Some(place) = self.reached.iter().position(|(known, _)| *known == number) {
            return self.reached.remove(place).map(|(_, work)| work);
        }
        let place = *self.works.keys().find(|(_, known)| *known == number)?;
        self.works.remove(&place)
    }

    /// Takes out all works that are meant.
    pub(super) fn take_all(&mut self, is_meant: impl Fn(&W) -> bool, taken: &mut Vec<W>) {
        let (meant, others) =
            std::mem::take(&mut self.reached).into_iter().partition(|(_, work)| is_meant(work));
        self.reached = others;
        let meant: VecDeque<_> = meant;
        taken.extend(meant.into_iter().map(|(_, work)| work));
        taken.extend(self.works.extract_if(.., |_, work| is_meant(work)).map(|(_, work)| work));
    }
}
