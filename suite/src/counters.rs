//! Counters of a party or a region, in this process or in another.

use std::sync::Arc;

use homespun::{Counter, CounterAttr, CounterEvents, Domain, Endpoint, MemoryRegion, WaitObject, WaitSet};

use super::call::RemoteCall;
use super::remote_party::RemoteParty;

/// All events of an endpoint that can be counted.
pub(super) const EVENTS: [CounterEvents; 6] = [
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
    There(Arc<RemoteParty>),
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

    /// Returns the values of the counter of this event.
    pub(super) fn read_counter(&self, event: CounterEvents) -> Counted {
        match self {
            Counters::Here(counters) => {
                let (_, counter) = counters.iter().find(|(counted, _)| *counted == event).expect("a counter");
                (counter.read(), counter.read_error())
            }
            Counters::There(party) => party.call(RemoteCall::Counted(event)).counted(),
        }
    }
}
