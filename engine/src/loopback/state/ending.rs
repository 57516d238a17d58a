//! How connections of the network end: by a close, a refusal, a broken link, or the death of an endpoint.

use super::State;
use crate::errno::Errno;
use crate::loopback::connection::{ConnectionKey, EndKey, EndState, EndpointKey, Exposed, Side};
use crate::loopback::trace::TraceAction;
use crate::transport::{Close, LinkError};

impl State {
    /// Ends a connection that no endpoint has accepted.
    pub(super) fn refuse_connection(&mut self, connection: ConnectionKey, why: Errno) {
        if let Some(state) = self.connections.get_mut(connection) {
            state.acceptor.detach_owner(EndState::Gone);
            self.sever(connection, why);
            self.remove_if_unused(connection);
        }
    }

    /// Closes an end on behalf of its owner.
    pub(in crate::loopback) fn close(&mut self, end: EndKey, how: Close) {
        let Some(connection) = self.connections.get(end.connection) else { return };
        if connection.severed {
            self.end_mut(end).detach_owner(EndState::Gone);
        } else if !connection.made {
            // The connector has written nothing, and the acceptor does not know this connection.
            self.end_mut(end).detach_owner(EndState::Gone);
            self.end_mut(end.other_end()).detach_owner(EndState::Gone);
        } else if how == Close::Drain {
            self.flush_end(end);
            self.end_mut(end).detach_owner(EndState::Draining);
            let owner = self.end_mut(end).owner;
            if let Some(endpoint) = self.endpoints.get_mut(owner) {
                endpoint.draining.push(end);
            }
            let time = self.draw_arrival_time();
            let peer = self.end_mut(end.other_end());
            peer.inbound.finish(LinkError::Closed, time);
            let owner = peer.owner;
            self.list_due(time, owner);
            self.schedule_if_ready(end.other_end());
        } else {
            self.end_mut(end).detach_owner(EndState::Gone);
            self.sever(end.connection, Errno::ECONNRESET);
        }
        self.remove_if_unused(end.connection);
    }

    /// Detaches an owner from its end of a connection, after the owner was told that the link is down.
    pub(in crate::loopback) fn detach_owner_after_down(&mut self, end: EndKey) {
        self.end_mut(end).detach_owner(EndState::Gone);
        self.remove_if_unused(end.connection);
    }

    /// Immediately ends a connection in both directions. Of the bytes that were flushed before, all, some or
    /// none may still arrive.
    pub(super) fn sever(&mut self, connection: ConnectionKey, why: Errno) {
        let Some(state) = self.connections.get_mut(connection) else { return };
        if std::mem::replace(&mut state.severed, true) {
            return;
        }
        if !state.made {
            // The acceptor does not know this connection, and never will.
            state.acceptor.detach_owner(EndState::Gone);
        }
        let mut due = Vec::new();
        let times = [(); 2].map(|()| self.now + self.dice.draw_latency(&self.faults));
        for (side, time) in [Side::Connector, Side::Acceptor].into_iter().zip(times) {
            let loses = self.dice.draw_chance(self.faults.lose_per_mille);
            let end = state.end_at_mut(side);
            if end.state != EndState::Open {
                end.detach_owner(EndState::Gone);
                continue;
            }
            end.exposed = Exposed::default();
            end.inbound.finish(LinkError::System(why), time);
            due.push((time, end.owner));
            if loses {
                let keep_bytes = self.dice.draw_number_up_to(end.inbound.flushed_bytes());
                end.inbound.truncate(keep_bytes);
            }
        }
        due.into_iter().for_each(|(time, owner)| self.list_due(time, owner));
        self.schedule_if_ready(EndKey { connection, side: Side::Connector });
        self.schedule_if_ready(EndKey { connection, side: Side::Acceptor });
        self.remove_if_unused(connection);
    }

    /// Forgets a connection that neither end uses any more.
    fn remove_if_unused(&mut self, connection: ConnectionKey) {
        let Some(state) = self.connections.get(connection) else { return };
        if state.connector.state != EndState::Open && state.acceptor.state != EndState::Open {
            for owner in [state.connector.owner, state.acceptor.owner] {
                if let Some(endpoint) = self.endpoints.get_mut(owner) {
                    endpoint.connections.remove(&connection);
                }
            }
            self.connections.remove(connection);
        }
    }

    /// Removes an endpoint as if its process had died.
    pub(in crate::loopback) fn remove_endpoint(&mut self, key: EndpointKey) {
        let Some(endpoint) = self.endpoints.remove(key) else { return };
        let address = endpoint.hello.address;
        self.by_address.remove(&address);
        self.trace(address, address, TraceAction::Gone);
        for connection in endpoint.connections {
            let Some(state) = self.connections.get_mut(connection) else { continue };
            let mut loses = false;
            for end in [&mut state.connector, &mut state.acceptor] {
                if end.owner == key && end.state != EndState::Delivered {
                    end.detach_owner(EndState::Gone);
                    loses = true;
                }
            }
            if loses {
                self.sever(connection, Errno::ECONNRESET);
            }
            self.remove_if_unused(connection);
        }
    }

    pub(in crate::loopback) fn stop_accepting(&mut self, key: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(key) else { return };
        endpoint.accepting = false;
        for connection in std::mem::take(&mut endpoint.incoming) {
            self.refuse_connection(connection, Errno::ECONNRESET);
        }
    }

    /// Severs all connections between two endpoints. Returns how many there were.
    pub(in crate::loopback) fn break_links(&mut self, a: EndpointKey, b: EndpointKey) -> usize {
        let between = self.connections_where(|connection| {
            let owners = (connection.connector.owner, connection.acceptor.owner);
            !connection.severed && (owners == (a, b) || owners == (b, a))
        });
        for &connection in &between {
            self.sever(connection, Errno::ECONNRESET);
        }
        between.len()
    }
}
