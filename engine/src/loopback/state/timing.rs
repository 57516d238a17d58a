//! When things arrive: latency, partitions, and the trace of what has happened.

use std::time::Duration;

use super::State;
use crate::address::Address;
use crate::loopback::connection::{EndKey, EndState, LoopbackConnection};
use crate::loopback::pipe::Due;
use crate::loopback::trace::{TraceAction, TraceEvent};

impl State {
    /// Returns the time at which something arrives that is sent now.
    pub(super) fn draw_arrival_time(&mut self) -> Duration {
        self.now + self.dice.draw_latency(&self.faults)
    }

    /// Separates the groups from each other, and all other addresses from them.
    pub(in crate::loopback) fn partition(&mut self, groups: &[&[Address]]) {
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

    /// Returns the earliest time at which an endpoint can receive something that no partition holds.
    /// Ignores endpoints that have never called `receive`: nothing arrives at them.
    pub(in crate::loopback) fn next_arrival(&self) -> Option<Duration> {
        let reads = |key| self.endpoints.get(key).is_some_and(|endpoint| endpoint.calls > 0);
        let free = || self.connections.values().filter(|connection| !self.is_held(connection));
        let inbound = free().flat_map(|connection| [&connection.connector, &connection.acceptor]);
        let of_links = inbound
            .filter(|end| end.state == EndState::Open && reads(end.owner))
            .filter(|end| end.link.is_some())
            .filter_map(|end| end.inbound.next_arrival());
        let of_endpoints = self.endpoints.values().filter(|endpoint| endpoint.calls > 0);
        let of_requests = of_endpoints.flat_map(|endpoint| {
            let is_news = !(endpoint.incoming.is_empty() && endpoint.writable.is_empty());
            let requests = endpoint.connecting.iter().filter_map(|(connection, due)| {
                let connection = self.connections.get(*connection)?;
                (!connection.severed && !self.is_held(connection)).then_some(due.time)
            });
            requests.chain(is_news.then_some(Duration::ZERO))
        });
        of_links.chain(of_requests).min()
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
