//! The way down: from a posted send to the frames that a transport takes.

use super::Engine;
use super::links::Writing;
use crate::buffer::Source;
use crate::completion::Sink;
use crate::error::{Again, Error, Misuse};
use crate::operation::{Level, Send, SendId, SendRequest};
use crate::peer_id::PeerId;
use crate::transport::{LinkId, Sent, Transport};
use crate::wire::{Header, Message};

impl Engine {
    /// Posts a send. It is given to the transport at once if nothing is queued before it.
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] when [`Config::tx_depth_ops`](super::Config::tx_depth_ops) sends are outstanding;
    /// [`Misuse::TooLong`] beyond [`Config::message_max_bytes`](super::Config::message_max_bytes).
    pub fn post_send(
        &mut self,
        request: SendRequest,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let SendRequest { to, source, tag, data, context, level, signalled, inject } = request;
        let len_bytes = source.len_bytes() as u64;
        if len_bytes > self.config.message_max_bytes {
            return Err(Misuse::TooLong { len_bytes, max_bytes: self.config.message_max_bytes }.into());
        }
        if self.outstanding_sends() >= self.config.tx_depth_ops {
            return Err(Again::QueueFull.into());
        }
        let message = Message { len_bytes, tag, data, wants_ack: level != Level::Inject };
        let mut send = Send { source, message, context, signalled };

        let link_id = self.transmit_link(to, transport);
        let is_next = self.peers.of(to).queue.is_empty()
            && self.links.of(link_id).is_some_and(|link| link.writing.is_none());
        let sent = if is_next { offer(transport, link_id, &send.message, &send.source) } else { Sent::Full };
        match sent {
            Sent::Whole => {
                send.source.release();
                self.begun(link_id);
                self.taken(link_id, send, sink);
            }
            Sent::Partial(taken_bytes) => {
                if inject {
                    send.source.detach();
                }
                let send = self.sends.insert(send);
                self.begun(link_id);
                self.write_on(link_id, Writing { send, taken_bytes });
                self.activate(to);
            }
            Sent::Full => {
                if inject {
                    send.source.detach();
                }
                let send = self.sends.insert(send);
                self.peers.of_mut(to).queue.push_back(send);
                self.activate(to);
            }
        }
        Ok(())
    }

    /// Gives the transport what waits for it, as far as it takes it: acknowledgements first, then the rest of partly
    /// written messages, then queued ones.
    pub fn transmit(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        if !self.condemned.is_empty() {
            self.close_condemned(transport);
        }
        if !self.owing.is_empty() {
            self.acknowledge_arrivals(transport);
        }
        for _ in 0..self.active.len() {
            let Some(peer) = self.active.pop_front() else { break };
            if self.transmit_to(peer, transport, sink) {
                self.active.push_back(peer);
            } else {
                self.peers.of_mut(peer).is_active = false;
            }
        }
    }

    /// Returns whether anything is left for this peer.
    fn transmit_to(&mut self, peer: PeerId, transport: &mut impl Transport, sink: &mut impl Sink) -> bool {
        if let Some(link) = self.peers.of(peer).transmit
            && !self.resume(link, transport, sink)
        {
            return true;
        }
        while let Some(id) = self.peers.of(peer).queue.front().copied() {
            let link = self.transmit_link(peer, transport);
            let Some(send) = self.sends.get(id) else {
                self.peers.of_mut(peer).queue.pop_front();
                continue;
            };
            match offer(transport, link, &send.message, &send.source) {
                Sent::Full => return true,
                Sent::Partial(taken_bytes) => {
                    self.peers.of_mut(peer).queue.pop_front();
                    self.begun(link);
                    self.write_on(link, Writing { send: id, taken_bytes });
                    return true;
                }
                Sent::Whole => {
                    self.peers.of_mut(peer).queue.pop_front();
                    self.begun(link);
                    self.taken_from_table(link, id, sink);
                }
            }
        }
        false
    }

    /// Goes on with the link's partly written message. Returns whether the link is free for the next one.
    fn resume(&mut self, id: LinkId, transport: &mut impl Transport, sink: &mut impl Sink) -> bool {
        let Some(link) = self.links.of(id) else { return true };
        let Some(Writing { send: send_id, taken_bytes }) = &mut link.writing else { return true };
        let Some(send) = self.sends.get(*send_id) else { return true };
        let sent = transport.resume(id, &send.source.slices(*taken_bytes));
        match sent {
            Sent::Full => false,
            Sent::Partial(more_bytes) => {
                *taken_bytes += more_bytes;
                false
            }
            Sent::Whole => {
                let send_id = *send_id;
                link.writing = None;
                self.taken_from_table(id, send_id, sink);
                true
            }
        }
    }

    fn acknowledge_arrivals(&mut self, transport: &mut impl Transport) {
        let links = &mut self.links;
        self.owing.retain(|id| {
            let Some(link) = links.of(*id) else { return false };
            if link.writing.is_some() {
                return true;
            }
            let ack = Header::Ack { received: link.received_messages };
            let must_wait = transport.send_inline(*id, &ack, &[]).is_err();
            link.owes_ack = must_wait;
            must_wait
        });
    }

    fn begun(&mut self, link: LinkId) {
        if let Some(link) = self.links.of(link) {
            link.sent_messages += 1;
        }
    }

    fn write_on(&mut self, link: LinkId, writing: Writing) {
        if let Some(link) = self.links.of(link) {
            link.writing = Some(writing);
        }
    }

    fn activate(&mut self, peer: PeerId) {
        let state = self.peers.of_mut(peer);
        if !state.is_active {
            state.is_active = true;
            self.active.push_back(peer);
        }
    }

    /// The link has all of a message that was never in the operation table.
    fn taken(&mut self, link: LinkId, send: Send, sink: &mut impl Sink) {
        if send.message.wants_ack {
            let send = self.sends.insert(send);
            self.await_ack(link, send);
        } else if send.signalled {
            self.reports.completed(send.completion(), &self.peers, sink);
        }
    }

    /// The link has all of a message that is in the operation table.
    fn taken_from_table(&mut self, link: LinkId, id: SendId, sink: &mut impl Sink) {
        if self.sends.get(id).is_some_and(|send| send.message.wants_ack) {
            self.await_ack(link, id);
        } else if let Some(send) = self.sends.remove(id)
            && send.signalled
        {
            self.reports.completed(send.completion(), &self.peers, sink);
        }
    }

    fn await_ack(&mut self, link: LinkId, send: SendId) {
        if let Some(link) = self.links.of(link) {
            link.awaiting_ack.push_back((link.sent_messages, send));
        }
    }
}

fn offer(transport: &mut impl Transport, link: LinkId, message: &Message, source: &Source) -> Sent {
    let header = Header::Message(*message);
    match source.contiguous() {
        Some(bytes) if bytes.len() <= transport.caps(link).inline_max_bytes => {
            match transport.send_inline(link, &header, bytes) {
                Ok(()) => Sent::Whole,
                Err(_) => Sent::Full,
            }
        }
        _ => transport.send(link, &header, &source.slices(0)),
    }
}
