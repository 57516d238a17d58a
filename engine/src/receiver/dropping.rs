//! Makes room in the budget: drops messages that unproven peers have left behind.
//!
//! The receiver drops no more messages than needed. Before it drops messages for credit or a
//! payload, it checks that the drops can make enough room.

use tracing::{debug, warn};

use super::Receiver;
use super::leftovers::UnprovenMessages;
use super::unexpected::Unexpected;
use crate::address::Address;
use crate::limits::{HOST_RESERVE_BYTES, STEP_MAX_DROPS};
use crate::operation::UnexpectedId;
use crate::source_host::SourceHost;
use crate::transport::{AddressProof, LinkId};

impl Receiver {
    /// Makes room for a new link to the peer at this address. `proof` says how far the address is
    /// proven. Returns whether the link may come up.
    ///
    /// A link is refused in three cases:
    ///
    /// - Peers that are proven by credentials have left more behind than the budget has room for.
    /// - This side has accepted the link over TCP, and the peer's host has left more behind than the
    ///   host's share.
    /// - This side has accepted the link over TCP, the budget is overdrawn, and the peer's host has
    ///   left more behind than [`HOST_RESERVE_BYTES`].
    ///
    /// In the last two cases, messages that may be dropped do not count. So no host keeps out the
    /// peers of a host that has left little behind, or peers that this side connects to. Offers of
    /// ended links do not count in any case: later passes drop them.
    pub(crate) fn try_admit_link(&mut self, address: Address, proof: AddressProof) -> bool {
        if self.budget.is_overdrawn_without_hosts(self.abandoned_bytes(|host| host.is_none())) {
            return false;
        }
        if proof == AddressProof::Confirmed || proof.is_claim() {
            let host = SourceHost::of(address);
            let left_bytes = self.budget.shares().kept_left_behind_bytes(host);
            let kept_bytes = left_bytes.saturating_sub(self.abandoned_bytes(|other| other == Some(host)));
            let is_overdrawn = self.budget.is_overdrawn_after_drops(self.abandoned_bytes(|_| true));
            if kept_bytes > self.budget.shares().share_bytes()
                || is_overdrawn && kept_bytes > HOST_RESERVE_BYTES
            {
                return false;
            }
            self.drop_excess(Some(host));
        }
        self.drop_excess(None);
        true
    }

    /// Drops up to [`STEP_MAX_DROPS`] messages while a host has left more behind than its share, or
    /// the budget is overdrawn.
    fn drop_excess(&mut self, host: Option<SourceHost>) {
        while !self.has_spent_drops() {
            let of_host = host.filter(|host| self.budget.shares().has_excess_left_behind(*host));
            if (of_host.is_none() && !self.budget.is_overdrawn()) || !self.drop_next(of_host) {
                return;
            }
        }
    }

    /// Records that a link to the peer at this address is up. `proof` says how far the address is
    /// proven.
    pub(crate) fn link_up(&mut self, id: LinkId, address: Address, proof: AddressProof) {
        let Some(link) = self.links.get_mut(id) else { return };
        if proof != AddressProof::Credentials {
            link.grant.charge_to(SourceHost::of(address), &mut self.budget);
        }
        if proof.is_claim() {
            link.unproven_messages = Some(Box::default());
        }
    }

    /// Records that the peer of a link is proven. So its messages are not dropped.
    pub(crate) fn peer_proven(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id) {
            link.unproven_messages = None;
        }
    }

    /// Whether the present step may drop no further messages.
    pub(super) fn has_spent_drops(&self) -> bool {
        self.dropped_in_step >= STEP_MAX_DROPS
    }

    /// Drops messages until a host has this much room, but at most [`STEP_MAX_DROPS`] in one step. Returns
    /// whether there is room now. The caller must not be iterating over the unexpected messages.
    pub(super) fn try_make_room(&mut self, bytes: u64, host: Option<SourceHost>) -> bool {
        if !self.budget.can_reclaim(bytes, host) {
            return false;
        }
        while !self.has_spent_drops() {
            let of_host = host.filter(|host| self.budget.shares().free_bytes(*host) < bytes);
            if (of_host.is_none() && self.budget.free_bytes() >= bytes) || !self.drop_next(of_host) {
                break;
            }
        }
        self.budget.has_room(bytes, host)
    }

    /// Allows the messages of an ended link to be dropped, except messages that peeks have claimed.
    /// Drops some at once if the budget or the host's share is exceeded.
    pub(super) fn allow_drops(
        &mut self,
        creation_number: u64,
        host: Option<SourceHost>,
        messages: UnprovenMessages,
    ) {
        self.leftovers.allow_drops(creation_number, messages.into_ids(), &mut self.budget);
        self.drop_excess(host);
    }

    /// Drops the message that comes first in the order of drops, among all hosts or one. Returns
    /// whether there was one.
    fn drop_next(&mut self, host: Option<SourceHost>) -> bool {
        while let Some(id) = self.leftovers.take_next_droppable(host) {
            let unclaimed = self.unexpected.get(id).filter(|unexpected| unexpected.claim.is_none());
            if unclaimed.is_some()
                && let Some(unexpected) = self.unexpected.remove(id)
            {
                self.forget_dropped(id, &unexpected);
                return true;
            }
        }
        false
    }

    fn forget_dropped(&mut self, id: UnexpectedId, unexpected: &Unexpected) {
        let (origin, used_bytes) = (unexpected.origin, unexpected.used_bytes());
        match unexpected.place {
            Some(place) => {
                self.matching_of(&unexpected.message).remove_unexpected(place, id);
            }
            None => self.forget_kept_aside(origin.member),
        }
        self.leftovers.forbid_drop(origin.creation_number, used_bytes, &mut self.budget);
        self.leftovers.release(origin.creation_number, used_bytes, &mut self.budget);
        self.dropped_messages += 1;
        self.dropped_in_step += 1;
        self.needs_drop_step = true;
        let (source, dropped) = (unexpected.source, self.dropped_messages);
        // Peers decide how many messages are dropped, so the log must not grow with this number.
        if dropped.is_power_of_two() {
            warn!(
                ?source,
                dropped,
                "dropped an unexpected message of a peer that has left and whose address was not proven, to \
                 make room for others; dropped is the number of all"
            );
        } else {
            debug!(?source, dropped, "dropped an unexpected message of an unproven peer");
        }
    }
}
