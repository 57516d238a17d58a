//! The way up: from the frames that a transport reports to matched, placed and completed receives.

use super::Engine;
use super::credit::eager_cost_bytes;
use super::incoming::{Described, Filling, Incoming, PartialAtomic, PartialRequest, Place};
use smallvec::SmallVec;

use crate::completion::{Failure, Sink};
use crate::error::OperationError;
use crate::flags::CounterEvents;
use crate::operation::{Receive, ReceiveId, Role};
use crate::peer_id::PeerId;
use crate::transport::{LinkEvent, LinkId, Receiver, Space};
use crate::wire::{Awaits, Header, Message};

/// What a peer has done that sends a message for which it has no credit.
const NOT_COVERED: &str = "sends more than it was granted";

/// An engine that takes what a transport reports, and a sink for the completions that follow from it.
#[derive(Debug)]
pub struct Arrivals<'a, S> {
    engine: &'a mut Engine,
    sink: &'a mut S,
}

impl Engine {
    /// The receiver for [`Transport::receive`](crate::transport::Transport::receive).
    pub fn arrivals<'a, S: Sink>(&'a mut self, sink: &'a mut S) -> Arrivals<'a, S> {
        Arrivals { engine: self, sink }
    }

    /// All of a message is in its place.
    pub(super) fn filled(&mut self, id: LinkId, filling: &Filling, sink: &mut impl Sink) {
        let Some(source) = self.links.of(id).map(|link| link.peer) else { return };
        match filling.place {
            Place::Posted(receive) => self.received_at(receive, source, &filling.message, sink),
            Place::Unexpected(unexpected) => {
                if let Some(unexpected) = self.unexpected.get_mut(unexpected) {
                    unexpected.fetch = None;
                }
            }
            Place::Inbound(_) | Place::Read(_) | Place::Nowhere => {}
        }
    }

    /// A receive that is in the operation table has all of its message.
    #[inline(always)]
    pub(super) fn received_at(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        sink: &mut impl Sink,
    ) {
        let Some(receive) = self.receives.get_mut(id) else { return };
        if message.len_bytes > receive.destination.len_bytes() as u64 {
            return self.received_too_much_at(id, source, message, sink);
        }
        self.reports.count(CounterEvents::RECV, sink);
        if receive.signalled {
            let completion = receive.completion(source, message, clamp(message.len_bytes));
            self.reports.tell(completion, &self.peers, sink);
        } else if receive.role == Role::Part {
            return self.part_received(id, source, message, sink);
        }
        self.receives.remove(id);
    }

    /// A receive that never was in the operation table has all of its message.
    pub(super) fn received(
        &mut self,
        mut receive: Receive,
        source: PeerId,
        message: &Message,
        sink: &mut impl Sink,
    ) {
        if message.len_bytes > receive.destination.len_bytes() as u64 {
            return self.received_too_much(receive, source, message, sink);
        }
        self.reports.count(CounterEvents::RECV, sink);
        if receive.signalled {
            let completion = receive.completion(source, message, clamp(message.len_bytes));
            self.reports.tell(completion, &self.peers, sink);
        }
    }

    /// A message is longer than the receive in the operation table that it was given.
    #[cold]
    fn received_too_much_at(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        sink: &mut impl Sink,
    ) {
        let Some(receive) = self.receives.remove(id) else { return };
        let is_part = receive.role == Role::Part;
        self.received_too_much(receive, source, message, sink);
        if is_part {
            self.part_failed(id, sink);
        }
    }

    /// A message is longer than the receive that it was given.
    #[cold]
    fn received_too_much(
        &mut self,
        mut receive: Receive,
        source: PeerId,
        message: &Message,
        sink: &mut impl Sink,
    ) {
        let placed_bytes = receive.destination.len_bytes();
        let error = OperationError::Truncated { overflow_bytes: message.len_bytes - placed_bytes as u64 };
        let failure = Failure { completion: receive.completion(source, message, placed_bytes), error };
        self.reports.failed(failure, &self.peers, sink);
    }

    /// The earliest posted receive that a message from `source` matches, or what it is given of a multi-receive buffer. It
    /// is posted no longer.
    #[inline(always)]
    pub(super) fn matched(
        &mut self,
        source: PeerId,
        message: &Message,
        sink: &mut impl Sink,
    ) -> Option<ReceiveId> {
        if self.multi_receives.are_concerned() && message.tag.is_none() {
            return self.matched_among_buffers(source, message, sink);
        }
        self.matching_of(message).take_posted(source, message.tag.unwrap_or(0))
    }

    /// An eager message has arrived on a link in whole, of which the beginning was admitted.
    #[inline(always)]
    fn count_arrival(&mut self, id: LinkId, message: &Message) {
        let Some(link) = self.links.of(id) else { return };
        link.received_messages += 1;
        if message.awaits == Awaits::Arrival {
            self.links.owe_ack(id);
        }
    }

    /// An eager message is in the buffer of a receive, or was thrown away.
    #[inline(always)]
    fn count_match(&mut self, id: LinkId, message: &Message, number: u64) {
        if message.awaits == Awaits::Match {
            self.owe(id, Header::Matched { number });
        }
    }

    /// A message of this cost begins to arrive. Returns whether it may.
    #[inline(always)]
    pub(super) fn admit(&mut self, id: LinkId, cost_bytes: u64, sink: &mut impl Sink) -> bool {
        let Some(link) = self.links.of(id) else { return false };
        let is_covered = link.grant.spend(cost_bytes);
        if !is_covered {
            self.condemn(id, NOT_COVERED, sink);
        }
        is_covered
    }

    /// A message of this cost has arrived in whole. Returns its number, or `None` if it may not.
    #[inline(always)]
    fn admit_whole(
        &mut self,
        id: LinkId,
        message: &Message,
        cost_bytes: u64,
        sink: &mut impl Sink,
    ) -> Option<u64> {
        // One look at the link for all of it: this is the way of every small message.
        let link = self.links.of(id)?;
        if !link.grant.spend(cost_bytes) {
            self.condemn(id, NOT_COVERED, sink);
            return None;
        }
        link.received_messages += 1;
        let number = link.received_messages;
        if message.awaits == Awaits::Arrival {
            self.links.owe_ack(id);
        }
        Some(number)
    }

    /// A message of this cost was matched as it came.
    #[inline(always)]
    pub(super) fn pass(&mut self, id: LinkId, cost_bytes: u64) {
        if let Some(link) = self.links.of(id) {
            link.grant.pass(cost_bytes, &mut self.budget);
            if link.grant.is_due() {
                self.renew_credit(id);
            }
        }
    }

    /// The peer's application has matched a message.
    fn match_acknowledged(&mut self, id: LinkId, number: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        // What is still being written cannot have been matched, and does not wait for it yet.
        let Some(send) = link.awaiting_match.remove(&number) else {
            return self.condemn(id, "has matched what does not wait for it", sink);
        };
        if let Some(send) = self.sends.remove(send) {
            self.reports.send_completed(send, &self.peers, sink);
        }
    }

    /// The peer grants more credit.
    fn credited(&mut self, id: LinkId, granted_bytes: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        if !link.allowance.raise(granted_bytes) {
            self.condemn(id, "takes credit back", sink);
        }
    }

    /// The peer is to hear this.
    pub(super) fn owe(&mut self, id: LinkId, header: Header) {
        self.links.owe(id, header);
    }

    fn acknowledged(&mut self, id: LinkId, received: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        // What is still being written cannot have arrived.
        if received > link.taken_messages() || received < link.acked_messages {
            return self.condemn(id, "acknowledges what was not sent", sink);
        }
        link.acked_messages = received;
        while let Some(link) = self.links.of(id)
            && let Some((count, send)) = link.awaiting_ack.front().copied()
            && count <= received
        {
            link.awaiting_ack.pop_front();
            if let Some(send) = self.sends.remove(send) {
                self.reports.send_completed(send, &self.peers, sink);
            }
        }
    }
}

impl<S: Sink> Arrivals<'_, S> {
    /// Puts the next bytes of a message where they belong.
    fn put(&mut self, id: LinkId, bytes: &[u8]) {
        let engine = &mut *self.engine;
        let Some(filling) = engine.filling(id).copied() else { return };
        let bytes = &bytes[..bytes.len().min(clamp(filling.left_bytes()))];
        match filling.place {
            Place::Posted(receive) => {
                if let Some(receive) = engine.receives.get_mut(receive) {
                    receive.destination.copy_in(clamp(filling.arrived_bytes), bytes);
                }
            }
            Place::Unexpected(unexpected) => {
                if let Some(unexpected) = engine.unexpected.get_mut(unexpected) {
                    unexpected.bytes.extend_from_slice(bytes);
                }
            }
            Place::Inbound(inbound) => engine.put_inbound(inbound, filling.arrived_bytes, bytes),
            Place::Read(send) => {
                if let Some((destination, _)) = engine.reading(send) {
                    destination.copy_in(clamp(filling.arrived_bytes), bytes);
                }
            }
            Place::Nowhere => {}
        }
        self.advance(id, bytes.len());
    }

    /// Moves on by bytes that are where they belong, and ends the message with its last one.
    fn advance(&mut self, id: LinkId, count_bytes: usize) {
        let engine = &mut *self.engine;
        let Some(filling) = engine.filling(id) else { return };
        filling.arrived_bytes += count_bytes as u64;
        if filling.left_bytes() > 0 {
            return;
        }
        match engine.links.of(id).and_then(|link| link.incoming.take()) {
            Some(Incoming::Message { filling, number }) => {
                engine.count_arrival(id, &filling.message);
                engine.filled(id, &filling, self.sink);
                if !matches!(filling.place, Place::Unexpected(_)) {
                    engine.count_match(id, &filling.message, number);
                }
            }
            Some(Incoming::Data(fetch)) => engine.data_arrived(fetch, self.sink),
            Some(Incoming::Write(filling)) => engine.inbound_ended(id, &filling, false, self.sink),
            Some(Incoming::Read(Filling { arrived_bytes, place: Place::Read(send), .. })) => {
                if let Some((_, read_bytes)) = engine.reading(send) {
                    *read_bytes = arrived_bytes;
                }
                engine.fetched_atomically(id, send, self.sink);
            }
            Some(Incoming::Request(_) | Incoming::Described(_) | Incoming::Read(_) | Incoming::Atomic(_))
            | None => {}
        }
    }

    /// The payload that follows was asked for, or the peer has broken the protocol.
    fn begin_data(&mut self, id: LinkId, op: u64, len_bytes: u64) {
        let engine = &mut *self.engine;
        match (engine.asked_for(id, op, len_bytes), engine.links.of(id)) {
            (Some(fetch), Some(link)) => link.incoming = Some(Incoming::Data(fetch)),
            _ => engine.condemn(id, "sends what was not asked for", self.sink),
        }
    }
}

impl<S: Sink> Receiver for Arrivals<'_, S> {
    #[inline(always)]
    fn frame(&mut self, id: LinkId, header: &Header, payload: &[u8]) {
        let engine = &mut *self.engine;
        let Some(link) = engine.links.of(id) else {
            return engine.stray_frame(id, header, payload, self.sink);
        };
        let source = link.peer;
        match header {
            Header::Message(message) => {
                let cost_bytes = eager_cost_bytes(message);
                let Some(number) = engine.admit_whole(id, message, cost_bytes, self.sink) else { return };
                if let Some(receive_id) = engine.matched(source, message, self.sink) {
                    engine.pass(id, cost_bytes);
                    if let Some(receive) = engine.receives.get_mut(receive_id) {
                        receive.destination.copy_in(0, payload);
                    }
                    engine.received_at(receive_id, source, message, self.sink);
                    engine.count_match(id, message, number);
                } else {
                    engine.keep_eager(id, message, payload, number);
                }
            }
            Header::Ack { received } => engine.acknowledged(id, *received, self.sink),
            Header::Request { message, op, .. } => engine.requested(id, message, *op, payload, self.sink),
            Header::Clear { op, cannot_pull } => engine.request_cleared(id, *op, *cannot_pull, self.sink),
            Header::Data { op, len_bytes } => {
                self.begin_data(id, *op, *len_bytes);
                self.put(id, payload);
            }
            Header::Done { op, fault } => engine.request_done(id, *op, *fault, self.sink),
            Header::Matched { number } => engine.match_acknowledged(id, *number, self.sink),
            Header::Credit { granted_bytes } => engine.credited(id, *granted_bytes, self.sink),
            Header::Fence { matched } => engine.fence_asked(id, *matched, self.sink),
            Header::Fenced => engine.fence_answered(id, self.sink),
            Header::Rma(rma) => engine.rma_arrived(id, rma, payload, self.sink),
            Header::Atomic(atomic) => engine.atomic_arrived(id, atomic, payload, self.sink),
            Header::ReadData { op, len_bytes } => {
                engine.begin_read_data(id, *op, *len_bytes, self.sink);
                self.put(id, payload);
            }
            Header::Shown(shown) => engine.region_shown(id, *shown, payload, self.sink),
            Header::Answer { op, outcome } => engine.rma_answered(id, *op, *outcome, self.sink),
            Header::Connection(handshake) => engine.heard_among_messages(id, *handshake, self.sink),
        }
    }

    fn begin(&mut self, id: LinkId, header: &Header) {
        let engine = &mut *self.engine;
        let Some(link) = engine.links.of(id) else {
            return engine.stray_begin(id, header, self.sink);
        };
        let source = link.peer;
        match *header {
            Header::Message(message) => {
                let cost_bytes = eager_cost_bytes(&message);
                if !engine.admit(id, cost_bytes, self.sink) {
                    return;
                }
                let number = engine.links.of(id).map_or(0, |link| link.received_messages + 1);
                let place = match engine.matched(source, &message, self.sink) {
                    Some(receive) => {
                        engine.pass(id, cost_bytes);
                        Place::Posted(receive)
                    }
                    None => match engine.keep_eager(id, &message, &[], number) {
                        Some(unexpected) => Place::Unexpected(unexpected),
                        None => return,
                    },
                };
                if let Some(link) = engine.links.of(id) {
                    let filling = Filling { message, arrived_bytes: 0, place };
                    link.incoming = Some(Incoming::Message { filling, number });
                }
            }
            Header::Request { message, op, remote_bytes } => {
                let partial = PartialRequest { message, op, remote_bytes, remote: SmallVec::new() };
                link.incoming = Some(Incoming::Request(partial));
            }
            Header::Data { op, len_bytes } => self.begin_data(id, op, len_bytes),
            Header::Rma(rma) => engine.begin_rma(id, &rma, self.sink),
            Header::Atomic(atomic) => {
                let partial = PartialAtomic { atomic, payload: Vec::new() };
                link.incoming = Some(Incoming::Atomic(Box::new(partial)));
            }
            Header::ReadData { op, len_bytes } => engine.begin_read_data(id, op, len_bytes, self.sink),
            Header::Shown(shown) => {
                engine.begin_description(id, Described::Region(shown), shown.remote_bytes);
            }
            // Whatever its data says.
            Header::Connection(handshake) => engine.heard_among_messages(id, handshake, self.sink),
            // These have no payload.
            Header::Ack { .. }
            | Header::Clear { .. }
            | Header::Done { .. }
            | Header::Matched { .. }
            | Header::Credit { .. }
            | Header::Fence { .. }
            | Header::Fenced
            | Header::Answer { .. } => {}
        }
    }

    fn space(&mut self, id: LinkId) -> Space<'_> {
        let engine = &mut *self.engine;
        let Some(filling) = engine.filling(id).copied() else { return Space::new() };
        match filling.place {
            Place::Posted(receive) => match engine.receives.get_mut(receive) {
                Some(receive) => {
                    receive.destination.space(clamp(filling.arrived_bytes), clamp(filling.left_bytes()))
                }
                None => Space::new(),
            },
            Place::Inbound(inbound) => {
                engine.inbound_space(inbound, filling.arrived_bytes, filling.left_bytes())
            }
            Place::Read(send) => match engine.reading(send) {
                Some((destination, _)) => {
                    destination.space(clamp(filling.arrived_bytes), clamp(filling.left_bytes()))
                }
                None => Space::new(),
            },
            Place::Unexpected(_) | Place::Nowhere => Space::new(),
        }
    }

    fn placed(&mut self, id: LinkId, count_bytes: usize) {
        self.advance(id, count_bytes);
    }

    fn chunk(&mut self, id: LinkId, bytes: &[u8]) {
        let engine = &mut *self.engine;
        let Some(link) = engine.links.of(id) else {
            return engine.stray_chunk(id, bytes, self.sink);
        };
        let is_described = match &mut link.incoming {
            Some(Incoming::Request(partial)) => partial.complete(bytes),
            Some(Incoming::Described(partial)) => partial.complete(bytes),
            Some(Incoming::Atomic(partial)) => partial.complete(bytes),
            _ => return self.put(id, bytes),
        };
        if !is_described {
            return;
        }
        match link.incoming.take() {
            Some(Incoming::Request(request)) => {
                engine.requested(id, &request.message, request.op, &request.remote, self.sink);
            }
            Some(Incoming::Described(partial)) => match partial.of {
                Described::Offer(rma) => engine.write_offered(id, &rma, &partial.remote, self.sink),
                Described::Region(shown) => engine.region_shown(id, shown, &partial.remote, self.sink),
            },
            Some(Incoming::Atomic(partial)) => {
                engine.atomic_arrived(id, &partial.atomic, &partial.payload, self.sink);
            }
            _ => {}
        }
    }

    fn link(&mut self, id: LinkId, event: LinkEvent) {
        let engine = &mut *self.engine;
        match event {
            LinkEvent::Up { peer, instance } if engine.has_connections() => {
                engine.handshake_up(id, peer, instance, self.sink);
            }
            LinkEvent::Up { peer, instance } => engine.link_up(id, peer, instance, self.sink),
            LinkEvent::Down(error) => {
                if !engine.handshake_down(id, &error, self.sink) {
                    engine.link_lost(id, &error, self.sink);
                }
            }
        }
    }
}

pub(super) fn clamp(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
