//! What work that waits for counters comes to.
//!
//! The value of a *known* counter follows from what the application has done. That of a *counting* one also
//! depends on how soon operations end; it is bounded by what it would be if each operation ended as soon as
//! it is posted. Values of such counters only grow, so when everything has ended, that bound is what they
//! are, in whichever order it has happened.

use super::program::{Action, Change, CounterName};

/// The first half triggers works; the second half is what they result in.
pub(super) const KNOWN: usize = 4;
pub(super) const COUNTING: usize = 3;

/// A value and an error value.
pub(super) type Counted = (u64, u64);

#[derive(Debug, Clone, Default)]
pub(super) struct Reference {
    /// What known counters are.
    pub(super) known: [Counted; KNOWN],
    /// What was added to counting ones by the application, and by works of known counters.
    added: [Counted; COUNTING],
    pub(super) works: Vec<Work>,
    /// The works of known counters that were done, in this order.
    pub(super) done: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) trigger: CounterName,
    threshold: u64,
    pub(super) deed: Deed,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Change { counter: CounterName, change: Change },
    Post { action: Action, completion: Option<usize>, is_reported: bool, is_triggered: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Done,
    TakenBack,
}

/// Counting counters and works, if every operation ends as soon as it is posted.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) counted: [Counted; COUNTING],
    pub(super) is_done: Vec<bool>,
}

fn sum((value, errors): Counted) -> u64 {
    value.saturating_add(errors)
}

fn apply((value, errors): &mut Counted, change: Change) {
    match change {
        Change::Add(more) => *value = value.wrapping_add(more),
        Change::AddError(more) => *errors += more,
        Change::Set(new) => *value = new,
    }
}

impl Reference {
    /// Has a work wait, or does it if its counter is there.
    pub(super) fn queue(&mut self, trigger: CounterName, threshold: u64, deed: Deed) {
        self.works.push(Work { trigger, threshold, deed, state: State::Waiting });
        self.do_due();
    }

    pub(super) fn change(&mut self, counter: CounterName, change: Change) {
        match counter {
            CounterName::Known(number) => apply(&mut self.known[number], change),
            CounterName::Counting(number) => apply(&mut self.added[number], change),
        }
    }

    /// Does what is due of known counters: of one counter the work with the lowest threshold first, and of
    /// equal ones the oldest. Between counters the order makes no difference.
    pub(super) fn do_due(&mut self) {
        while let Some(number) = self.next_due() {
            self.works[number].state = State::Done;
            self.done.push(number);
            if let Deed::Change { counter, change } = self.works[number].deed {
                self.change(counter, change);
            }
        }
    }

    fn next_due(&self) -> Option<usize> {
        let due = self.works.iter().enumerate().filter(|(_, work)| match work.trigger {
            CounterName::Known(counter) => {
                work.state == State::Waiting && sum(self.known[counter]) >= work.least()
            }
            CounterName::Counting(_) => false,
        });
        due.min_by_key(|(number, work)| (work.least(), *number)).map(|(number, _)| number)
    }

    /// A work is never done from now on.
    pub(super) fn take_back(&mut self, work: usize) {
        self.works[work].state = State::TakenBack;
    }

    /// Whether a work was neither taken back nor certainly done.
    pub(super) fn may_wait(&self, work: usize) -> bool {
        self.works[work].state == State::Waiting
    }

    pub(super) fn was_taken_back(&self, work: usize) -> bool {
        self.works[work].state == State::TakenBack
    }

    pub(super) fn bound(&self) -> Bound {
        let mut counted = self.added;
        let mut is_done: Vec<bool> = self.works.iter().map(|work| work.state == State::Done).collect();
        for work in self.works.iter().filter(|work| work.state == State::Done) {
            work.end(&mut counted);
        }
        let is_due = |number: usize, counted: &[Counted; COUNTING], is_done: &[bool]| {
            let work = &self.works[number];
            let CounterName::Counting(counter) = work.trigger else { return false };
            let waits = work.state == State::Waiting && !is_done[number];
            waits && sum(counted[counter]) >= work.least()
        };
        while let Some(due) = (0..self.works.len()).find(|&number| is_due(number, &counted, &is_done)) {
            is_done[due] = true;
            let work = &self.works[due];
            if let Deed::Change { counter: CounterName::Counting(counter), change } = work.deed {
                apply(&mut counted[counter], change);
            }
            work.end(&mut counted);
        }
        Bound { counted, is_done }
    }

    /// Whether one work is certainly done before the other, if both are: they wait for the same counter, and
    /// the one that was queued first has no higher threshold; or the counters are known.
    pub(super) fn is_before(&self, one: usize, other: usize) -> bool {
        let (first, second) = (&self.works[one], &self.works[other]);
        let place = |work: usize| self.done.iter().position(|done| *done == work);
        match (place(one), place(other)) {
            (Some(one), Some(other)) => first.trigger == second.trigger && one < other,
            _ => first.trigger == second.trigger && one < other && first.least() <= second.least(),
        }
    }
}

impl Work {
    /// The largest threshold is as the one before it.
    fn least(&self) -> u64 {
        self.threshold.min(u64::MAX - 1)
    }

    /// Counts the end of an operation.
    fn end(&self, counted: &mut [Counted; COUNTING]) {
        if let Deed::Post { action, completion: Some(counter), .. } = self.deed {
            let (value, errors) = &mut counted[counter];
            *(if action == Action::WriteInVain { errors } else { value }) += 1;
        }
    }
}
