//! When things arrive: latency, partitions, and the trace of what has happened.

use std::collections::BTreeSet;
use std::time::Duration;

use super::State;
use crate::address::Address;
use crate::loopback::connection::{EndKey, EndpointKey, LoopbackConnection};
use crate::loopback::pipe::Due;
use crate::loopback::trace::{TraceAction, TraceEvent};

impl State {
    /// Returns the time at which something arrives that is sent now.
    pub(super) fn draw_arrival_time(&mut self) -> Duration {
        self.now + self.dice.draw_latency(&self.faults)
    }

    /// Separates the groups from each other, and all other addresses from them.
    pub(in crate::loopback) fn partition(&mut self, groups: &[&[Address]]) {
        // What was held may go on.
        self.list_all_due();
        let numbered = groups.iter().zip(0..);
        self.groups = numbered
            .flat_map(|(group, number)| group.iter().map(move |address| (*address, number)))
            .collect();
    }

    /// Whether a partition holds what is under way on a connection.
    pub(super) fn is_held(&self, connection: &LoopbackConnection) -> bool {
        let [connector, acceptor] = connection.addresses.map(|address| self.groups.get(&address));
        connector != acceptor
    }

    pub(in crate::loopback) fn track_due(&mut self) {
        self.due = Some(BTreeSet::new());
        self.list_all_due();
    }

    /// Lists an endpoint that can receive something at this time, or that finds out then whether it can.
    pub(super) fn list_due(&mut self, time: Duration, endpoint: EndpointKey) {
        if let Some(due) = &mut self.due {
            due.insert((time, endpoint));
        }
    }

    fn list_all_due(&mut self) {
        let now = self.now;
        if let Some(due) = &mut self.due {
            due.extend(self.endpoints.keys().map(|endpoint| (now, endpoint)));
        }
    }

    pub(in crate::loopback) fn take_due(&mut self) -> Vec<Address> {
        let Some(due) = &mut self.due else { return Vec::new() };
        let now = self.now;
        let mut endpoints = BTreeSet::new();
        while let Some(&(time, endpoint)) = due.first()
            && time <= now
        {
            due.pop_first();
            endpoints.insert(endpoint);
        }
        let address_of = |key| Some(self.endpoints.get(key)?.hello.address);
        endpoints.into_iter().filter_map(address_of).collect()
    }

    pub(in crate::loopback) fn next_arrival(&self) -> Option<Duration> {
        self.due.as_ref()?.first().map(|(time, _)| *time)
    }

    /// Returns how far the owner of an end is.
    pub(super) fn reader_now(&self, end: EndKey) -> Due {
        let owner = self.connections.get(end.connection).map(|connection| connection.end_at(end.side).owner);
        let call = owner.and_then(|owner| self.endpoints.get(owner)).map_or(0, |endpoint| endpoint.calls);
        Due { call, time: self.now }
    }

    /// Records what the owner of an end does, if the trace is recorded.
    pub(in crate::loopback) fn trace_from(&mut self, end: EndKey, what: TraceAction) {
        if self.trace.is_some()
            && let Some(connection) = self.connections.get(end.connection)
        {
            let to = connection.address_at(end.other_end().side);
            let from = connection.address_at(end.side);
            self.trace(from, to, what);
        }
    }

    pub(super) fn trace(&mut self, from: Address, to: Address, what: TraceAction) {
        let time = self.now;
        if let Some(events) = &mut self.trace {
            events.push(TraceEvent { time, from, to, what });
        }
    }
}
