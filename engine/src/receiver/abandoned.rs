//! Offers that no receive has matched when their link ends.
//!
//! A peer chooses how many messages it offers. So the end of a link drops only some of them, and each later
//! pass drops more. A search that finds one of the others drops it and goes on. See
//! `docs/decisions/ends-of-links.md`.

use std::collections::BTreeMap;

use super::leftovers::UnprovenMessages;
use super::links::Arriving;
use super::{PayloadDestination, Receiver, ReceiverEffects};
use crate::error::OperationError;
use crate::fetches::AbandonedOffers;
use crate::limits::{MESSAGE_COST_BYTES, STEP_MAX_DROPS};
use crate::matching::Criteria;
use crate::operation::UnexpectedId;
use crate::source_host::SourceHost;

/// The ended links whose unmatched offers are not all dropped yet, by their creation numbers.
pub(super) type AbandonedLinks = BTreeMap<u64, AbandonedLink>;

/// A link that has ended.
#[derive(Debug)]
pub(super) struct AbandonedLink {
    pub(super) offers: AbandonedOffers,
    pub(super) creation_number: u64,
    pub(super) host: Option<SourceHost>,
    /// Why the link has ended.
    pub(super) error: OperationError,
    pub(super) unproven_messages: Option<Box<UnprovenMessages>>,
}

impl Receiver {
    /// Takes over what a link has left behind. Drops unmatched offers at once, as far as the limit of the
    /// step allows.
    pub(super) fn end_abandoned_link(&mut self, link: AbandonedLink, effects: &mut impl ReceiverEffects) {
        if self.fetches.has_unneeded(&link.offers) {
            self.abandoned.insert(link.creation_number, link);
            self.needs_drop_step = true;
            self.drop_abandoned_until(STEP_MAX_DROPS, effects);
        } else {
            self.finish_abandoned_link(link);
        }
    }

    /// Ends a step: drops offers of links that have ended, as far as the limit of the step still allows. In
    /// the next step, [`STEP_MAX_DROPS`] offers may be dropped, and as many messages to make room.
    pub(crate) fn finish_drop_step(&mut self, effects: &mut impl ReceiverEffects) {
        self.drop_abandoned_until(STEP_MAX_DROPS, effects);
        (self.dropped_in_step, self.abandoned_in_step) = (0, 0);
        self.needs_drop_step = !self.abandoned.is_empty();
    }

    /// Drops all offers of links that have ended.
    pub(crate) fn drop_all_abandoned_offers(&mut self, effects: &mut impl ReceiverEffects) {
        self.drop_abandoned_until(usize::MAX, effects);
    }

    /// Whether a step has offers to drop, or must end so that more may be dropped.
    #[inline(always)]
    pub(crate) fn needs_drop_step(&self) -> bool {
        self.needs_drop_step
    }

    /// Returns how much of the budget ended links hold only until their offers are dropped: the offers, and
    /// of an unproven peer all that may be dropped after them. Counts the links for which `is_counted`
    /// returns true when it is called with their hosts.
    pub(super) fn abandoned_bytes(&self, is_counted: impl Fn(Option<SourceHost>) -> bool) -> u64 {
        let of_link = |link: &AbandonedLink| match link.unproven_messages {
            Some(_) => self.leftovers.unclaimed_bytes(link.creation_number),
            None => link.offers.unneeded_len() as u64 * MESSAGE_COST_BYTES,
        };
        self.abandoned.values().filter(|link| is_counted(link.host)).map(of_link).sum()
    }

    /// Whether offers of links that have ended are not dropped yet.
    pub(crate) fn has_offers_to_drop(&self) -> bool {
        !self.abandoned.is_empty()
    }

    fn drop_abandoned_until(&mut self, step_max_drops: usize, effects: &mut impl ReceiverEffects) {
        while self.abandoned_in_step < step_max_drops
            && let Some((&number, link)) = self.abandoned.iter_mut().next()
        {
            if let Some(fetch) = self.fetches.remove_next_unneeded(&mut link.offers) {
                self.abandoned_in_step += 1;
                // The link stays listed: the drop may start a search that finds another offer of the link.
                let error = link.error.clone();
                let Arriving { message, destination, .. } = fetch.filling.owner;
                if let PayloadDestination::Unexpected(id) = destination {
                    self.drop_incomplete(id, &message, &error, effects);
                }
            }
            if self.abandoned.get(&number).is_some_and(|link| !self.fetches.has_unneeded(&link.offers))
                && let Some(link) = self.abandoned.remove(&number)
            {
                self.finish_abandoned_link(link);
            }
        }
    }

    fn finish_abandoned_link(&mut self, link: AbandonedLink) {
        if let Some(messages) = link.unproven_messages {
            self.allow_drops(link.creation_number, link.host, *messages);
        }
    }

    /// Drops an unexpected message if it was offered on a link that has ended. Returns whether it has
    /// dropped the message.
    pub(super) fn drop_if_abandoned(&mut self, id: UnexpectedId, effects: &mut impl ReceiverEffects) -> bool {
        let Some(unexpected) = self.unexpected.get(id) else { return false };
        let (message, origin) = (unexpected.message, unexpected.origin);
        let Some(fetch) = unexpected.fetch else { return false };
        let Some(link) = self.abandoned.get_mut(&origin.creation_number) else { return false };
        let error = link.error.clone();
        self.fetches.remove_unneeded(fetch, &mut link.offers);
        self.drop_incomplete(id, &message, &error, effects);
        true
    }

    /// Drops a message that a search has taken, and those that further searches take, until one was not
    /// abandoned. Returns this one.
    #[cold]
    pub(super) fn skip_abandoned(
        &mut self,
        mut found: Option<UnexpectedId>,
        tagged: bool,
        criteria: &Criteria,
        effects: &mut impl ReceiverEffects,
    ) -> Option<UnexpectedId> {
        while let Some(id) = found
            && self.drop_if_abandoned(id, effects)
        {
            let matching = if tagged { &mut self.tagged } else { &mut self.untagged };
            found = matching.take_unexpected(criteria);
        }
        found
    }
}
