//! The way down: from a posted send to the frames that a transport takes.

use super::Engine;
use super::links::{Frame, Link, Writing};
use crate::completion::Sink;
use crate::error::{Again, Error, Misuse};
use crate::operation::{Level, Send, SendId, SendRequest};
use crate::peer_id::PeerId;
use crate::transport::{Full, LinkCaps, LinkId, Sent, Transport};
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
        let mut send = Send { source, message, context, signalled, may_be_fetched: !inject };

        let link_id = self.transmit_link(to, transport);
        let caps = transport.caps(link_id);
        let is_next = self.peers.of(to).queue.is_empty()
            && self.links.of(link_id).is_some_and(|link| link.writing.is_none());
        if is_next && self.is_to_be_fetched(link_id, &send, &caps) {
            // The peer has to know it by a number, so it takes the way through the table.
            let send = self.sends.insert(send);
            self.peers.of_mut(to).queue.push_back(send);
            if self.transmit_to(to, transport, sink) {
                self.activate(to);
            }
            return Ok(());
        }
        let sent = if is_next { offer(transport, link_id, &caps, &send) } else { Sent::Full };
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
                self.write_on(link_id, Writing { frame: Frame::Message, send, taken_bytes });
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

    /// Sends a small message at once, if nothing is in its way. It is neither entered anywhere nor reported. Whether it was
    /// sent; if not, nothing has happened, and it is to be posted.
    #[inline]
    pub fn inject(
        &mut self,
        to: PeerId,
        tag: Option<u64>,
        data: Option<u64>,
        message: &[u8],
        transport: &mut impl Transport,
    ) -> bool {
        let peer = self.peers.of(to);
        let Some(id) = peer.transmit else { return false };
        if !peer.queue.is_empty() || self.outstanding_sends() >= self.config.tx_depth_ops {
            return false;
        }
        let Some(link) = self.links.of(id) else { return false };
        if link.writing.is_some() || message.len() > transport.caps(id).inline_max_bytes {
            return false;
        }
        let header =
            Header::Message(Message { len_bytes: message.len() as u64, tag, data, wants_ack: false });
        let is_sent = transport.send_inline(id, &header, message).is_ok();
        link.sent_messages += u64::from(is_sent);
        is_sent
    }

    /// Gives the transport what waits for it, as far as it takes it: what peers wait to hear first, then the rest of
    /// partly written frames, then what peers have asked for, then queued messages. Before that, what peers have offered
    /// to have fetched is pulled.
    pub fn transmit(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        if !self.condemned.is_empty() {
            self.close_condemned(transport, sink);
        }
        if !self.pulling.is_empty() {
            self.pull(transport, sink);
        }
        if !self.owing.is_empty() {
            self.pay_debts(transport);
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
            && !(self.resume(link, transport, sink) && self.send_cleared(link, transport, sink))
        {
            return true;
        }
        while let Some(id) = self.peers.of(peer).queue.front().copied() {
            let link = self.transmit_link(peer, transport);
            let caps = transport.caps(link);
            match self.request(link, id, &caps, transport) {
                Some(Ok(())) => {
                    self.peers.of_mut(peer).queue.pop_front();
                    continue;
                }
                Some(Err(Full)) => return true,
                None => {}
            }
            let Some(send) = self.sends.get(id) else {
                self.peers.of_mut(peer).queue.pop_front();
                continue;
            };
            match offer(transport, link, &caps, send) {
                Sent::Full => return true,
                Sent::Partial(taken_bytes) => {
                    self.peers.of_mut(peer).queue.pop_front();
                    self.begun(link);
                    self.write_on(link, Writing { frame: Frame::Message, send: id, taken_bytes });
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

    /// Goes on with the link's partly written frame. Returns whether the link is free for the next one.
    fn resume(&mut self, id: LinkId, transport: &mut impl Transport, sink: &mut impl Sink) -> bool {
        let Some(link) = self.links.of(id) else { return true };
        let Some(Writing { frame, send: send_id, taken_bytes }) = &mut link.writing else { return true };
        let Some(send) = self.sends.get(*send_id) else { return true };
        let sent = transport.resume(id, &send.source.slices(*taken_bytes));
        match sent {
            Sent::Full => return false,
            Sent::Partial(more_bytes) => {
                *taken_bytes += more_bytes;
                return false;
            }
            Sent::Whole => {}
        }
        let (frame, send_id) = (*frame, *send_id);
        link.writing = None;
        match frame {
            Frame::Message => self.taken_from_table(id, send_id, sink),
            Frame::Data => self.data_taken(id, send_id, sink),
        }
        // Frame after frame may be partly written; what the peer waits to hear must not wait for the last of them.
        let Some(link) = self.links.of(id).filter(|link| link.is_owing()) else { return true };
        let is_free = link.pay_debts(id, transport);
        if is_free {
            self.owing.retain(|other| *other != id);
        }
        is_free
    }

    fn pay_debts(&mut self, transport: &mut impl Transport) {
        let links = &mut self.links;
        self.owing.retain(|id| links.of(*id).is_some_and(|link| !link.pay_debts(*id, transport)));
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

    pub(super) fn activate(&mut self, peer: PeerId) {
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

impl Link {
    /// Tells the peer what it waits to hear. Returns whether it has been told everything.
    fn pay_debts(&mut self, id: LinkId, transport: &mut impl Transport) -> bool {
        if self.writing.is_some() {
            return !self.is_owing();
        }
        if self.owes_ack {
            let ack = Header::Ack { received: self.received_messages };
            self.owes_ack = transport.send_inline(id, &ack, &[]).is_err();
        }
        while !self.owes_ack
            && let Some(header) = self.owed.front()
            && transport.send_inline(id, header, &[]).is_ok()
        {
            self.owed.pop_front();
        }
        !self.is_owing()
    }
}

fn offer(transport: &mut impl Transport, link: LinkId, caps: &LinkCaps, send: &Send) -> Sent {
    let header = Header::Message(send.message);
    match send.source.contiguous() {
        Some(bytes) if bytes.len() <= caps.inline_max_bytes => {
            match transport.send_inline(link, &header, bytes) {
                Ok(()) => Sent::Whole,
                Err(_) => Sent::Full,
            }
        }
        _ => transport.send(link, &header, &send.source.slices(0)),
    }
}
