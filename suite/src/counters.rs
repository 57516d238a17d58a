//! The counters of a party and of its regions, in this process or in another.

use std::sync::Arc;

use homespun::{Counter, CounterAttr, CounterEvents, Domain, Endpoint, MemoryRegion, WaitObject, WaitSet};

use super::call::{RemoteAnswer, RemoteCall};
use super::party::{Deadline, Party};
use super::worker::Worker;

/// All events of an endpoint that can be counted.
const EVENTS: [CounterEvents; 6] = [
    CounterEvents::SEND,
    CounterEvents::RECV,
    CounterEvents::READ,
    CounterEvents::WRITE,
    CounterEvents::REMOTE_READ,
    CounterEvents::REMOTE_WRITE,
];

/// A counter for each kind of event.
#[derive(Debug)]
pub(super) enum Counters {
    Here(Vec<(CounterEvents, Counter)>),
    There(Arc<Worker>),
}

/// The value and the error value of a counter.
pub type Counted = (u64, u64);

impl Counters {
    /// Binds counters of all events to an endpoint that is not enabled yet.
    pub(super) fn bind_all_events(
        domain: &Domain,
        endpoint: &Endpoint,
        wait: WaitObject,
        wait_set: Option<WaitSet>,
    ) -> Counters {
        let attr = CounterAttr { wait, wait_set };
        let counters = EVENTS.map(|event| {
            let counter = domain.open_counter(&attr).expect("a counter");
            endpoint.bind_counter(&counter, event).expect("the first counter of this event");
            (event, counter)
        });
        Counters::Here(counters.into())
    }

    /// Counts the accesses of peers to a region.
    pub(super) fn bind_region(domain: &Domain, region: &MemoryRegion) -> Counters {
        let counters = [CounterEvents::REMOTE_READ, CounterEvents::REMOTE_WRITE].map(|event| {
            let counter = domain.open_counter(&CounterAttr::default()).expect("a counter");
            region.bind_counter(&counter, event).expect("the first counter of this event");
            (event, counter)
        });
        Counters::Here(counters.into())
    }

    /// The counter of this event.
    pub(super) fn read_counter(&self, event: CounterEvents) -> Counted {
        match self {
            Counters::Here(counters) => {
                let (_, counter) = counters.iter().find(|(counted, _)| *counted == event).expect("a counter");
                (counter.read(), counter.read_error())
            }
            Counters::There(worker) => expect_counted(worker.ask(&RemoteCall::Counted(event.bits()))),
        }
    }
}

/// The counter values in a process's answer.
pub(super) fn expect_counted(answer: RemoteAnswer) -> Counted {
    match answer {
        RemoteAnswer::Counted(value, errors) => (value, errors),
        other => panic!("{other:?}"),
    }
}

impl Party {
    /// The counter of this event, for a party in this process.
    #[track_caller]
    pub fn counter_here(&self, event: CounterEvents) -> &Counter {
        match &self.counters {
            Some(Counters::Here(counters)) => {
                &counters.iter().find(|(counted, _)| *counted == event).expect("a counter").1
            }
            _ => panic!("the party has no counter in this process"),
        }
    }

    /// The counted events of this kind.
    #[track_caller]
    pub fn read_counter(&self, event: CounterEvents) -> Counted {
        self.counters.as_ref().expect("a party that counts").read_counter(event)
    }

    /// Waits until the counters have these values, and all others are 0. Drives all parties meanwhile.
    #[track_caller]
    pub fn wait_for_counts(&self, expected: &[(CounterEvents, Counted)]) {
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
