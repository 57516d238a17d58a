//! Messages that arrive: from their frames to the receives that they match.

use std::mem;

use super::credit::NOT_COVERED;
use super::links::{Arriving, IncomingMessage};
use super::payload_destination::PayloadDestination;
use super::{MemberId, ProtocolViolation, Receiver, ReceiverEffects};
use crate::buffer::Destination;
use crate::operation::ReceiveId;
use crate::peer_id::PeerId;
use crate::reassembly::{Reassembly, clamp_to_usize};
use crate::transport::{LinkId, Space};
use crate::wire::{Header, Message};

/// A message has arrived on a link that the receiver does not know.
const UNKNOWN_LINK: ProtocolViolation = ProtocolViolation("sends over no link");

/// The memory of a receive while payload is read into it.
#[derive(Debug)]
pub(crate) struct LentBuffer {
    receive: ReceiveId,
    destination: Destination,
    at_bytes: usize,
    len_bytes: usize,
}

impl LentBuffer {
    /// Where the next bytes belong.
    pub(crate) fn payload_space(&mut self) -> Space<'_> {
        self.destination.slices_mut(self.at_bytes, self.len_bytes)
    }
}

impl Receiver {
    /// An eager message has arrived in whole.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if its sender had no credit for it, or the link is unknown.
    #[inline(always)]
    pub(crate) fn message_arrived(
        &mut self,
        id: LinkId,
        message: &Message,
        payload: &[u8],
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        // One look at the link for all of it: this is the way of every small message.
        let Some(link) = self.links.get_mut(id) else { return Err(UNKNOWN_LINK) };
        let cost_bytes = message.eager_cost_bytes();
        if !link.grant.spend(cost_bytes) {
            return Err(NOT_COVERED);
        }
        link.received_messages += 1;
        let (source, number, member) = (link.peer, link.received_messages, link.member);
        if message.awaits.wants_ack() {
            effects.owe_ack(id);
        }
        if let Some(receive_id) = self.take_match(source, message, member, effects) {
            self.return_credit(id, cost_bytes, effects);
            if let Some(receive) = self.receives.get_mut(receive_id) {
                receive.destination.copy_in(0, payload);
            }
            self.finish_receive(receive_id, source, message, member, effects);
            report_match(id, message, number, effects);
        } else {
            self.keep_eager(id, message, payload, number, effects);
        }
        Ok(())
    }

    /// An eager message begins to arrive, of which at least one byte follows.
    ///
    /// # Errors
    ///
    /// As [`message`](Self::message).
    pub(crate) fn begin_message(
        &mut self,
        id: LinkId,
        message: &Message,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let cost_bytes = message.eager_cost_bytes();
        if !link.grant.spend(cost_bytes) {
            return Err(NOT_COVERED);
        }
        let (source, number, member) = (link.peer, link.received_messages + 1, link.member);
        let place = match self.take_match(source, message, member, effects) {
            Some(receive) => {
                self.return_credit(id, cost_bytes, effects);
                PayloadDestination::Posted(receive)
            }
            None => match self.keep_eager(id, message, &[], number, effects) {
                Some(unexpected) => PayloadDestination::Unexpected(unexpected),
                None => return Ok(()),
            },
        };
        if let Some(link) = self.links.get_mut(id) {
            link.reading =
                Some(IncomingMessage::Eager { filling: Arriving::new_reassembly(place, message), number });
        }
        Ok(())
    }

    /// The earliest posted receive that a message from `source` matches, or what it is given of a
    /// multi-receive buffer. It is posted no longer.
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

    /// As [`matched`](Self::matched), where multi-receive buffers or turns are to be looked at.
    #[cold]
    fn take_special_match(
        &mut self,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<ReceiveId> {
        let found = if self.multi_receives.may_claim_untagged() && message.tag.is_none() {
            self.take_match_among_buffers(source, message, member, effects)
        } else {
            self.matching_of(message).take_posted(source, message.tag.unwrap_or(0))
        };
        if let Some(receive) = found {
            self.assign_turn(receive, member, false);
        }
        found
    }

    /// Multi-receive buffers, messages that are kept aside, or turns have come or gone.
    pub(super) fn update_special_cases(&mut self) {
        self.has_special_cases = self.multi_receives.may_claim_untagged() || self.turns.has_turns();
    }

    /// The next bytes of the message that is being read on a link have arrived. Without such a message they
    /// are dropped.
    pub(crate) fn put_payload(&mut self, id: LinkId, bytes: &[u8], effects: &mut impl ReceiverEffects) {
        let Some(filling) = self.reassembly_mut(id).copied() else { return };
        let bytes = filling.clip_bytes(bytes);
        match filling.place.place {
            PayloadDestination::Posted(receive) => {
                if let Some(receive) = self.receives.get_mut(receive) {
                    receive.destination.copy_in(clamp_to_usize(filling.arrived_bytes), bytes);
                }
            }
            PayloadDestination::Unexpected(unexpected) => {
                if let Some(unexpected) = self.unexpected.get_mut(unexpected) {
                    unexpected.bytes.extend_from_slice(bytes);
                }
            }
            PayloadDestination::Nowhere => {}
        }
        self.bytes_placed(id, bytes.len(), effects);
    }

    /// Where the next bytes of the message that is being read on a link belong, if that is the memory of a
    /// receive.
    pub(crate) fn payload_space(&mut self, id: LinkId) -> Space<'_> {
        let Some(filling) = self.reassembly_mut(id).copied() else { return Space::new() };
        match filling.place.place {
            PayloadDestination::Posted(receive) => match self.receives.get_mut(receive) {
                Some(receive) => receive
                    .destination
                    .slices_mut(clamp_to_usize(filling.arrived_bytes), clamp_to_usize(filling.left_bytes())),
                None => Space::new(),
            },
            PayloadDestination::Unexpected(_) | PayloadDestination::Nowhere => Space::new(),
        }
    }

    /// As [`space`](Self::space), for a caller that fills it while others use the receiver. To be
    /// [given back](Self::take_back) before anything else is done on the link.
    pub(crate) fn lend_buffer(&mut self, id: LinkId) -> Option<LentBuffer> {
        let filling = self.reassembly_mut(id).copied()?;
        let PayloadDestination::Posted(receive) = filling.place.place else { return None };
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

    /// Bytes of the message that is being read on a link are where they belong. With its last one the message
    /// is there.
    pub(crate) fn bytes_placed(
        &mut self,
        id: LinkId,
        count_bytes: usize,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(filling) = self.reassembly_mut(id) else { return };
        if !filling.advance(count_bytes) {
            return;
        }
        let Some(link) = self.links.get_mut(id) else { return };
        match link.reading.take() {
            Some(IncomingMessage::Eager { filling, number }) => {
                link.received_messages += 1;
                let (source, member) = (link.peer, link.member);
                let Arriving { message, place, .. } = filling.place;
                if message.awaits.wants_ack() {
                    effects.owe_ack(id);
                }
                self.finish_message(source, &filling, member, effects);
                if !matches!(place, PayloadDestination::Unexpected(_)) {
                    report_match(id, &message, number, effects);
                }
            }
            Some(IncomingMessage::AskedFor(fetch)) => self.requested_data_arrived(fetch, effects),
            None => {}
        }
    }

    /// The payload that is being read on a link.
    pub(super) fn reassembly_mut(&mut self, id: LinkId) -> Option<&mut Reassembly<Arriving>> {
        match self.links.get_mut(id)?.reading.as_mut()? {
            IncomingMessage::Eager { filling, .. } => Some(filling),
            IncomingMessage::AskedFor(fetch) => self.fetches.reassembly_mut(*fetch),
        }
    }

    /// All of a message is in its place.
    pub(super) fn finish_message(
        &mut self,
        source: PeerId,
        filling: &Reassembly<Arriving>,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let Arriving { message, place, .. } = &filling.place;
        match *place {
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

    /// The peer asks whether all that it has sent has arrived, which it has, and perhaps whether it was
    /// matched.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the last such question waits for its answer.
    pub(crate) fn fence_asked(
        &mut self,
        id: LinkId,
        matched: bool,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        if link.fenced_messages > 0 {
            return Err(ProtocolViolation("sends a fence before the last one was answered"));
        }
        link.received_fences += 1;
        if matched && link.unmatched_messages > 0 {
            link.fenced_messages = link.unmatched_messages;
        } else {
            effects.owe(id, Header::Fenced);
        }
        Ok(())
    }
}

/// An eager message is in the buffer of a receive, or was thrown away.
#[inline(always)]
pub(super) fn report_match(id: LinkId, message: &Message, number: u64, effects: &mut impl ReceiverEffects) {
    if message.awaits.wants_match() {
        effects.owe(id, Header::Matched { number });
    }
}
