//! Messages whose payload the receiver pulls from the sender's memory, or requests from the sender.
//!
//! To *fetch* a message is to pull or to request its payload. If the budget has room, the receiver
//! fetches a message even before a receive matches it, so that the sender need not wait. A pull is
//! [delayed](crate::limits::FETCH_DELAY_PASSES) first. If the sender waits for the match anyway, the receiver
//! does not fetch early.
//!
//! When an offer arrives, the receiver only records it. The engine calls
//! [`pull_payloads`](Receiver::pull_payloads) later in the pass, when it may call the transport.

use std::io::IoSliceMut;

use slotmap::SlotMap;

use super::links::{Arriving, IncomingMessage};
use super::unexpected::Unexpected;
use super::{MemberId, PayloadDestination, ProtocolViolation, Receiver, ReceiverEffects};
use crate::error::OperationError;
use crate::fetches::{Fetch, FetchMemory, FetchStep};
use crate::limits::{DEFERRED_STEP_MAX_FETCHES, MESSAGE_COST_BYTES, PULL_PASS_MAX_BYTES};
use crate::link_fault::{LinkFault, TryBox};
use crate::moment::Moment;
use crate::operation::{FetchId, Receive, ReceiveId, UnexpectedId};
use crate::peer_id::PeerId;
use crate::reassembly::{Reassembly, clamp_to_usize};
use crate::transport::{LinkId, Pull, RemotePayload};
use crate::wire::{Header, Message};

impl Receiver {
    /// Whether a link's peer has offered a message with this number.
    pub(crate) fn has_offer(&self, id: LinkId, op: u64) -> bool {
        self.fetches.has_offer(id, op)
    }

    /// Handles a peer's offer of a message. `remote` describes where the payload is.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if another offer of the peer has the number `op`, if `remote` is too
    /// long, or if the peer has no credit for the offer; [`LinkFault::NoMemory`].
    pub(crate) fn message_offered(
        &mut self,
        id: LinkId,
        message: &Message,
        op: u64,
        remote: &[u8],
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), LinkFault> {
        let Some((source, member)) = self.source_and_member_of(id) else { return Ok(()) };
        if self.has_offer(id, op) {
            return Err(ProtocolViolation("offers two messages under one number").into());
        }
        let remote = RemotePayload::new(remote)
            .ok_or(ProtocolViolation("describes its payload at too great a length"))?;
        let is_pullable =
            !remote.as_bytes().is_empty() && message.len_bytes > 0 && self.fetches.may_pull_from(id);
        self.spend_credit(id, MESSAGE_COST_BYTES)?;
        let room = self.fetches.try_reserve_offer(id)?;
        self.deferred.try_reserve(1)?;
        self.delayed.try_reserve()?;
        if let Some(receive) = self.take_match(source, message, member, effects) {
            self.return_credit(id, MESSAGE_COST_BYTES, effects);
            self.assign_turn_if_needed(receive, member, true);
            let fetch = self.fetches.add_offer(
                room,
                (id, op),
                Arriving::new_reassembly(PayloadDestination::Posted(receive), message),
                remote,
                true,
            );
            self.fetches.begin_fetch(fetch);
            return Ok(());
        }
        let Some(unexpected) = self.keep_offer(id, message, effects)? else { return Ok(()) };
        let fetch = self.fetches.add_offer(
            room,
            (id, op),
            Arriving::new_reassembly(PayloadDestination::Unexpected(unexpected), message),
            remote,
            false,
        );
        if let Some(unexpected) = self.unexpected.get_mut(unexpected) {
            unexpected.fetch = Some(fetch);
        }
        let host = self.links.get(id).and_then(|link| link.grant.host());
        if !message.awaits.wants_match() && self.budget.can_ever_hold(message.len_bytes, host) {
            // The list may name offers whose fetch has ended. They must not make the list grow
            // without bound.
            if self.deferred.len() + self.delayed.len() > 2 * self.fetches.len() {
                let fetches = &self.fetches;
                self.deferred.retain(|fetch| fetches.contains(*fetch));
                self.delayed.retain(|fetch| fetches.contains(fetch));
            }
            if is_pullable && self.delayed.are_enabled() {
                self.delayed.add(fetch);
            } else {
                self.deferred.push_back(fetch);
                self.begin_deferred_fetches();
            }
        }
        Ok(())
    }

    /// Makes the receiver delay the pulls of unmatched offers. The caller then tells the receiver the
    /// [time](Self::begin_due_fetches).
    pub(crate) fn delay_unmatched_fetches(&mut self) {
        self.delayed.enable();
    }

    /// Whether the pulls of unmatched offers are delayed.
    #[inline]
    pub(crate) fn has_delayed_fetches(&self) -> bool {
        self.delayed.len() > 0
    }

    /// Returns when the next of these pulls are due, if the receiver was told the time since they were
    /// delayed.
    pub(crate) fn delayed_fetch_deadline(&self) -> Option<Moment> {
        self.delayed.deadline()
    }

    /// Counts a pass. Lets this pass begin the pulls that were delayed for long enough.
    pub(crate) fn begin_due_fetches(&mut self, now: Moment) {
        let mut due = self.delayed.take_due(now);
        if !self.fetches.has_any_unneeded() {
            // Receives have matched all offers since.
            due.append(&mut self.delayed.take_all());
        }
        self.defer_fetches(due);
    }

    /// Lets the next pass begin all pulls that are delayed.
    pub(crate) fn end_fetch_delays(&mut self) {
        let delayed = self.delayed.take_all();
        self.defer_fetches(delayed);
    }

    fn defer_fetches(&mut self, fetches: Vec<FetchId>) {
        if !fetches.is_empty() {
            self.deferred.extend(fetches);
            self.untried_offers = self.deferred.len();
        }
    }

    /// Whether offers wait for room in the budget, or for the next pass to look at them.
    #[inline(always)]
    pub(crate) fn has_deferred_fetches(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Begins to fetch unmatched offers for which the budget has room. Tries up to
    /// [`DEFERRED_STEP_MAX_FETCHES`] offers. If the budget has no room for an offer, the offer goes
    /// to the end of the list.
    pub(crate) fn begin_deferred_fetches(&mut self) {
        if self.budget.released_bytes() != self.tried_at_released_bytes {
            self.tried_at_released_bytes = self.budget.released_bytes();
            self.untried_offers = self.deferred.len();
        }
        for _ in 0..self.deferred.len().min(DEFERRED_STEP_MAX_FETCHES) {
            if self.has_spent_drops() {
                self.untried_offers = self.deferred.len();
                return;
            }
            let Some(id) = self.deferred.pop_front() else { return };
            self.untried_offers = self.untried_offers.saturating_sub(1);
            if let Some(Reassembly {
                owner: Arriving { destination: PayloadDestination::Unexpected(unexpected), .. },
                ..
            }) = self.fetches.reassembly_mut(id).copied()
                && !self.try_reserve_payload_memory(unexpected)
            {
                self.deferred.push_back(id);
                continue;
            }
            self.fetches.begin_fetch(id);
        }
    }

    /// Whether a deferred offer may have room now: the budget has released memory since the offer
    /// was last tried.
    pub(super) fn can_fetch_deferred(&self) -> bool {
        let has_released = self.budget.released_bytes() != self.tried_at_released_bytes;
        !self.deferred.is_empty() && (has_released || self.untried_offers > 0)
    }

    /// Changes the destination of an offered message, and begins to fetch the message if the fetch
    /// has not begun.
    pub(super) fn redirect_and_begin_fetch(&mut self, id: FetchId, destination: PayloadDestination) {
        if let Some(filling) = self.fetches.reassembly_mut(id) {
            filling.owner.destination = destination;
            self.fetches.mark_needed(id);
            self.fetches.begin_fetch(id);
        }
    }

    /// If the payload of a discarded message was requested, makes the message hold its credit until
    /// the payload arrives. Returns whether the payload was requested.
    pub(super) fn hold_credit_if_payload_requested(&mut self, id: FetchId, cost_bytes: u64) -> bool {
        let Some(filling) = self.fetches.cleared_reassembly(id) else { return false };
        filling.owner.held_bytes = cost_bytes;
        true
    }

    /// Pulls one piece of every payload on links that `is_callers_link` selects. Stops after
    /// [`PULL_PASS_MAX_BYTES`]. `pull` copies bytes from the memory of a link's peer.
    pub(crate) fn pull_payloads(
        &mut self,
        is_callers_link: impl Fn(LinkId) -> bool,
        mut pull: impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull,
        effects: &mut impl ReceiverEffects,
    ) {
        let mut pulled_bytes = 0;
        for _ in 0..self.fetches.pulling_len() {
            if pulled_bytes >= PULL_PASS_MAX_BYTES || !self.fetches.bring_next_to_front(&is_callers_link) {
                return;
            }
            let mut memory =
                ReceiveMemories { receives: &mut self.receives, unexpected: &mut self.unexpected };
            let step = self.fetches.pull_next_piece(&mut memory, &mut pull);
            pulled_bytes += step.pulled_bytes();
            match step {
                FetchStep::Pulled(_) => {}
                FetchStep::Ended { fetch, .. } => {
                    effects.queue_header(fetch.link, Header::Done { op: fetch.op, fault: false });
                    self.finish_fetch(&fetch, effects);
                }
                FetchStep::Faulted(fetch) => {
                    self.return_fetch_credit(&fetch, effects);
                    effects.queue_header(fetch.link, Header::Done { op: fetch.op, fault: true });
                    if let Some((source, member)) = self.source_and_member_of(fetch.link) {
                        self.abandon_partial_message(
                            source,
                            &fetch.filling,
                            member,
                            &OperationError::Fault,
                            effects,
                        );
                    }
                }
                FetchStep::Asked { link, op, cannot_pull } => {
                    effects.queue_header(link, Header::Clear { op, cannot_pull });
                }
            }
        }
    }

    /// Returns the links from whose peers a payload is being pulled.
    pub(crate) fn pulling_links(&self) -> impl Iterator<Item = LinkId> {
        self.fetches.pulling_links()
    }

    /// Whether a payload is being pulled.
    #[inline(always)]
    pub(crate) fn is_pulling(&self) -> bool {
        self.fetches.pulling_len() > 0
    }

    /// Begins to read the payload of an offered message. Returns false, and changes nothing, if
    /// this side has not requested a payload with this number and length.
    pub(crate) fn begin_data_if_requested(&mut self, id: LinkId, op: u64, len_bytes: u64) -> bool {
        match (self.fetches.cleared_fetch(id, op, len_bytes), self.links.get_mut(id)) {
            (Some(fetch), Some(link)) => {
                link.reading = Some(IncomingMessage::Requested(fetch));
                true
            }
            _ => false,
        }
    }

    /// Ends a fetch whose requested payload has arrived whole.
    pub(super) fn requested_data_arrived(&mut self, id: FetchId, effects: &mut impl ReceiverEffects) {
        if let Some(fetch) = self.fetches.remove(id) {
            if fetch.filling.owner.message.awaits.wants_answer() {
                effects.queue_header(fetch.link, Header::Done { op: fetch.op, fault: false });
            }
            self.finish_fetch(&fetch, effects);
        }
    }

    /// Ends a fetch whose message is whole and in its destination.
    fn finish_fetch(&mut self, fetch: &Fetch<Arriving>, effects: &mut impl ReceiverEffects) {
        self.return_fetch_credit(fetch, effects);
        if let Some((source, member)) = self.source_and_member_of(fetch.link) {
            self.finish_message(source, &fetch.filling, member, effects);
        }
    }

    /// Returns the peer that sends on a link, and the member that receives on it.
    pub(super) fn source_and_member_of(&self, id: LinkId) -> Option<(PeerId, MemberId)> {
        self.links.get(id).map(|link| (link.peer, link.member))
    }

    /// Gives the peer back the credit that a discarded message has held.
    fn return_fetch_credit(&mut self, fetch: &Fetch<Arriving>, effects: &mut impl ReceiverEffects) {
        let held_bytes = fetch.filling.owner.held_bytes;
        if held_bytes > 0
            && let Some(link) = self.links.get_mut(fetch.link)
        {
            link.grant.return_held(held_bytes, &mut self.budget);
            self.renew_credit_if_due(fetch.link, effects);
        }
    }
}

/// The destinations of fetched messages.
struct ReceiveMemories<'a> {
    receives: &'a mut SlotMap<ReceiveId, Receive>,
    unexpected: &'a mut SlotMap<UnexpectedId, TryBox<Unexpected>>,
}

impl FetchMemory<Arriving> for ReceiveMemories<'_> {
    fn wanted_bytes(&mut self, filling: &Reassembly<Arriving>) -> u64 {
        match filling.owner.destination {
            PayloadDestination::Posted(receive) => {
                let room_bytes =
                    self.receives.get(receive).map_or(0, |receive| receive.destination.len_bytes());
                filling.len_bytes.min(room_bytes as u64)
            }
            PayloadDestination::Unexpected(_) => filling.len_bytes,
            PayloadDestination::Nowhere => 0,
        }
    }

    fn pull(
        &mut self,
        filling: &Reassembly<Arriving>,
        step_bytes: usize,
        copy: impl FnOnce(&mut [IoSliceMut<'_>]) -> Pull,
    ) -> Pull {
        match filling.owner.destination {
            PayloadDestination::Posted(receive) => {
                self.receives.get_mut(receive).map_or(Pull::Gone, |receive| {
                    copy(
                        &mut receive
                            .destination
                            .slices_mut(clamp_to_usize(filling.arrived_bytes), step_bytes),
                    )
                })
            }
            PayloadDestination::Unexpected(unexpected) => {
                self.unexpected.get_mut(unexpected).map_or(Pull::Gone, |unexpected| {
                    let before_bytes = unexpected.bytes.len();
                    // The capacity was reserved before the fetch began.
                    unexpected.bytes.resize(before_bytes + step_bytes, 0);
                    let pulled = copy(&mut [IoSliceMut::new(&mut unexpected.bytes[before_bytes..])]);
                    if pulled != Pull::Done {
                        unexpected.bytes.truncate(before_bytes);
                    }
                    pulled
                })
            }
            PayloadDestination::Nowhere => Pull::Gone,
        }
    }

    fn discard_pulled(&mut self, arriving: &Arriving) {
        if let PayloadDestination::Unexpected(unexpected) = arriving.destination
            && let Some(unexpected) = self.unexpected.get_mut(unexpected)
        {
            unexpected.bytes.clear();
        }
    }
}
