//! The counters of a party.

use homespun::{Counter, CounterEvents};

use super::Party;
use crate::counters::{Counted, Counters, EVENTS};
use crate::deadline::Deadline;

impl Party {
    /// Returns the counter of this event, for a party in this process.
    #[track_caller]
    pub fn local_counter(&self, event: CounterEvents) -> &Counter {
        match &self.counters {
            Some(Counters::Here(counters)) => {
                &counters.iter().find(|(counted, _)| *counted == event).expect("a counter").1
            }
            _ => panic!("the party has no counter in this process"),
        }
    }

    /// Returns the values of the counter of this event.
    #[track_caller]
    pub fn read_counter(&self, event: CounterEvents) -> Counted {
        self.counters.as_ref().expect("a party that counts").read_counter(event)
    }

    /// Waits until these counters have these values and all other counters are 0. Drives all parties
    /// meanwhile.
    #[track_caller]
    pub fn wait_for_exact_counts(&self, expected: &[(CounterEvents, Counted)]) {
        let deadline = Deadline::new();
        let wanted = EVENTS.map(|event| {
            let found = expected.iter().find(|(mentioned, _)| *mentioned == event);
            found.map_or((0, 0), |(_, counted)| *counted)
        });
        loop {
            let counted = EVENTS.map(|event| self.read_counter(event));
            if counted == wanted {
                return;
            }
            self.progress_all();
            deadline.yield_or_panic_with(|| format!("{wanted:?} of {EVENTS:?}, instead of {counted:?}"));
        }
    }
}
