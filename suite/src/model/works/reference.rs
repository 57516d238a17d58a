//! The model of deferred work.
//!
//! The calls of the application determine the value of a *known* counter. The value of a *counting* counter
//! also depends on when operations end. The bound of a counting counter is the value that it would have if
//! each operation ended at once. When all operations have ended, a counting counter equals its bound.

use super::{Change, CounterName, WorkEffect};

pub(super) const KNOWN: usize = 2;
pub(super) const COUNTING: usize = 3;

/// A value and an error value.
pub(super) type Counted = (u64, u64);

#[derive(Debug, Clone, Default)]
pub(super) struct Reference {
    /// The values of known counters.
    pub(super) known: [Counted; KNOWN],
    /// What the application and the works of known counters have added to counting counters.
    added: [Counted; COUNTING],
    pub(super) works: Vec<Work>,
    /// The works of known counters that have run, in order.
    pub(super) done: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) trigger: CounterName,
    threshold: u64,
    pub(super) effect: WorkEffect,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Done,
    Cancelled,
}

/// The counting counters and the works as they would be if every operation ended when it is posted.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) counted: [Counted; COUNTING],
    pub(super) is_done: Vec<bool>,
}

fn counted_total((value, errors): Counted) -> u64 {
    value.saturating_add(errors)
}

fn apply_change((value, errors): &mut Counted, change: Change) {
    match change {
        Change::Add(more) => *value = value.wrapping_add(more),
        Change::AddError(more) => *errors += more,
        Change::Set(new) => *value = new,
    }
}

impl Reference {
    /// Queues a work, or runs it if its threshold is reached.
    pub(super) fn queue_work(&mut self, trigger: CounterName, threshold: u64, effect: WorkEffect) {
        self.works.push(Work { trigger, threshold, effect, state: State::Waiting });
        self.run_due_works();
    }

    pub(super) fn change_counter(&mut self, counter: CounterName, change: Change) {
        match counter {
            CounterName::Known(number) => apply_change(&mut self.known[number], change),
            CounterName::Counting(number) => apply_change(&mut self.added[number], change),
        }
    }

    /// Runs the works of known counters that are due. The lowest threshold runs first. Of equal thresholds,
    /// the oldest work runs first. The order between counters makes no difference.
    pub(super) fn run_due_works(&mut self) {
        while let Some(number) = self.next_due_work() {
            self.works[number].state = State::Done;
            self.done.push(number);
            if let WorkEffect::Add { counter, value } = self.works[number].effect {
                self.change_counter(counter, Change::Add(value));
            }
        }
    }

    fn next_due_work(&self) -> Option<usize> {
        let due = self.works.iter().enumerate().filter(|(_, work)| match work.trigger {
            CounterName::Known(counter) => {
                work.state == State::Waiting
                    && counted_total(self.known[counter]) >= work.effective_threshold()
            }
            CounterName::Counting(_) => false,
        });
        due.min_by_key(|(number, work)| (work.effective_threshold(), *number)).map(|(number, _)| number)
    }

    /// Cancels a work, which then never runs.
    pub(super) fn cancel_work(&mut self, index: usize) {
        self.works[index].state = State::Cancelled;
    }

    /// Whether a work may still wait. The work was not cancelled, and the model has not run it.
    pub(super) fn may_wait(&self, work: usize) -> bool {
        self.works[work].state == State::Waiting
    }

    pub(super) fn is_cancelled(&self, work: usize) -> bool {
        self.works[work].state == State::Cancelled
    }

    pub(super) fn upper_bound(&self) -> Bound {
        let mut counted = self.added;
        let mut is_done: Vec<bool> = self.works.iter().map(|work| work.state == State::Done).collect();
        for work in self.works.iter().filter(|work| work.state == State::Done) {
            work.count_end(&mut counted);
        }
        let is_due = |number: usize, counted: &[Counted; COUNTING], is_done: &[bool]| {
            let work = &self.works[number];
            let CounterName::Counting(counter) = work.trigger else { return false };
            let waits = work.state == State::Waiting && !is_done[number];
            waits && counted_total(counted[counter]) >= work.effective_threshold()
        };
        while let Some(due) = (0..self.works.len()).find(|&number| is_due(number, &counted, &is_done)) {
            is_done[due] = true;
            let work = &self.works[due];
            if let WorkEffect::Add { counter: CounterName::Counting(counter), value } = work.effect {
                apply_change(&mut counted[counter], Change::Add(value));
            }
            work.count_end(&mut counted);
        }
        Bound { counted, is_done }
    }

    /// Whether work `one` is certainly done before work `other`. The order is known only for works of one
    /// counter. If the model has run both works, its order counts. Otherwise the order is certain only if
    /// `one` was queued earlier and has no higher threshold.
    pub(super) fn is_done_before(&self, one: usize, other: usize) -> bool {
        let (first, second) = (&self.works[one], &self.works[other]);
        let place = |work: usize| self.done.iter().position(|done| *done == work);
        let is_before = match (place(one), place(other)) {
            (Some(one), Some(other)) => one < other,
            _ => one < other && first.effective_threshold() <= second.effective_threshold(),
        };
        first.trigger == second.trigger && is_before
    }
}

impl Work {
    /// Returns the threshold. The largest number acts like the one before it.
    fn effective_threshold(&self) -> u64 {
        self.threshold.min(u64::MAX - 1)
    }

    /// Counts the end of an operation.
    fn count_end(&self, counted: &mut [Counted; COUNTING]) {
        if let WorkEffect::Send { completion: Some(counter), .. } = self.effect {
            counted[counter].0 += 1;
        }
    }

    pub(super) fn sends(&self) -> bool {
        matches!(self.effect, WorkEffect::Send { .. })
    }

    pub(super) fn is_reported(&self) -> bool {
        matches!(self.effect, WorkEffect::Send { is_reported: true, .. })
    }

    pub(super) fn is_triggered(&self) -> bool {
        matches!(self.effect, WorkEffect::Send { is_triggered: true, .. })
    }
}
