//! The state of the network: its endpoints, and the connections between them.
//!
//! One lock guards the state. No function here calls a frame handler, so no thread holds the lock
//! while a handler runs.

mod ending;
mod timing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use slotmap::SlotMap;

use crate::address::{Address, AddressFormat};
use crate::errno::Errno;
use crate::limits::INJECT_MAX_BYTES;
use crate::loopback::connection::{
    ConnectionKey, End, EndKey, EndState, EndpointKey, LoopbackConnection, Side,
};
use crate::loopback::faults::{CAPACITY_MIN_BYTES, Faults, RandomSource};
use crate::loopback::pipe::{Due, Pipe};
use crate::loopback::trace::{TraceAction, TraceEvent};
use crate::transport::{LinkCaps, LinkId, Pull, RemotePayload, Sent};
use crate::wire::Header;
use crate::wire::frame::HEADER_MAX_BYTES;
use crate::wire::hello::Hello;

/// The first port for endpoints that ask for no port: the start of IANA's dynamic range.
const FIRST_PORT: u16 = 49_152;

pub(super) struct State {
    pub(super) dice: RandomSource,
    pub(super) faults: Faults,
    /// The time, as the user of the network has told it.
    pub(super) now: Duration,
    /// For each address that a partition names, the number of its group.
    pub(super) groups: BTreeMap<Address, usize>,
    /// The endpoints that can receive something, and when; `None` if the user does not ask for them. An
    /// endpoint that is gone may be listed.
    due: Option<BTreeSet<(Duration, EndpointKey)>>,
    /// What has happened, if it is recorded.
    pub(super) trace: Option<Vec<TraceEvent>>,
    endpoints: SlotMap<EndpointKey, Endpoint>,
    by_address: BTreeMap<Address, EndpointKey>,
    connections: SlotMap<ConnectionKey, LoopbackConnection>,
    next_port: u16,
    /// How many payloads endpoints have exposed. Gives each payload a number that is unique on this
    /// network.
    exposures: u64,
}

struct Endpoint {
    hello: Hello,
    accepting: bool,
    /// How many times the endpoint has called `receive`. Delays are counted in these calls.
    calls: u64,
    /// Connections of which this endpoint owns an end.
    connections: BTreeSet<ConnectionKey>,
    /// Connections that this endpoint makes, and when they are complete.
    connecting: Vec<(ConnectionKey, Due)>,
    /// Connections that this endpoint has not accepted yet.
    incoming: VecDeque<ConnectionKey>,
    /// Ends of this endpoint that have something to report, in the order of service. No end is
    /// listed twice.
    ready: VecDeque<EndKey>,
    /// Ends of this endpoint with unflushed bytes. The list may name connections that are gone.
    unflushed: Vec<EndKey>,
    /// Ends of this endpoint that may write again. The list may name connections that are gone.
    writable: Vec<EndKey>,
    /// Ends that this endpoint has closed by [`Close::Drain`](crate::transport::Close::Drain) since
    /// its last call of `flush` or `receive`.
    draining: Vec<EndKey>,
}

/// An end that [`State::take_next_ready`] found.
pub(super) struct Ready {
    pub(super) end: EndKey,
    pub(super) link: LinkId,
    pub(super) available_bytes: usize,
}

impl State {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        State {
            dice: RandomSource::new(seed),
            faults,
            now: Duration::ZERO,
            groups: BTreeMap::new(),
            due: None,
            trace: None,
            endpoints: SlotMap::with_key(),
            by_address: BTreeMap::new(),
            connections: SlotMap::with_key(),
            next_port: FIRST_PORT,
            exposures: 0,
        }
    }

    pub(super) fn open(&mut self, bind: Address, instance: u64) -> Result<(EndpointKey, Address), Errno> {
        let host = if bind.is_specific() { bind } else { localhost(bind.format()).with_port(bind.port()) };
        let address = if host.port() == 0 { self.next_free_address(host)? } else { host };
        if self.by_address.contains_key(&address) {
            return Err(Errno::EADDRINUSE);
        }
        let key = self.endpoints.insert(Endpoint {
            hello: Hello { address, instance },
            accepting: true,
            calls: 0,
            connections: BTreeSet::new(),
            connecting: Vec::new(),
            incoming: VecDeque::new(),
            ready: VecDeque::new(),
            unflushed: Vec::new(),
            writable: Vec::new(),
            draining: Vec::new(),
        });
        self.by_address.insert(address, key);
        Ok((key, address))
    }

    /// Returns an address of the same host with the next free port.
    fn next_free_address(&mut self, host: Address) -> Result<Address, Errno> {
        for _ in FIRST_PORT..=u16::MAX {
            let address = host.with_port(self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.by_address.contains_key(&address) {
                return Ok(address);
            }
        }
        Err(Errno::EADDRINUSE)
    }

    pub(super) fn is_open(&self, key: EndpointKey) -> bool {
        self.endpoints.contains_key(key)
    }

    pub(super) fn endpoint_at(&self, address: Address) -> Option<EndpointKey> {
        self.by_address.get(&address).copied()
    }

    /// Begins a connection. If the connection is refused, its other end is gone from the start.
    pub(super) fn connect(&mut self, from: EndpointKey, to: Address, link: LinkId) -> EndKey {
        let side = Side::Connector;
        if !self.is_open(from) {
            return EndKey { connection: ConnectionKey::default(), side };
        }
        let refused = self.dice.draw_chance(self.faults.refuse_per_mille);
        let listener = self.endpoint_at(to).filter(|_| !refused);
        let capacity_bytes = self.faults.capacity_bytes.max(CAPACITY_MIN_BYTES) as usize;
        let connection = self.connections.insert(LoopbackConnection {
            connector: End::new(from, Some(link), capacity_bytes),
            acceptor: End::new(listener.unwrap_or_default(), None, capacity_bytes),
            addresses: [self.endpoints[from].hello.address, to],
            made: false,
            severed: false,
            pull_min_bytes: self.faults.pull_min_bytes,
        });
        for owner in [Some(from), listener].into_iter().flatten() {
            self.endpoints[owner].connections.insert(connection);
        }
        let end = EndKey { connection, side };
        self.trace_from(end, TraceAction::Connect);
        if listener.is_some() {
            let delay_calls = self.dice.draw_delay_calls(&self.faults);
            let time = self.draw_arrival_time();
            let endpoint = &mut self.endpoints[from];
            endpoint.connecting.push((connection, Due { call: endpoint.calls + 1 + delay_calls, time }));
            self.list_due(time, from);
        } else {
            self.refuse_connection(connection, Errno::ECONNREFUSED);
        }
        end
    }

    /// Starts a call of `receive`: counts the call, and makes the connections that are due.
    pub(super) fn begin_receive_call(&mut self, key: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(key) else { return };
        endpoint.calls += 1;
        let now = Due { call: endpoint.calls, time: self.now };
        let hello = endpoint.hello.to_bytes();
        self.finish_draining(key);
        let Some(endpoint) = self.endpoints.get_mut(key) else { return };
        for (connection, due) in std::mem::take(&mut endpoint.connecting) {
            let is_held = self.connections.get(connection).is_some_and(|state| self.is_held(state));
            match self.connections.get_mut(connection) {
                Some(state) if !state.severed && (is_held || !due.is_reached_at(now)) => {
                    self.endpoints[key].connecting.push((connection, due));
                    if !is_held && due.time <= now.time {
                        self.list_due(now.time, key);
                    }
                }
                Some(state) if !state.severed => {
                    let owner = state.acceptor.owner;
                    match self.endpoints.get_mut(owner).filter(|endpoint| endpoint.accepting) {
                        Some(listener) => {
                            state.made = true;
                            listener.incoming.push_back(connection);
                            self.list_due(now.time, owner);
                            let connector = EndKey { connection, side: Side::Connector };
                            self.trace_from(connector, TraceAction::Connected);
                            self.send_hello(connector, &hello);
                            self.list_if_room_wanted(connector);
                        }
                        None => self.refuse_connection(connection, Errno::ECONNREFUSED),
                    }
                }
                _ => {}
            }
        }
    }

    /// Accepts a waiting connection, if there is one, as the link with this number.
    pub(super) fn accept(&mut self, key: EndpointKey, link: LinkId) -> Option<EndKey> {
        loop {
            let connection = self.endpoints.get_mut(key)?.incoming.pop_front()?;
            let end = EndKey { connection, side: Side::Acceptor };
            let Some(state) = self.connections.get_mut(connection) else { continue };
            state.acceptor.link = Some(link);
            self.schedule_if_ready(end);
            return Some(end);
        }
    }

    /// Sends the acceptor's hello. The acceptor has already read the connector's hello. So the
    /// acceptor's hello tells the connector that the link is up on both sides.
    pub(super) fn answer_hello(&mut self, key: EndpointKey, end: EndKey) {
        if let Some(endpoint) = self.endpoints.get(key)
            && self.connections.contains_key(end.connection)
        {
            let hello = endpoint.hello.to_bytes();
            self.send_hello(end, &hello);
        }
    }

    /// Whether the other side of a connection has closed its end, or the connection is broken. What was sent
    /// before may still be under way.
    pub(super) fn has_ended(&self, end: EndKey) -> bool {
        let connection = self.connections.get(end.connection);
        connection.is_none_or(|it| it.severed || it.end_at(end.other_end().side).state != EndState::Open)
    }

    /// Sends the hello before any frame. A new link always has room for it.
    fn send_hello(&mut self, end: EndKey, hello: &[u8]) {
        let peer = end.other_end();
        if !self.connections[end.connection].severed {
            self.end_mut(peer).inbound.append(hello);
            self.flush_end(end);
        }
    }

    /// Returns the capabilities of an end, or `None` if its connection no longer exists.
    pub(super) fn caps(&self, end: EndKey) -> Option<LinkCaps> {
        let connection = self.connections.get(end.connection)?;
        let capacity_bytes = connection.end_at(end.side).inbound.capacity_bytes();
        Some(LinkCaps {
            inline_max_bytes: INJECT_MAX_BYTES.min(capacity_bytes - HEADER_MAX_BYTES),
            pull_min_bytes: connection.pull_min_bytes.map_or(usize::MAX, |bytes| bytes as usize),
        })
    }

    /// Draws whether the other end should pull payload that it can pull.
    pub(super) fn draw_prefers_pull(&mut self) -> bool {
        !self.dice.draw_chance(self.faults.prefer_send_per_mille)
    }

    /// Writes a whole frame or nothing. If `in_parts`, may also write the header and a part of the
    /// payload.
    pub(super) fn send(
        &mut self,
        end: EndKey,
        header: &[u8],
        payload: &[IoSlice<'_>],
        in_parts: bool,
    ) -> Sent {
        let sent = self.try_send(end, header, payload, in_parts);
        let least_bytes = header.len() + if in_parts { 0 } else { total_bytes(payload) };
        self.record_refusal(end, sent, least_bytes);
        sent
    }

    /// Continues a frame that was written in part.
    pub(super) fn resume(&mut self, end: EndKey, rest: &[IoSlice<'_>]) -> Sent {
        let sent = self.try_resume(end, rest);
        self.record_refusal(end, sent, 1);
        sent
    }

    /// Records that an end may not write for now, unless a frame was taken as a whole. The end's owner learns
    /// of room when the other end has read something. If there is room for the least that the write needs,
    /// the refusal was a fault, and the owner may try again in its next pass.
    fn record_refusal(&mut self, end: EndKey, sent: Sent, least_bytes: usize) {
        let connection = self.connections.get_mut(end.connection);
        // The owner of a severed end writes nothing more: it learns of the end, perhaps later.
        let Some(connection) = connection.filter(|connection| !connection.severed) else { return };
        let room_bytes = connection.end_at(end.other_end().side).inbound.room_bytes();
        let has_room = match sent {
            Sent::Whole => return,
            Sent::Partial(_) => room_bytes > 0,
            Sent::Full => room_bytes >= least_bytes,
        };
        let may_write = connection.made || end.side == Side::Acceptor;
        connection.end_at_mut(end.side).wants_room = true;
        if may_write && has_room {
            self.list_if_room_wanted(end);
        }
    }

    /// Lists an end that may write again, if its owner waits for that.
    pub(super) fn list_if_room_wanted(&mut self, end: EndKey) {
        let Some(connection) = self.connections.get_mut(end.connection) else { return };
        let local = connection.end_at_mut(end.side);
        if std::mem::take(&mut local.wants_room)
            && let Some(endpoint) = self.endpoints.get_mut(local.owner)
        {
            endpoint.writable.push(end);
            let owner = local.owner;
            self.list_due(self.now, owner);
        }
    }

    /// Returns the links of an endpoint that may take frames again since the last call.
    pub(super) fn take_writable_links(&mut self, key: EndpointKey) -> Vec<LinkId> {
        let Some(endpoint) = self.endpoints.get_mut(key) else { return Vec::new() };
        let writable = std::mem::take(&mut endpoint.writable);
        let link_of = |end: EndKey| self.connections.get(end.connection)?.end_at(end.side).link;
        writable.into_iter().filter_map(link_of).collect()
    }

    fn try_send(&mut self, end: EndKey, header: &[u8], payload: &[IoSlice<'_>], in_parts: bool) -> Sent {
        let Some(room_bytes) = self.draw_room_to_send(end) else { return Sent::Full };
        if self.end_mut(end).resume_left_bytes > 0 {
            return Sent::Full;
        }
        let total_bytes = total_bytes(payload);
        let Some(room_bytes) = room_bytes.checked_sub(header.len()) else { return Sent::Full };
        if !in_parts && room_bytes < total_bytes {
            return Sent::Full;
        }
        let mut taken_bytes = total_bytes.min(room_bytes);
        if in_parts && total_bytes > 0 && self.dice.draw_chance(self.faults.partial_per_mille) {
            taken_bytes = self.dice.draw_number_up_to(taken_bytes.min(total_bytes - 1));
        }
        self.write(end, &[IoSlice::new(header)], header.len());
        self.write(end, payload, taken_bytes);
        self.record_sent(end, taken_bytes, total_bytes)
    }

    fn try_resume(&mut self, end: EndKey, rest: &[IoSlice<'_>]) -> Sent {
        let Some(room_bytes) = self.draw_room_to_send(end) else { return Sent::Full };
        let total_bytes = self.end_mut(end).resume_left_bytes;
        debug_assert_eq!(total_bytes, self::total_bytes(rest), "resumed with another payload");
        let mut taken_bytes = total_bytes.min(room_bytes);
        if total_bytes > 0 && taken_bytes == 0 {
            return Sent::Full;
        }
        if total_bytes > 1 && self.dice.draw_chance(self.faults.partial_per_mille) {
            taken_bytes = 1 + self.dice.draw_number_up_to(taken_bytes.min(total_bytes - 1) - 1);
        }
        self.write(end, rest, taken_bytes);
        self.record_sent(end, taken_bytes, total_bytes)
    }

    /// Returns how many bytes an end may write now: 0 if the pipe is full. Returns `None` if the link is
    /// not up. At random, breaks the link, or pretends that the link is full, and returns `None`.
    fn draw_room_to_send(&mut self, end: EndKey) -> Option<usize> {
        let connection = self.connections.get(end.connection)?;
        if connection.severed || (end.side == Side::Connector && !connection.made) {
            return None;
        }
        if self.dice.draw_chance(self.faults.drop_link_per_mille) {
            self.sever(end.connection, Errno::ECONNRESET);
            return None;
        }
        if self.dice.draw_chance(self.faults.full_per_mille) {
            return None;
        }
        Some(self.end_mut(end.other_end()).inbound.room_bytes())
    }

    fn write(&mut self, end: EndKey, slices: &[IoSlice<'_>], count_bytes: usize) {
        let pipe = &mut self.end_mut(end.other_end()).inbound;
        let was_flushed = !pipe.has_unflushed_bytes();
        let mut left_bytes = count_bytes;
        for slice in slices {
            let bytes = &slice[..slice.len().min(left_bytes)];
            pipe.append(bytes);
            left_bytes -= bytes.len();
        }
        if was_flushed && pipe.has_unflushed_bytes() {
            let owner = self.end_mut(end).owner;
            if let Some(endpoint) = self.endpoints.get_mut(owner) {
                endpoint.unflushed.push(end);
            }
        }
    }

    fn record_sent(&mut self, end: EndKey, taken_bytes: usize, total_bytes: usize) -> Sent {
        let left_bytes = total_bytes - taken_bytes;
        self.end_mut(end).resume_left_bytes = left_bytes;
        if left_bytes == 0 { Sent::Whole } else { Sent::Partial(taken_bytes) }
    }

    /// Exposes payload to the other end.
    pub(super) fn expose(&mut self, end: EndKey, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        let connection = self.connections.get_mut(end.connection)?;
        if connection.severed || connection.pull_min_bytes.is_none() {
            return None;
        }
        self.exposures += 1;
        let bytes = payload.iter().flat_map(|slice| slice.iter().copied()).collect();
        connection.end_at_mut(end.side).exposed.insert(self.exposures, bytes);
        RemotePayload::new(&self.exposures.to_le_bytes())
    }

    /// Copies payload that the other end has exposed.
    pub(super) fn pull(
        &mut self,
        end: EndKey,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        if self.connections.get(end.connection).is_some_and(|connection| self.is_held(connection)) {
            // The peer sends the payload instead, and the network holds that.
            return Pull::Declined;
        }
        let State { dice, faults, connections, .. } = self;
        let Some(connection) = connections.get_mut(end.connection) else { return Pull::Gone };
        let is_there = connection.end_at(end.other_end().side).state == EndState::Open;
        if connection.severed || !is_there {
            return Pull::Gone;
        }
        let puller = connection.end_at_mut(end.side);
        puller.cannot_pull |= dice.draw_chance(faults.refuse_pull_per_mille);
        if puller.cannot_pull {
            return Pull::Refused;
        }
        let Ok(number) = from.as_bytes().try_into().map(u64::from_le_bytes) else { return Pull::Fault };
        let exposed = &connection.end_at(end.other_end().side).exposed;
        if dice.draw_chance(faults.fault_pull_per_mille)
            || exposed.read_at(number, offset_bytes, into).is_none()
        {
            return Pull::Fault;
        }
        Pull::Done
    }

    /// Updates the exposed payload when a frame is sent. `Request` connects a payload with an operation.
    /// `Done` or `Clear` for a message drops the payload that the peer has exposed. The payload of an
    /// offered write stays until the link has ended.
    pub(super) fn track_exposed_payload(&mut self, end: EndKey, header: &Header, payload: &[u8]) {
        let Some(connection) = self.connections.get_mut(end.connection) else { return };
        match header {
            Header::Request { op, .. } => {
                if let Ok(number) = payload.try_into() {
                    connection.end_at_mut(end.side).exposed.attach_to_op(*op, u64::from_le_bytes(number));
                }
            }
            Header::Done { op, .. } | Header::Clear { op, .. } => {
                connection.end_at_mut(end.other_end().side).exposed.release_op(*op);
            }
            _ => {}
        }
    }

    pub(super) fn flush(&mut self, key: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(key) else { return };
        for end in std::mem::take(&mut endpoint.unflushed) {
            if self.connections.contains_key(end.connection) {
                self.flush_end(end);
            }
        }
        self.finish_draining(key);
    }

    /// Marks the draining ends of an endpoint as [delivered](EndState::Delivered): the network has
    /// all their bytes.
    fn finish_draining(&mut self, key: EndpointKey) {
        let Some(endpoint) = self.endpoints.get_mut(key) else { return };
        for end in std::mem::take(&mut endpoint.draining) {
            if let Some(connection) = self.connections.get_mut(end.connection)
                && connection.end_at(end.side).state == EndState::Draining
            {
                connection.end_at_mut(end.side).state = EndState::Delivered;
            }
        }
    }

    /// Puts the bytes that an end has written under way to the other end.
    fn flush_end(&mut self, end: EndKey) {
        let peer = end.other_end();
        if !self.end_mut(peer).inbound.has_unflushed_bytes() {
            return;
        }
        let now = self.reader_now(peer).call;
        let delay_calls = self.dice.draw_delay_calls(&self.faults);
        // A delay counts from the reader's next call.
        let call = if delay_calls == 0 { now } else { now + 1 + delay_calls };
        let time = self.draw_arrival_time();
        let count_bytes = self.end_mut(peer).inbound.flush(Due { call, time });
        self.trace_from(end, TraceAction::Sent { count_bytes });
        self.list_due(time, self.connections[end.connection].end_at(peer.side).owner);
        self.schedule_if_ready(peer);
    }

    /// Removes and returns the next end with something to report: bytes, or the end of its link.
    /// The caller then calls [`schedule_if_ready`](Self::schedule_if_ready). Ends whose bytes are
    /// still under way stay queued. At random, breaks links.
    pub(super) fn take_next_ready(&mut self, key: EndpointKey) -> Option<Ready> {
        let (calls, count) =
            self.endpoints.get(key).map(|endpoint| (endpoint.calls, endpoint.ready.len()))?;
        let now = Due { call: calls, time: self.now };
        for _ in 0..count {
            let end = self.endpoints[key].ready.pop_front()?;
            let Some(connection) = self.connections.get(end.connection) else { continue };
            let (is_severed, is_held) = (connection.severed, self.is_held(connection));
            let local = self.end_mut(end);
            local.is_ready = false;
            let is_due = !is_held && local.inbound.next_arrival().is_some_and(|time| time <= now.time);
            if !is_severed && is_due && self.dice.draw_chance(self.faults.drop_link_per_mille) {
                self.sever(end.connection, Errno::ECONNRESET);
                continue;
            }
            let state = self.end_mut(end);
            let (count_bytes, has_ended) = if is_held {
                (0, false)
            } else {
                (state.inbound.deliver_due_bytes(now), state.inbound.end_reason(now.time).is_some())
            };
            let (link, available_bytes) = (state.link, state.inbound.arrived_bytes());
            if count_bytes > 0 {
                self.trace_from(end.other_end(), TraceAction::Arrived { count_bytes });
            }
            match link {
                Some(link) if available_bytes > 0 || has_ended => {
                    return Some(Ready { end, link, available_bytes });
                }
                _ => {
                    self.schedule_if_ready(end);
                    if is_due {
                        // Only calls are missing.
                        self.list_due(now.time, key);
                    }
                }
            }
        }
        None
    }

    /// Returns the pipe that an end reads from.
    pub(super) fn inbound(&mut self, end: EndKey) -> &mut Pipe {
        &mut self.end_mut(end).inbound
    }

    /// Queues an end to be served, if it has something to report and is not queued yet.
    pub(super) fn schedule_if_ready(&mut self, end: EndKey) {
        let local = self.end_mut(end);
        if local.state != EndState::Open
            || local.link.is_none()
            || local.is_ready
            || !local.inbound.has_input()
        {
            return;
        }
        local.is_ready = true;
        let owner = local.owner;
        if let Some(endpoint) = self.endpoints.get_mut(owner) {
            endpoint.ready.push_back(end);
        }
    }

    pub(super) fn draining_count(&self, key: EndpointKey) -> usize {
        let connections = self.endpoints.get(key).into_iter().flat_map(|endpoint| &endpoint.connections);
        connections
            .filter_map(|connection| self.connections.get(*connection))
            .flat_map(|connection| [&connection.connector, &connection.acceptor])
            .filter(|end| end.owner == key && end.state == EndState::Draining)
            .count()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.connections.values().all(|connection| {
            (connection.made || connection.severed)
                && [&connection.connector, &connection.acceptor]
                    .into_iter()
                    .all(|end| end.state != EndState::Open || (end.link.is_some() && end.inbound.is_empty()))
        })
    }

    fn connections_where(&self, belongs: impl Fn(&LoopbackConnection) -> bool) -> Vec<ConnectionKey> {
        self.connections.iter().filter(|(_, connection)| belongs(connection)).map(|(key, _)| key).collect()
    }

    /// Returns an end of a connection that the caller knows to exist.
    fn end_mut(&mut self, end: EndKey) -> &mut End {
        self.connections[end.connection].end_at_mut(end.side)
    }
}

fn localhost(format: AddressFormat) -> Address {
    let ip = match format {
        AddressFormat::SockaddrIn => IpAddr::V4(Ipv4Addr::LOCALHOST),
        AddressFormat::SockaddrIn6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, 0).into()
}

fn total_bytes(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}
