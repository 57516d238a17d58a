//! The way up: from the frames that a transport reports to matched, placed and completed receives.

use super::Engine;
use super::links::{Incoming, Place};
use crate::completion::Sink;
use crate::matching::Matching;
use crate::operation::{Receive, ReceiveId, Unexpected, UnexpectedId};
use crate::peer_id::PeerId;
use crate::transport::{LinkEvent, LinkId, Receiver, Space};
use crate::wire::{Header, Message};

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

    /// Gives a message that came early to a receive that was just posted. If it is still arriving, the rest of it is
    /// placed directly.
    pub(super) fn receive_unexpected(
        &mut self,
        mut receive: Receive,
        id: UnexpectedId,
        sink: &mut impl Sink,
    ) {
        let Some(Unexpected { source, message, bytes }) = self.unexpected.remove(id) else { return };
        receive.destination.copy_in(0, &bytes);
        if (bytes.len() as u64) < message.len_bytes {
            let receive = self.receives.insert(receive);
            for link in self.peers.of(source).links.clone() {
                if let Some(incoming) = self.links.of(link).and_then(|link| link.incoming.as_mut())
                    && incoming.place == Place::Unexpected(id)
                {
                    incoming.place = Place::Posted(receive);
                }
            }
        } else {
            self.received(receive, source, &message, sink);
        }
    }

    fn received(&mut self, receive: Receive, source: PeerId, message: &Message, sink: &mut impl Sink) {
        let signalled = receive.signalled;
        let len_bytes = usize::try_from(message.len_bytes).unwrap_or(usize::MAX);
        let placed_bytes = len_bytes.min(receive.destination.len_bytes());
        match receive.outcome(source, message, placed_bytes) {
            Ok(completion) if signalled => self.reports.completed(completion, &self.peers, sink),
            Ok(_) => {}
            Err(failure) => self.reports.failed(failure, &self.peers, sink),
        }
    }

    /// The earliest posted receive that a message from `source` matches. It is posted no longer.
    fn matched(&mut self, source: PeerId, message: &Message) -> Option<ReceiveId> {
        self.matching_of(message).take_posted(source, message.tag.unwrap_or(0))
    }

    fn expect_no_receive(&mut self, unexpected: Unexpected) -> UnexpectedId {
        let Unexpected { source, message, .. } = unexpected;
        let id = self.unexpected.insert(unexpected);
        self.matching_of(&message).add_unexpected(source, message.tag.unwrap_or(0), id);
        id
    }

    fn matching_of(&mut self, message: &Message) -> &mut Matching<ReceiveId, UnexpectedId> {
        if message.tag.is_some() { &mut self.tagged } else { &mut self.untagged }
    }

    /// A message has arrived on a link in whole.
    fn count_arrival(&mut self, id: LinkId, message: &Message) {
        let Some(link) = self.links.of(id) else { return };
        link.received_messages += 1;
        if message.wants_ack && !link.owes_ack {
            link.owes_ack = true;
            self.owing.push(id);
        }
    }

    fn acknowledged(&mut self, id: LinkId, received: u64, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        // What is still being written cannot have arrived.
        let sent_messages = link.sent_messages - u64::from(link.writing.is_some());
        if received > sent_messages || received < link.acked_messages {
            return self.condemn(id, "acknowledges what was not sent", sink);
        }
        link.acked_messages = received;
        while let Some(link) = self.links.of(id)
            && let Some((count, send)) = link.awaiting_ack.front().copied()
            && count <= received
        {
            link.awaiting_ack.pop_front();
            if let Some(send) = self.sends.remove(send)
                && send.signalled
            {
                self.reports.completed(send.completion(), &self.peers, sink);
            }
        }
    }
}

impl<S: Sink> Arrivals<'_, S> {
    /// Moves on by bytes that are where they belong, and ends the message with its last one.
    fn advance(&mut self, id: LinkId, count_bytes: usize) {
        let engine = &mut *self.engine;
        let Some(link) = engine.links.of(id) else { return };
        let Some(incoming) = &mut link.incoming else { return };
        incoming.arrived_bytes += count_bytes as u64;
        if incoming.arrived_bytes < incoming.message.len_bytes {
            return;
        }
        let source = link.peer;
        let Some(Incoming { message, place, .. }) = link.incoming.take() else { return };
        engine.count_arrival(id, &message);
        if let Place::Posted(receive) = place
            && let Some(receive) = engine.receives.remove(receive)
        {
            engine.received(receive, source, &message, self.sink);
        }
    }
}

impl<S: Sink> Receiver for Arrivals<'_, S> {
    fn frame(&mut self, id: LinkId, header: &Header, payload: &[u8]) {
        let engine = &mut *self.engine;
        let Some(link) = engine.links.of(id) else { return };
        let source = link.peer;
        match header {
            Header::Ack { received } => engine.acknowledged(id, *received, self.sink),
            Header::Request { .. } | Header::Clear { .. } | Header::Data { .. } | Header::Done { .. } => {
                engine.condemn(id, "a rendezvous that nobody began", self.sink);
            }
            Header::Message(message) => {
                engine.count_arrival(id, message);
                if let Some(receive) = engine.matched(source, message)
                    && let Some(mut receive) = engine.receives.remove(receive)
                {
                    receive.destination.copy_in(0, payload);
                    engine.received(receive, source, message, self.sink);
                } else {
                    engine.expect_no_receive(Unexpected {
                        source,
                        message: *message,
                        bytes: payload.to_vec(),
                    });
                }
            }
        }
    }

    fn begin(&mut self, id: LinkId, header: &Header) {
        let engine = &mut *self.engine;
        let Some(link) = engine.links.of(id) else { return };
        let source = link.peer;
        let Header::Message(message) = *header else { return };
        let place = match engine.matched(source, &message) {
            Some(receive) => Place::Posted(receive),
            None => {
                let unexpected = Unexpected { source, message, bytes: Vec::new() };
                Place::Unexpected(engine.expect_no_receive(unexpected))
            }
        };
        if let Some(link) = engine.links.of(id) {
            link.incoming = Some(Incoming { message, arrived_bytes: 0, place });
        }
    }

    fn space(&mut self, id: LinkId) -> Space<'_> {
        let engine = &mut *self.engine;
        let Some(incoming) = engine.links.of(id).and_then(|link| link.incoming.as_ref()) else {
            return Space::new();
        };
        let left = clamp(incoming.message.len_bytes - incoming.arrived_bytes);
        let offset = clamp(incoming.arrived_bytes);
        match incoming.place {
            Place::Posted(receive) => match engine.receives.get_mut(receive) {
                Some(receive) => receive.destination.space(offset, left),
                None => Space::new(),
            },
            Place::Unexpected(_) => Space::new(),
        }
    }

    fn placed(&mut self, id: LinkId, count_bytes: usize) {
        self.advance(id, count_bytes);
    }

    fn chunk(&mut self, id: LinkId, bytes: &[u8]) {
        let engine = &mut *self.engine;
        let Some(incoming) = engine.links.of(id).and_then(|link| link.incoming.as_ref()) else { return };
        let left = clamp(incoming.message.len_bytes - incoming.arrived_bytes);
        let bytes = &bytes[..bytes.len().min(left)];
        match incoming.place {
            Place::Posted(receive) => {
                let offset = clamp(incoming.arrived_bytes);
                if let Some(receive) = engine.receives.get_mut(receive) {
                    receive.destination.copy_in(offset, bytes);
                }
            }
            Place::Unexpected(unexpected) => {
                if let Some(unexpected) = engine.unexpected.get_mut(unexpected) {
                    unexpected.bytes.extend_from_slice(bytes);
                }
            }
        }
        self.advance(id, bytes.len());
    }

    fn link(&mut self, id: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Up { peer, instance } => self.engine.link_up(id, peer, instance, self.sink),
            LinkEvent::Down(error) => {
                self.engine.link_lost(id, &error, self.sink);
                // The number is free now; closing it later would hit another link.
                self.engine.condemned.retain(|condemned| *condemned != id);
            }
        }
    }
}

fn clamp(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
