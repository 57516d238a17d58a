//! Spends and grants credit as messages come and go.

use std::mem;

use super::credit::{NOT_COVERED, Renewal};
use super::links::MessageOrigin;
use super::{ProtocolViolation, Receiver, ReceiverEffects};
use crate::limits::STEP_MAX_RETRIES;
use crate::transport::LinkId;

/// The credit that a write with remote data holds while its completion waits for room in the queue.
#[derive(Debug)]
pub(crate) struct HeldCredit {
    origin: MessageOrigin,
    cost_bytes: u64,
}

impl Receiver {
    /// Spends credit on a frame of this cost that begins to arrive on a link.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer has no credit for it.
    pub(crate) fn spend_credit(&mut self, id: LinkId, cost_bytes: u64) -> Result<(), ProtocolViolation> {
        let is_covered = self.links.get_mut(id).is_none_or(|link| link.grant.try_spend(cost_bytes));
        if is_covered { Ok(()) } else { Err(NOT_COVERED) }
    }

    /// Returns credit that is not held, so that the peer may spend as much again.
    #[inline(always)]
    pub(crate) fn return_credit(&mut self, id: LinkId, cost_bytes: u64, effects: &mut impl ReceiverEffects) {
        if let Some(link) = self.links.get_mut(id) {
            link.grant.return_unheld(cost_bytes, &mut self.budget);
            if link.grant.is_renewal_due() {
                self.renew_credit_if_due(id, effects);
            }
        }
    }

    /// Holds the credit of a frame until [`return_held_credit`](Self::return_held_credit). Returns
    /// `None` if the link has ended.
    pub(crate) fn hold_credit(&mut self, id: LinkId, cost_bytes: u64) -> Option<HeldCredit> {
        let link = self.links.get_mut(id)?;
        link.grant.hold(cost_bytes);
        Some(HeldCredit { origin: link.message_origin(id), cost_bytes })
    }

    /// Returns held credit.
    #[expect(clippy::needless_pass_by_value, reason = "credit is returned once")]
    pub(crate) fn return_held_credit(&mut self, held: HeldCredit, effects: &mut impl ReceiverEffects) {
        self.return_credit_to_origin(held.origin, held.cost_bytes, effects);
    }

    /// Returns the held credit of a message to the peer that sent it.
    pub(super) fn return_credit_to_origin(
        &mut self,
        origin: MessageOrigin,
        cost_bytes: u64,
        effects: &mut impl ReceiverEffects,
    ) {
        match self.links.link_of_origin(origin) {
            Some(link) => {
                link.grant.return_held(cost_bytes, &mut self.budget);
                self.renew_credit_if_due(origin.link, effects);
            }
            None => self.leftovers.release(origin.creation_number, cost_bytes, &mut self.budget),
        }
    }

    /// Returns how much credit a link's peer was granted since the link came up.
    pub(crate) fn granted_bytes(&self, id: LinkId) -> u64 {
        self.links.get(id).map_or(0, |link| link.grant.granted_bytes)
    }

    /// Records that the link has taken the last grant of credit.
    pub(crate) fn credit_sent(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id) {
            link.is_grant_queued = false;
        }
    }

    /// Gives a link's peer more credit, if more is due and the budget has room.
    #[cold]
    pub(super) fn renew_credit_if_due(&mut self, id: LinkId, effects: &mut impl ReceiverEffects) {
        let Some(link) = self.links.get_mut(id) else { return };
        // The peer gets no new grant before the link has taken the last one. So a peer that does
        // not read cannot make its pending headers grow without bound.
        if link.is_grant_queued || !link.grant.is_renewal_due() {
            return;
        }
        if link.grant.try_renew(&mut self.budget) == Renewal::Granted {
            link.is_grant_queued = true;
            effects.queue_credit_grant(id);
        } else {
            self.starved.insert(id);
        }
    }

    /// Drops messages to make room for the credit of a starved link, if the link needs room. The caller
    /// must not be iterating over the unexpected messages.
    fn make_room_for_starved(&mut self, id: LinkId) {
        if let Some(link) = self.links.get(id).filter(|link| !link.is_grant_queued) {
            let (needed_bytes, host) = (link.grant.needed_room_bytes(&self.budget), link.grant.host());
            if needed_bytes > 0 {
                self.try_make_room(needed_bytes, host);
            }
        }
    }

    /// Whether links wait for credit that other links return.
    #[inline(always)]
    pub(crate) fn has_starved_links(&self) -> bool {
        !self.starved.is_empty() || !self.retrying.is_empty()
    }

    /// Gives credit to starved links once the budget has room, to at most [`STEP_MAX_RETRIES`]
    /// links in each call. The peers of starved links may be unable to send, so no other event
    /// would give them credit.
    pub(crate) fn grant_credit_to_starved_links(&mut self, effects: &mut impl ReceiverEffects) {
        if self.retrying.is_empty() && self.budget.can_grant_starved() {
            self.budget.forget_starved();
            self.retrying = mem::take(&mut self.starved);
        }
        for _ in 0..STEP_MAX_RETRIES {
            if self.has_spent_drops() {
                return;
            }
            let Some(link) = self.retrying.pop_first() else { return };
            self.make_room_for_starved(link);
            self.renew_credit_if_due(link, effects);
        }
    }
}
