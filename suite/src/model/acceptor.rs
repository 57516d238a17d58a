//! Acceptors: rules that follow a history event by event, with the states that can explain it so far.
//!
//! Each part of the model is an acceptor of its own, so that the sets stay small: one for each
//! [receiver](crate::model::matching), one for the [ends](crate::model::ends) of operations, and one for each
//! [element and each range of bytes](crate::model::memory) of a region. An event after which no state is
//! left is a [`Violation`].

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use crate::model::history::{Event, History};

/// An event that no state explains.
#[derive(Debug)]
pub(crate) struct Violation {
    /// The clause that forbids it: the page, and the clause's name.
    pub(crate) clause: &'static str,
    /// The event.
    pub(crate) event: String,
    /// What the clause asks for.
    pub(crate) expected: String,
}

/// What follows the clause where a [`Violation`] is told.
const IS_VIOLATED: &str = " is violated by ";

/// Returns the clause that the failure of a program names.
pub fn violated_clause(failure: &str) -> Option<&str> {
    Some(failure.split_once(IS_VIOLATED)?.0)
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{IS_VIOLATED}{}: {}", self.clause, self.event, self.expected)
    }
}

/// Why an event does not follow from a state.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) clause: &'static str,
    pub(crate) expected: String,
    /// The event that does not follow, if it is an earlier one.
    pub(crate) at: Option<Event>,
}

/// Rejects an event unless the clause holds.
pub(crate) fn require(
    holds: bool,
    clause: &'static str,
    expected: impl FnOnce() -> String,
) -> Result<(), Rejection> {
    if holds { Ok(()) } else { Err(Rejection { clause, expected: expected(), at: None }) }
}

/// A part of the model.
pub(crate) trait Rules {
    type State: Clone + Ord;

    /// Returns the state before the first event.
    fn start(&self) -> Self::State;

    /// Whether an event may change a state.
    fn concerns(&self, _: Event) -> bool {
        true
    }

    /// Returns the states to which an event at this time may lead.
    fn step(&self, state: &Self::State, now: u64, event: Event) -> Result<Vec<Self::State>, Rejection>;
}

/// Follows a history. The history names the operation that got each message, and what each access found. So
/// a state need not guess what a later event shows.
pub(crate) fn accept<R: Rules>(rules: &R, history: &History) -> Result<(), Violation> {
    let mut states = BTreeSet::from([rules.start()]);
    for (now, event) in (1..).zip(&history.events).filter(|(_, event)| rules.concerns(**event)) {
        let mut after = BTreeSet::new();
        let mut rejected = None;
        for state in &states {
            match rules.step(state, now, *event) {
                Ok(states) => after.extend(states),
                Err(rejection) => rejected = Some(rejection),
            }
        }
        if after.is_empty() {
            let Rejection { clause, expected, at } = rejected.expect("a state leads on, or says why not");
            return Err(Violation { clause, event: history.describe(at.unwrap_or(*event)), expected });
        }
        states = after;
    }
    Ok(())
}
