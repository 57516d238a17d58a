//! Transmission: gives the queued operations to the transport as frames.

use super::Engine;
use super::fences::try_pass_fence;
use super::rendezvous::OfferOutcome;
use crate::completion::Sink;
use crate::link::{FrameKind, PartialFrame, SendProtocol};
use crate::mutated;
use crate::operation::{AccessKind, Send, SendId};
use crate::peer_id::PeerId;
use crate::transport::{LinkCaps, LinkId, Sent, Transport};
use crate::wire::{AwaitedReply, Header, Message};

/// How much of an operation a link has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The whole frame.
    Whole,
    /// The header, and a part of the payload.
    Partly,
    /// Nothing: the link has no room, or the operation must wait.
    Nothing,
}

impl Engine {
    /// Gives the transport what waits to be sent, as far as the links take it: first the pending
    /// replies to all peers, then the other frames to each peer. Before that, does rarer work: for
    /// example, pulls payload that peers offer, and connects to lost peers that receives wait for.
    /// Call this in every pass, after [`receive`](Transport::receive).
    #[inline(always)]
    pub fn transmit(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        if self.has_rare_work() {
            self.do_rare_work(transport, sink);
        }
        if self.links.have_pending_replies() | (self.initiator.active_len() > 0) {
            self.transmit_waiting(transport, sink);
        }
    }

    /// Sends pending replies and queued operations. A separate function, since most passes have
    /// neither.
    #[inline(never)]
    fn transmit_waiting(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        if self.links.have_pending_replies() {
            self.send_pending_replies(transport, sink);
        }
        for _ in 0..self.initiator.active_len() {
            let Some(peer) = self.initiator.pop_active() else { break };
            if !self.transmit_until_full(peer, transport, sink) {
                self.initiator.deactivate(peer);
            } else if transport.reports_writable_links() {
                self.initiator.block(peer);
            } else {
                self.initiator.requeue(peer);
            }
        }
    }

    /// Whether a pass has work other than pending replies and queued operations. A pass without
    /// such work pays one branch for this test.
    #[inline(always)]
    pub(super) fn has_rare_work(&self) -> bool {
        let work = self.receive_side.rare_work_bits()
            | self.condemned.len()
            | self.awaited_sources.len()
            | self.passes_to_sweep as usize
            | usize::from(self.connection.has_output())
            | usize::from(self.initiator.has_watched_failure())
            | self.target.rare_work_bits();
        work != 0
    }

    #[cold]
    #[inline(never)]
    fn do_rare_work(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        self.end_connection_if_failed(sink);
        if self.receive_side.needs_drop_step() {
            let (receiver, mut effects) = self.receive_side_and_effects(sink);
            receiver.finish_drop_step(&mut effects);
        }
        if self.receive_side.has_deferred_fetches() {
            let (receiver, mut effects) = self.receive_side_and_effects(sink);
            receiver.begin_deferred_fetches(&mut effects);
        }
        if !self.condemned.is_empty() {
            self.close_condemned(transport, sink);
        }
        if !self.awaited_sources.is_empty() {
            self.connect_to_awaited_sources(transport);
        }
        if self.passes_to_sweep > 0 {
            self.count_pass_and_sweep_mapped();
        }
        if self.connection.has_output() {
            self.transmit_handshakes(transport, sink);
        }
        if self.receive_side.is_pulling() {
            let (receiver, mut effects) = self.receive_side_and_effects(sink);
            receiver.pull_payloads(
                |link, from, at_bytes, into| transport.pull(link, from, at_bytes, into),
                &mut effects,
            );
            // A receive may have been too short for what was pulled. Nothing must be sent after it.
            self.end_connection_if_failed(sink);
        }
        if self.target.is_pulling() {
            let (target, mut effects) = self.target_and_effects(sink);
            let outcome = target.pull_payloads(
                |link, from, at_bytes, into| transport.pull(link, from, at_bytes, into),
                &mut effects,
            );
            if let Err((link, fault)) = outcome {
                self.abort_faulty_link(link, fault.into(), sink);
            }
        }
        if self.target.has_partial_flushes() {
            let (target, mut effects) = self.target_and_effects(sink);
            target.advance_flushes(&mut effects);
        }
        if self.receive_side.has_starved_links() {
            let (receiver, mut effects) = self.receive_side_and_effects(sink);
            receiver.grant_credit_to_starved_links(&mut effects);
        }
    }

    /// Sends frames to a peer until the link is full or nothing is left. First comes the rest of a
    /// partly written frame, then payload that the peer has asked for, then queued operations.
    /// Returns whether anything is left. The rest waits for an event of one of the peer's links.
    pub(super) fn transmit_until_full(
        &mut self,
        peer: PeerId,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> bool {
        // Without a link, the first operation may choose one that is in the middle of a frame.
        if self.peers.peer(peer).transmit_link().is_none() && self.initiator.first_queued(peer).is_some() {
            self.find_or_open_transmit_link(peer, transport);
        }
        if let Some(link) = self.peers.peer(peer).transmit_link()
            && !(self.try_finish_frame(link, transport, sink) && self.try_send_cleared(link, transport, sink))
        {
            return true;
        }
        while let Some(id) = self.initiator.first_queued(peer) {
            let taken = self.transmit_first(peer, id, transport, sink);
            if taken != Taken::Nothing {
                self.initiator.unqueue_first(peer);
            }
            if taken != Taken::Whole {
                return true;
            }
        }
        false
    }

    /// Gives the link to a peer the first operation that is queued for it.
    fn transmit_first(
        &mut self,
        peer: PeerId,
        id: SendId,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Taken {
        let link = self.find_or_open_transmit_link(peer, transport);
        // An operation that has ended already has nothing to send.
        let Some(send) = self.initiator.get(id) else { return Taken::Whole };
        let caps = caps_for_payload(transport, link, send);
        if send.fence
            && !ignores_fence(send)
            && !try_pass_fence(&mut self.links, link, self.peers.peer(peer).links(), send, transport)
        {
            return Taken::Nothing;
        }
        let order = self.config.transmit_order;
        if self.links.get(link).is_some_and(|link| link.tx.is_held_by_order(send, order)) {
            return Taken::Nothing;
        }
        if let Some(kind) = send.access_kind() {
            if matches!(kind, AccessKind::Flush(_)) && self.has_unanswered_accesses_on_former_links(peer) {
                return Taken::Nothing;
            }
            return self.transmit_rma(link, id, &caps, transport);
        }
        let protocol = self.links.get(link).map_or(SendProtocol::Waiting, |link| {
            link.tx.choose_protocol(send, &caps, self.config.eager_max_bytes)
        });
        match protocol {
            SendProtocol::Waiting => return Taken::Nothing,
            SendProtocol::Eager => {}
            SendProtocol::Pulled | SendProtocol::Requested => {
                match self.transmit_offer(link, id, protocol, &caps, transport) {
                    OfferOutcome::Sent => return Taken::Whole,
                    OfferOutcome::Full | OfferOutcome::Gone => return Taken::Nothing,
                    OfferOutcome::SendEagerly => {}
                }
            }
        }
        self.transmit_eager(link, id, &caps, transport, sink)
    }

    /// Gives a link an eager message that is in the operation table.
    fn transmit_eager(
        &mut self,
        link: LinkId,
        id: SendId,
        caps: &LinkCaps,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Taken {
        let Some(send) = self.initiator.get(id) else { return Taken::Whole };
        let message = send.message;
        match send_eager(transport, link, caps, send) {
            Sent::Full => Taken::Nothing,
            Sent::Partial(taken_bytes) => {
                self.record_eager_message_begun(link, &message);
                self.record_partial_message(link, id, taken_bytes);
                Taken::Partly
            }
            Sent::Whole => {
                self.record_eager_message_begun(link, &message);
                self.await_reply_or_complete_queued(link, id, sink);
                Taken::Whole
            }
        }
    }

    /// Continues the link's partly written frame. Returns whether the link can take another frame.
    fn try_finish_frame(&mut self, id: LinkId, transport: &mut impl Transport, sink: &mut impl Sink) -> bool {
        let Some(link) = self.links.get_mut(id) else { return true };
        let Some(PartialFrame { kind, send: send_id, taken_bytes }) = link.tx.partial_frame() else {
            return true;
        };
        if kind == FrameKind::ReadData {
            return self.try_send_pending_replies_of(id, transport, sink);
        }
        let Some(send) = self.initiator.get(send_id) else { return true };
        let sent = transport.resume(id, &send.source.slices(taken_bytes));
        match sent {
            Sent::Full => return false,
            Sent::Partial(more_bytes) => {
                link.tx.advance_partial_frame(more_bytes);
                return false;
            }
            Sent::Whole => {}
        }
        link.tx.end_partial_frame();
        match kind {
            FrameKind::Message => self.await_reply_or_complete_queued(id, send_id, sink),
            FrameKind::Data => self.record_requested_payload_sent(id, send_id, sink),
            FrameKind::ReadData => {}
        }
        // Replies go here, between two frames: the peer must not have to wait for all frames that
        // follow.
        self.try_send_pending_replies_of(id, transport, sink)
    }

    /// Records that a link has begun to take an eager message.
    #[inline(always)]
    pub(super) fn record_eager_message_begun(&mut self, link: LinkId, message: &Message) {
        if let Some(link) = self.links.get_mut(link) {
            link.tx.record_message_begun(message.eager_cost_bytes());
        }
    }

    /// Records that a link took a part of an eager message.
    pub(super) fn record_partial_message(&mut self, link: LinkId, send: SendId, taken_bytes: usize) {
        if let Some(link) = self.links.get_mut(link) {
            link.tx.record_partial_frame(FrameKind::Message, send, taken_bytes);
        }
    }

    /// Handles a send whose whole message the link has taken, and that is not in the operation
    /// table. If the send awaits a reply, enters it into the table. If not, reports its success.
    pub(super) fn await_reply_or_complete_unqueued(
        &mut self,
        link: LinkId,
        send: Send,
        sink: &mut impl Sink,
    ) {
        if send.message.awaits.wants_answer() {
            let awaits = send.message.awaits;
            let send = self.initiator.insert(send);
            self.await_reply(link, send, awaits);
        } else {
            let (initiator, mut effects) = self.initiator_and_effects(sink);
            initiator.report_immediate_success(send, &mut effects);
        }
    }

    /// Handles a send of the operation table whose whole message the link has taken. Ends the send,
    /// unless it awaits a reply.
    fn await_reply_or_complete_queued(&mut self, link: LinkId, id: SendId, sink: &mut impl Sink) {
        let awaits = self.initiator.awaited_reply(id);
        if awaits.wants_answer() {
            self.await_reply(link, id, awaits);
        } else {
            self.end_with_success(id, sink);
        }
    }

    /// Ends an operation of the operation table that has succeeded.
    pub(super) fn end_with_success(&mut self, id: SendId, sink: &mut impl Sink) {
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.end_with_success(id, &mut effects);
    }

    /// Keeps a send until the peer acknowledges or matches its message. No message may have begun
    /// on the link after this one.
    fn await_reply(&mut self, link: LinkId, send: SendId, awaits: AwaitedReply) {
        if let Some(link) = self.links.get_mut(link) {
            link.tx.await_reply(send, awaits);
        }
    }
}

/// Returns the capabilities of a link for the payload of an operation. Without a pull if the
/// transport would rather send the payload.
#[inline(always)]
pub(super) fn caps_for_payload(transport: &impl Transport, link: LinkId, send: &Send) -> LinkCaps {
    let mut caps = transport.caps(link);
    if send.message.len_bytes >= caps.pull_min_bytes as u64 && !prefers_pull(transport, link, send) {
        caps.pull_min_bytes = usize::MAX;
    }
    caps
}

#[inline(never)]
fn prefers_pull(transport: &impl Transport, link: LinkId, send: &Send) -> bool {
    send.may_be_fetched && transport.prefers_pull(link, &send.source.slices(0))
}

/// Gives the transport as much of an eager message as it takes.
pub(super) fn send_eager(transport: &mut impl Transport, link: LinkId, caps: &LinkCaps, send: &Send) -> Sent {
    let header = Header::Message(send.message);
    match send.source.contiguous() {
        Some(bytes) if bytes.len() <= caps.inline_max_bytes => {
            match transport.send_inline(link, &header, bytes) {
                Ok(()) => Sent::Whole,
                Err(_) => Sent::Full,
            }
        }
        _ => {
            let mut slices = send.source.slices(0);
            let is_reversed = match send.message.tag {
                Some(_) => mutated!("fi_tagged/tagged-vector-is-one-message"),
                None => mutated!("fi_msg/vector-is-one-message"),
            };
            if is_reversed {
                slices.reverse();
            }
            transport.send(link, &header, &slices)
        }
    }
}

/// Whether a mutant makes this operation begin before the operations behind which its fence puts it.
fn ignores_fence(send: &Send) -> bool {
    match send.access_kind() {
        None if send.message.tag.is_some() => mutated!("fi_tagged/tagged-fence-defers"),
        None => mutated!("fi_msg/fence-defers"),
        Some(AccessKind::Atomic { .. }) => mutated!("fi_atomic/atomic-fence-defers"),
        Some(_) => mutated!("fi_rma/rma-fence-defers"),
    }
}
