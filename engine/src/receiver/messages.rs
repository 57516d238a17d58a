//! Arriving messages: matches them with receives, and puts their payload in place.

use std::mem;

use super::credit::NOT_COVERED;
use super::links::{Arriving, IncomingMessage};
use super::payload_destination::PayloadDestination;
use super::{MemberId, ProtocolViolation, Receiver, ReceiverEffects};
use crate::buffer::Destination;
use crate::completion::EndedOperation;
use crate::flags::CounterEvents;
use crate::link_fault::LinkFault;
use crate::mutated;
use crate::operation::{ReceiveId, ReceiveRole, Signalled};
use crate::peer_id::PeerId;
use crate::reassembly::{Arrived, Reassembly, clamp_to_usize};
use crate::transport::{LinkId, Space};
use crate::wire::{AwaitedReply, Header, Message};

/// The error of a message on a link that the receiver does not have.
const UNKNOWN_LINK: ProtocolViolation = ProtocolViolation("sends over no link");

/// The buffer of a receive, lent to a caller that reads payload into it.
#[derive(Debug)]
pub(crate) struct LentBuffer {
    receive: ReceiveId,
    destination: Destination,
    at_bytes: usize,
    len_bytes: usize,
}

impl LentBuffer {
    /// Returns the space for the next bytes.
    pub(crate) fn payload_space(&mut self) -> Space<'_> {
        self.destination.slices_mut(self.at_bytes, self.len_bytes)
    }
}

/// Whether a message has ended a receive by the [lane](Receiver::end_receive_at_once).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedAtOnce {
    /// It has, and the sink has the report.
    Reported,
    /// It has, and the report waits for room in the sink.
    ReportHeld,
    /// It has not, and nothing has changed.
    No,
}

impl Receiver {
    /// Ends the earliest posted receive with a message that has arrived whole, if it accepts the message, has
    /// room for it in one piece, and nothing else is to be done: no acknowledgement and no grant of credit is
    /// due, no report waits, and there is no [special case](Self::take_special_match) to look at. This is
    /// what happens to most messages. `read` fills the memory.
    #[inline(always)]
    pub(crate) fn end_receive_at_once(
        &mut self,
        id: LinkId,
        message: &Message,
        read: impl FnOnce(&mut [u8]),
        effects: &mut impl ReceiverEffects,
    ) -> EndedAtOnce {
        let cost_bytes = message.eager_cost_bytes();
        let Some(link) = self.links.get_mut(id) else { return EndedAtOnce::No };
        let has_more_to_do =
            self.has_special_cases | !self.held.is_empty() | (message.awaits != AwaitedReply::Nothing);
        if has_more_to_do || !link.grant.can_spend_before_renewal(cost_bytes) {
            return EndedAtOnce::No;
        }
        let (source, member) = (link.peer, link.member);
        let matching = if message.tag.is_some() { &mut self.tagged } else { &mut self.untagged };
        let Some(receive_id) = matching.first_posted_if_accepts(source, message.tag.unwrap_or(0)) else {
            return EndedAtOnce::No;
        };
        let Some(receive) = self.receives.get_mut(receive_id) else { return EndedAtOnce::No };
        let is_plain = receive.signalled == Signalled::Yes && receive.role == ReceiveRole::Single;
        let len_bytes = clamp_to_usize(message.len_bytes);
        let memory = receive.destination.contiguous_mut().and_then(|memory| memory.get_mut(..len_bytes));
        let Some(memory) = memory.filter(|_| is_plain) else { return EndedAtOnce::No };
        read(memory);
        link.grant.spend_and_return(cost_bytes, &mut self.budget);
        link.received_messages += 1;
        matching.take_first_posted();
        effects.count(CounterEvents::RECV, member);
        let gives_buffer = receive.destination.gives_buffer();
        let received = receive.without_buffer(source, message, len_bytes);
        self.horizon.receive_ended();
        if !gives_buffer && effects.complete_receive(received) {
            // One segment of the caller's memory needs no drop.
            mem::forget(self.receives.remove(receive_id));
            return EndedAtOnce::Reported;
        }
        let buffer = receive.destination.take_buffer(len_bytes);
        self.receives.remove(receive_id);
        match effects.complete(EndedOperation { buffer, ..received.into() }, Some(member)) {
            Ok(()) => EndedAtOnce::Reported,
            Err(refused) => {
                self.held.hold(Ok(refused));
                EndedAtOnce::ReportHeld
            }
        }
    }

    /// Handles an eager message that has arrived whole.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer had no credit for the message, or if the link is
    /// unknown; [`LinkFault::NoMemory`].
    #[inline(always)]
    pub(crate) fn message_arrived(
        &mut self,
        id: LinkId,
        message: &Message,
        payload: &[u8],
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), LinkFault> {
        // Every small message takes this path, so the link is looked up only once.
        let Some(link) = self.links.get_mut(id) else { return Err(UNKNOWN_LINK.into()) };
        let cost_bytes = message.eager_cost_bytes();
        if !link.grant.try_spend(cost_bytes) {
            return Err(NOT_COVERED.into());
        }
        link.received_messages += 1;
        let (source, number, member) = (link.peer, link.received_messages, link.member);
        if message.awaits.wants_ack() {
            effects.queue_ack(id);
        }
        if let Some(receive_id) = self.take_match(source, message, member, effects) {
            self.return_credit(id, cost_bytes, effects);
            let is_lost = mutated!("fi_cq/receive-completion-means-readable")
                || mutated!("fi_cq/delivery-fills-posted-buffer") && message.awaits.wants_ack()
                || mutated!("fi_cq/visible-means-delivered") && !message.awaits.wants_answer();
            if let Some(receive) = self.receives.get_mut(receive_id)
                && !is_lost
            {
                receive.destination.copy_in(0, payload);
            }
            self.finish_receive(receive_id, source, message, member, effects);
            report_match_if_awaited(id, message, number, effects);
        } else {
            self.keep_eager(id, message, payload, number, effects)?;
        }
        Ok(())
    }

    /// Begins an eager message. At least one byte of its payload follows. Does nothing for an unknown link.
    ///
    /// # Errors
    ///
    /// [`NOT_COVERED`] if the peer has no credit for the message; [`LinkFault::NoMemory`].
    pub(crate) fn begin_message(
        &mut self,
        id: LinkId,
        message: &Message,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), LinkFault> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let cost_bytes = message.eager_cost_bytes();
        if !link.grant.try_spend(cost_bytes) {
            return Err(NOT_COVERED.into());
        }
        let (source, number, member) = (link.peer, link.received_messages + 1, link.member);
        let destination = match self.take_match(source, message, member, effects) {
            Some(receive) => {
                self.return_credit(id, cost_bytes, effects);
                PayloadDestination::Posted(receive)
            }
            None => match self.keep_eager(id, message, &[], number, effects)? {
                Some(unexpected) => PayloadDestination::Unexpected(unexpected),
                None => return Ok(()),
            },
        };
        if let Some(link) = self.links.get_mut(id) {
            link.reading = Some(IncomingMessage::Eager {
                filling: Arriving::new_reassembly(destination, message),
                number,
            });
        }
        Ok(())
    }

    /// Removes and returns the earliest posted receive that matches a message from `source`. If
    /// this is a multi-receive buffer, the buffer stays posted, and the call returns a new receive
    /// for a part of the buffer.
    #[inline(always)]
    pub(super) fn take_match(
        &mut self,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<ReceiveId> {
        if self.has_special_cases {
            return self.take_special_match(source, message, member, effects);
        }
        self.matching_of(message).take_posted(source, message.tag.unwrap_or(0))
    }

    /// As [`take_match`](Self::take_match), but handles multi-receive buffers, turns and failures.
    #[cold]
    fn take_special_match(
        &mut self,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<ReceiveId> {
        if self.has_watched_failure() {
            return None;
        }
        let found = if self.multi_receives.may_claim_untagged() && message.tag.is_none() {
            self.take_untagged_match_or_part(source, message, member, effects)
        } else {
            self.matching_of(message).take_posted(source, message.tag.unwrap_or(0))
        };
        if let Some(receive) = found {
            self.assign_turn_if_needed(receive, member, false);
        }
        found
    }

    /// Updates `has_special_cases`. The caller has added or removed buffers, messages kept aside or
    /// turns, or has changed the watch for failures.
    pub(super) fn update_special_cases(&mut self) {
        self.has_special_cases =
            self.multi_receives.may_claim_untagged() || self.turns.has_turns() || self.has_watched_failure();
    }

    /// Places the next bytes of the message that is being read on a link. Drops the bytes if there
    /// is no such message.
    pub(crate) fn put_payload(&mut self, id: LinkId, bytes: &[u8], effects: &mut impl ReceiverEffects) {
        let Some(filling) = self.reassembly_mut(id).copied() else { return };
        let bytes = filling.clip_bytes(bytes);
        match filling.owner.destination {
            PayloadDestination::Posted(receive) => {
                if let Some(receive) = self.receives.get_mut(receive) {
                    receive.destination.copy_in(clamp_to_usize(filling.arrived_bytes), bytes);
                }
            }
            PayloadDestination::Unexpected(unexpected) => {
                if let Some(unexpected) = self.unexpected.get_mut(unexpected) {
                    // The capacity was reserved when the message was kept, or before it was fetched.
                    unexpected.bytes.extend_from_slice(bytes);
                }
            }
            PayloadDestination::Nowhere => {}
        }
        self.bytes_placed(id, bytes.len(), effects);
    }

    /// Returns the space for the next bytes of the message that is being read on a link. The space
    /// is empty unless a receive has matched the message.
    pub(crate) fn payload_space(&mut self, id: LinkId) -> Space<'_> {
        let Some(filling) = self.reassembly_mut(id).copied() else { return Space::new() };
        match filling.owner.destination {
            PayloadDestination::Posted(receive) => match self.receives.get_mut(receive) {
                Some(receive) => receive
                    .destination
                    .slices_mut(clamp_to_usize(filling.arrived_bytes), clamp_to_usize(filling.left_bytes())),
                None => Space::new(),
            },
            PayloadDestination::Unexpected(_) | PayloadDestination::Nowhere => Space::new(),
        }
    }

    /// As [`payload_space`](Self::payload_space), for a caller that reads into the buffer while
    /// other threads use the receiver. The caller [returns the buffer](Self::take_back_buffer)
    /// before any other call for this link.
    pub(crate) fn lend_buffer(&mut self, id: LinkId) -> Option<LentBuffer> {
        let filling = self.reassembly_mut(id).copied()?;
        let PayloadDestination::Posted(receive) = filling.owner.destination else { return None };
        let destination = mem::take(&mut self.receives.get_mut(receive)?.destination);
        let (at_bytes, len_bytes) =
            (clamp_to_usize(filling.arrived_bytes), clamp_to_usize(filling.left_bytes()));
        Some(LentBuffer { receive, destination, at_bytes, len_bytes })
    }

    pub(crate) fn take_back_buffer(&mut self, lent: LentBuffer) {
        if let Some(receive) = self.receives.get_mut(lent.receive) {
            receive.destination = lent.destination;
        }
    }

    /// Records that more bytes of the message that is being read on a link are in place. If this
    /// was the last byte, the message is whole and ends.
    pub(crate) fn bytes_placed(
        &mut self,
        id: LinkId,
        count_bytes: usize,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(filling) = self.reassembly_mut(id) else { return };
        if filling.advance(count_bytes) == Arrived::Partly {
            return;
        }
        let Some(link) = self.links.get_mut(id) else { return };
        match link.reading.take() {
            Some(IncomingMessage::Eager { filling, number }) => {
                link.received_messages += 1;
                let (source, member) = (link.peer, link.member);
                let Arriving { message, destination, .. } = filling.owner;
                if message.awaits.wants_ack() {
                    effects.queue_ack(id);
                }
                self.finish_message(source, &filling, member, effects);
                if !matches!(destination, PayloadDestination::Unexpected(_)) {
                    report_match_if_awaited(id, &message, number, effects);
                }
            }
            Some(IncomingMessage::Requested(fetch)) => self.requested_data_arrived(fetch, effects),
            None => {}
        }
    }

    /// Returns the reassembly of the payload that is being read on a link.
    pub(super) fn reassembly_mut(&mut self, id: LinkId) -> Option<&mut Reassembly<Arriving>> {
        match self.links.get_mut(id)?.reading.as_mut()? {
            IncomingMessage::Eager { filling, .. } => Some(filling),
            IncomingMessage::Requested(fetch) => self.fetches.reassembly_mut(*fetch),
        }
    }

    /// Ends a message whose payload is whole and in its destination.
    pub(super) fn finish_message(
        &mut self,
        source: PeerId,
        filling: &Reassembly<Arriving>,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let Arriving { message, destination, .. } = &filling.owner;
        match *destination {
            PayloadDestination::Posted(receive) => {
                self.finish_receive(receive, source, message, member, effects);
            }
            PayloadDestination::Unexpected(unexpected) => {
                if let Some(unexpected) = self.unexpected.get_mut(unexpected) {
                    unexpected.fetch = None;
                }
            }
            PayloadDestination::Nowhere => {}
        }
    }

    /// Handles a fence. The peer asks whether all its earlier messages have arrived. They have,
    /// since a link keeps the order. With `asks_match`, the answer waits until each of them was
    /// matched or discarded.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the last fence was not answered yet.
    pub(crate) fn fence_asked(
        &mut self,
        id: LinkId,
        asks_match: bool,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        if link.fenced_messages > 0 {
            return Err(ProtocolViolation("sends a fence before the last one was answered"));
        }
        link.received_fences += 1;
        if asks_match && link.unmatched_messages > 0 && !mutated!("fi_cq/fence-raises-lower-levels") {
            link.fenced_messages = link.unmatched_messages;
        } else {
            effects.queue_header(id, Header::Fenced);
        }
        Ok(())
    }
}

/// Reports the match of an eager message to its sender, if the sender awaits the match. The message
/// is in its receive, or was discarded.
#[inline(always)]
pub(super) fn report_match_if_awaited(
    id: LinkId,
    message: &Message,
    number: u64,
    effects: &mut impl ReceiverEffects,
) {
    if message.awaits.wants_match() {
        effects.queue_header(id, Header::Matched { number });
    }
}
