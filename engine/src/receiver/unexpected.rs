//! Unexpected messages: messages that arrive before a receive for them is posted.

use smallvec::SmallVec;

use super::links::MessageOrigin;
use super::messages::report_match_if_awaited;
use super::payload_destination::PayloadDestination;
use super::write_notice::WriteNotice;
use super::{MemberId, Receiver, ReceiverEffects};
use crate::error::OperationError;
use crate::limits::MESSAGE_COST_BYTES;
use crate::link_fault::{NoMemory, TryBox};
use crate::matching::{Matching, Place};
use crate::operation::{FetchId, Receive, ReceiveId, UnexpectedId};
use crate::peer_id::PeerId;
use crate::reassembly::clamp_to_usize;
use crate::transport::LinkId;
use crate::wire::{Header, Message};

/// A message that no receive has matched yet. It may have arrived only in part.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) source: PeerId,
    pub(super) message: Message,
    pub(super) bytes: Payload,
    /// The fetch of the payload, if the message was offered.
    pub(super) fetch: Option<FetchId>,
    pub(super) origin: MessageOrigin,
    /// How many fences had arrived on the link before this message.
    fences: u64,
    /// The number of this message among the link's eager messages; 0 if it was offered.
    number: u64,
    /// The credit that this message holds.
    cost_bytes: u64,
    /// The bytes that the budget has reserved for the payload, if the payload is fetched before a
    /// receive matches.
    fetched_bytes: u64,
    /// The context of the peek that has claimed this message.
    pub(super) claim: Option<u64>,
    /// Set if this is no message, but the notice of a write.
    pub(super) notice: Option<WriteNotice>,
    /// Its place in matching; `None` while it is kept aside.
    pub(super) place: Option<Place>,
    /// Its number among all messages that were kept.
    pub(super) kept_number: u64,
}

/// The bytes of a message that have arrived. A short payload is stored inline.
pub(super) type Payload = SmallVec<[u8; SMALL_MAX_BYTES]>;

const SMALL_MAX_BYTES: usize = 64;

impl Unexpected {
    /// Whether all of the message has arrived.
    fn is_whole(&self) -> bool {
        self.fetch.is_none() && self.bytes.len() as u64 == self.message.len_bytes
    }

    /// Returns how much of the budget the message uses.
    pub(super) fn used_bytes(&self) -> u64 {
        self.cost_bytes + self.fetched_bytes
    }
}

impl Receiver {
    /// Keeps an eager message, or its beginning, that no posted receive accepts. The caller has
    /// spent the message's credit. Returns `None`, and keeps nothing, if the link has ended.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]: nothing is kept.
    pub(super) fn keep_eager(
        &mut self,
        link: LinkId,
        message: &Message,
        payload: &[u8],
        number: u64,
        effects: &mut impl ReceiverEffects,
    ) -> Result<Option<UnexpectedId>, NoMemory> {
        // Credit covers the whole message, so its length can be trusted. But the budget may exceed
        // the free memory.
        let mut bytes = Payload::new();
        bytes.try_reserve_exact(clamp_to_usize(message.len_bytes))?;
        bytes.extend_from_slice(payload);
        self.keep_unexpected(link, message, bytes, number, message.eager_cost_bytes(), effects)
    }

    /// Keeps the offer of a message that no posted receive accepts. Returns `None`, and keeps nothing,
    /// if the link has ended.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]: nothing is kept.
    pub(super) fn keep_offer(
        &mut self,
        link: LinkId,
        message: &Message,
        effects: &mut impl ReceiverEffects,
    ) -> Result<Option<UnexpectedId>, NoMemory> {
        self.keep_unexpected(link, message, Payload::new(), 0, MESSAGE_COST_BYTES, effects)
    }

    /// Keeps a message, of which these bytes have arrived. The caller has spent its credit, `cost_bytes`.
    /// Returns `None`, and keeps nothing, if the link has ended.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]: nothing is kept.
    pub(super) fn keep_unexpected(
        &mut self,
        link_id: LinkId,
        message: &Message,
        bytes: Payload,
        number: u64,
        cost_bytes: u64,
        effects: &mut impl ReceiverEffects,
    ) -> Result<Option<UnexpectedId>, NoMemory> {
        let Some(link) = self.links.get_mut(link_id) else { return Ok(None) };
        let origin = link.message_origin(link_id);
        let unexpected = TryBox::try_new(Unexpected {
            source: link.peer,
            message: *message,
            bytes,
            fetch: None,
            origin,
            fences: link.received_fences,
            number,
            cost_bytes,
            fetched_bytes: 0,
            claim: None,
            notice: None,
            place: None,
            kept_number: self.horizon.next_number(),
        })?;
        if let Some(unproven) = &mut link.unproven_messages {
            unproven.try_reserve()?;
        }
        self.unexpected.try_reserve(1)?;
        let is_kept_aside = self.try_reserve_aside(origin.member, message)?;
        if !is_kept_aside {
            self.matching_of(message).try_reserve_unexpected()?;
        }
        let (source, id) = (unexpected.source, self.unexpected.insert(unexpected));
        if is_kept_aside {
            self.push_aside(origin.member, id);
        } else {
            let place = self.matching_of(message).add_unexpected(source, message.tag.unwrap_or(0), id);
            self.set_place(id, place);
        }
        if let Some(link) = self.links.get_mut(link_id) {
            link.grant.hold(cost_bytes);
            link.unmatched_messages += 1;
            link.unclaimed_bytes += cost_bytes;
            if let Some(unproven) = &mut link.unproven_messages {
                unproven.push(id, link.unmatched_messages, |id| self.unexpected.contains_key(id));
            }
        }
        self.horizon.message_kept(message);
        self.renew_credit_if_due(link_id, effects);
        Ok(Some(id))
    }

    /// Reserves memory for the payload of an offer that no receive has matched. Returns whether
    /// there was enough.
    pub(super) fn try_reserve_payload_memory(&mut self, id: UnexpectedId) -> bool {
        let Some(unexpected) = self.unexpected.get(id) else { return false };
        let (len_bytes, origin) = (unexpected.message.len_bytes, unexpected.origin);
        let Some(host) = self.links.link_of_origin(origin).map(|link| link.grant.host()) else {
            return false;
        };
        if !self.budget.can_fetch(len_bytes, host) || !self.try_make_room(len_bytes, host) {
            return false;
        }
        let (Some(unexpected), Some(link)) = (self.unexpected.get_mut(id), self.links.link_of_origin(origin))
        else {
            return false;
        };
        if !link.grant.try_reserve_payload(len_bytes, &mut self.budget) {
            return false;
        }
        if unexpected.bytes.try_reserve_exact(clamp_to_usize(len_bytes)).is_err() {
            link.grant.release_payload(len_bytes, &mut self.budget);
            return false;
        }
        unexpected.fetched_bytes = len_bytes;
        if unexpected.claim.is_none() {
            link.unclaimed_bytes += len_bytes;
        }
        true
    }

    /// Removes an unexpected message, returns its credit, and frees its reserved memory. The caller
    /// removes the message from matching.
    pub(super) fn remove_unexpected_and_return_credit(
        &mut self,
        id: UnexpectedId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<TryBox<Unexpected>> {
        let unexpected = self.remove_unexpected_without_credit(id, effects)?;
        self.return_credit_to_origin(unexpected.origin, unexpected.cost_bytes, effects);
        Some(unexpected)
    }

    /// Removes an unexpected message, and frees its reserved memory. The caller returns the
    /// message's credit.
    fn remove_unexpected_without_credit(
        &mut self,
        id: UnexpectedId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<TryBox<Unexpected>> {
        let unexpected = self.unexpected.remove(id)?;
        let (origin, fetched_bytes) = (unexpected.origin, unexpected.fetched_bytes);
        let Some(link) = self.links.link_of_origin(origin) else {
            if unexpected.claim.is_none() {
                self.leftovers.forbid_drop(origin.creation_number, unexpected.used_bytes(), &mut self.budget);
            }
            self.leftovers.release(origin.creation_number, fetched_bytes, &mut self.budget);
            return Some(unexpected);
        };
        if fetched_bytes > 0 {
            link.grant.release_payload(fetched_bytes, &mut self.budget);
        }
        link.unmatched_messages -= 1;
        if unexpected.claim.is_none() {
            link.unclaimed_bytes -= unexpected.used_bytes();
        }
        if link.fenced_messages > 0 && unexpected.fences < link.received_fences {
            link.fenced_messages -= 1;
            if link.fenced_messages == 0 {
                effects.queue_header(origin.link, Header::Fenced);
            }
        }
        Some(unexpected)
    }

    /// Gives an unexpected message to a receive that was just posted. If the message is still
    /// arriving, its rest goes straight to the receive.
    pub(super) fn receive_unexpected(
        &mut self,
        mut receive: Receive,
        id: UnexpectedId,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(unexpected) = self.remove_unexpected_and_return_credit(id, effects) else { return };
        if !unexpected.is_whole() || unexpected.notice.is_some() || self.turns.has_turns() {
            let receive_id = self.receives.insert(receive);
            return self.fill_receive(receive_id, id, unexpected.into_inner(), effects);
        }
        let Unexpected { source, message, bytes, origin, number, .. } = unexpected.into_inner();
        receive.destination.copy_in(0, &bytes);
        drop(bytes);
        self.finish_immediate_receive(receive, source, &message, origin.member, effects);
        self.report_match_if_awaited(&message, origin, number, effects);
    }

    /// As [`receive_unexpected`](Self::receive_unexpected), for a receive that is in the operation table.
    pub(super) fn receive_unexpected_into(
        &mut self,
        receive_id: ReceiveId,
        id: UnexpectedId,
        effects: &mut impl ReceiverEffects,
    ) {
        if let Some(unexpected) = self.remove_unexpected_and_return_credit(id, effects) {
            self.fill_receive(receive_id, id, unexpected.into_inner(), effects);
        }
    }

    /// Copies the part of a message that has arrived into a receive of the operation table. The
    /// rest goes straight to the receive.
    fn fill_receive(
        &mut self,
        receive_id: ReceiveId,
        id: UnexpectedId,
        unexpected: Unexpected,
        effects: &mut impl ReceiverEffects,
    ) {
        let is_whole = unexpected.is_whole();
        let Unexpected { source, message, bytes, fetch, origin, number, notice, .. } = unexpected;
        self.assign_turn_if_needed(receive_id, origin.member, fetch.is_some());
        if let Some(receive) = self.receives.get_mut(receive_id) {
            receive.destination.copy_in(0, &bytes);
        }
        if let Some(notice) = notice {
            self.finish_receive_with_notice(receive_id, source, &notice, origin.member, effects);
        } else if is_whole {
            self.finish_receive(receive_id, source, &message, origin.member, effects);
            self.report_match_if_awaited(&message, origin, number, effects);
        } else {
            self.redirect_arrival(id, fetch, origin.link, PayloadDestination::Posted(receive_id));
        }
    }

    /// Discards a message that was removed from matching. The rest of its payload is dropped as it
    /// arrives. Returns the member at which the message arrived.
    pub(super) fn discard_unexpected(
        &mut self,
        id: UnexpectedId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<MemberId> {
        let unexpected = self.remove_unexpected_without_credit(id, effects)?;
        if !unexpected
            .fetch
            .is_some_and(|fetch| self.hold_credit_if_payload_requested(fetch, unexpected.cost_bytes))
        {
            self.return_credit_to_origin(unexpected.origin, unexpected.cost_bytes, effects);
        }
        let is_whole = unexpected.is_whole();
        let Unexpected { message, fetch, origin, number, .. } = unexpected.into_inner();
        if is_whole {
            self.report_match_if_awaited(&message, origin, number, effects);
        } else {
            self.redirect_arrival(id, fetch, origin.link, PayloadDestination::Nowhere);
        }
        Some(origin.member)
    }

    /// Drops a message whose rest will not arrive.
    pub(super) fn drop_incomplete(
        &mut self,
        id: UnexpectedId,
        message: &Message,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(unexpected) = self.remove_unexpected_and_return_credit(id, effects) else { return };
        match unexpected.claim {
            Some(context) => self.fail_claimed_message(message.tag.is_some(), context, error),
            None => match unexpected.place {
                Some(place) => {
                    self.matching_of(message).remove_unexpected(place, id);
                }
                None => self.forget_kept_aside(unexpected.origin.member),
            },
        }
    }

    /// Records where a message waits in matching.
    pub(super) fn set_place(&mut self, id: UnexpectedId, place: Place) {
        if let Some(unexpected) = self.unexpected.get_mut(id) {
            unexpected.place = Some(place);
        }
    }

    /// Changes the destination of the rest of a message.
    fn redirect_arrival(
        &mut self,
        id: UnexpectedId,
        fetch: Option<FetchId>,
        link: LinkId,
        destination: PayloadDestination,
    ) {
        if let Some(fetch) = fetch {
            self.redirect_and_begin_fetch(fetch, destination);
        } else if let Some(filling) = self.reassembly_mut(link)
            && filling.owner.destination == PayloadDestination::Unexpected(id)
        {
            filling.owner.destination = destination;
        }
    }

    /// Reports a match to the sender of an eager message, if the sender awaits the match and the
    /// link is still up.
    fn report_match_if_awaited(
        &mut self,
        message: &Message,
        origin: MessageOrigin,
        number: u64,
        effects: &mut impl ReceiverEffects,
    ) {
        if number > 0 && self.links.link_of_origin(origin).is_some() {
            report_match_if_awaited(origin.link, message, number, effects);
        }
    }

    #[inline(always)]
    pub(super) fn matching_of(&mut self, message: &Message) -> &mut Matching<ReceiveId, UnexpectedId> {
        if message.tag.is_some() { &mut self.tagged } else { &mut self.untagged }
    }
}
