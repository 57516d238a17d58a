//! The receiving side of a rendezvous: this side pulls payload from the sender's memory, or asks the sender
//! to send the payload.
//!
//! ```text
//!  offered --> Waiting (its owner has no use or no room for it yet)
//!     |           |
//!     +--> Pulling --> all there: ended
//!             |
//!             +--> cannot be pulled: its sender is asked --> Cleared --Data--> all there: ended
//!             |
//!             +--> Fault: ended by a fault
//!             |
//!             +--> Gone: left to the end of the link
//! ```
//!
//! The owner of the table knows what a payload is, where the payload goes, and what to answer. There are two
//! owners, each with its own table. The receiver fetches messages. The target fetches the data that peers
//! write to regions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSliceMut;
use std::mem;

use slotmap::SlotMap;

use crate::limits::PULL_STEP_MAX_BYTES;
use crate::link_fault::{NoMemory, Room, TryBox};
use crate::operation::FetchId;
use crate::reassembly::{Reassembly, clamp_to_usize};
use crate::transport::{LinkId, Pull, RemotePayload};

/// The payloads that peers have offered. `O` names what a payload belongs to: a message or a write.
#[derive(Debug)]
pub(crate) struct Fetches<O> {
    // Boxed, to keep unused slots small: a slot map never shrinks, and may once have held very many fetches.
    by_id: SlotMap<FetchId, TryBox<Fetch<O>>>,
    /// The fetches whose payload the owner needs.
    needed: BTreeMap<OfferKey, FetchId>,
    /// The other fetches: the owner keeps their offers, and may fetch their payload early.
    unneeded: BTreeMap<OfferKey, FetchId>,
    /// The offers of the links, by the links' numbers.
    of_links: Vec<OffersOfLink>,
    /// The fetches that this side pulls, in turn. Some fetches in the queue may have ended.
    pulling: VecDeque<FetchId>,
    /// Links on which a pull was refused. On these links, this side asks the sender to send instead.
    unpullable: BTreeSet<LinkId>,
    /// See [`PULL_STEP_MAX_BYTES`].
    step_max_bytes: usize,
}

/// A payload that its sender has offered.
#[derive(Debug)]
pub(crate) struct Fetch<O> {
    pub(crate) link: LinkId,
    /// The sender's number of the offer.
    pub(crate) op: u64,
    pub(crate) filling: Reassembly<O>,
    stage: FetchStage,
    of_link: OfferedLink,
    is_needed: bool,
}

/// Memory for one more offer.
#[derive(Debug)]
pub(crate) struct OfferRoom<O>(Room<Fetch<O>>);

/// The offers of the links that have had one number.
#[derive(Debug, Clone, Copy, Default)]
struct OffersOfLink {
    /// How many links with this number have ended. The number may wrap: an ended link keeps offers only for
    /// a few passes.
    generation: u32,
    /// How many offers of the present link are not needed.
    unneeded_offers: usize,
    /// Counts the changes to the offers of all these links. A change is a new offer, a pull of bytes, or the
    /// end of an offer.
    changes: u64,
}

/// A link on which offers have arrived. A later link with the same number has another `generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OfferedLink {
    link: LinkId,
    generation: u32,
}

/// The link of an offer, and the sender's number of the offer.
type OfferKey = (OfferedLink, u64);

/// The offers of a link that has ended.
#[derive(Debug)]
pub(crate) struct AbandonedOffers {
    of_link: OfferedLink,
    /// How many of the offers that were not needed are left, at most.
    unneeded_offers: usize,
}

impl AbandonedOffers {
    /// Returns how many of the offers that were not needed are left, at most: some may be needed by now.
    pub(crate) fn unneeded_len(&self) -> usize {
        self.unneeded_offers
    }
}

#[derive(Debug)]
enum FetchStage {
    /// The owner does not need the payload yet, or has no room for it.
    Waiting(RemotePayload),
    /// This side pulls the payload step by step.
    Pulling(RemotePayload),
    /// This side has asked the sender for the payload.
    Cleared,
    /// The sender is gone, and the link is about to end.
    Gone,
}

/// The memory that fetched payload goes to.
pub(crate) trait FetchMemory<O> {
    /// Returns how many bytes of the payload the memory takes.
    fn wanted_bytes(&mut self, filling: &Reassembly<O>) -> u64;

    /// Makes `copy` put the next `step_bytes` into the memory.
    fn pull(
        &mut self,
        filling: &Reassembly<O>,
        step_bytes: usize,
        copy: impl FnOnce(&mut [IoSliceMut<'_>]) -> Pull,
    ) -> Pull;

    /// Discards the pulled bytes, because the sender will send the payload from its beginning.
    fn discard_pulled(&mut self, owner: &O);
}

/// The result of a pull step.
#[derive(Debug)]
pub(crate) enum FetchStep<O> {
    /// The step pulled this many bytes, and the rest may follow.
    Pulled(usize),
    /// The step pulled the last `pulled_bytes`, or the memory takes no more bytes.
    Ended { fetch: TryBox<Fetch<O>>, pulled_bytes: usize },
    /// The sender's memory could not be read.
    Faulted(TryBox<Fetch<O>>),
    /// The caller must ask the sender to send the payload.
    Asked { link: LinkId, op: u64, cannot_pull: bool },
}

impl<O> Default for Fetches<O> {
    fn default() -> Self {
        Fetches {
            by_id: SlotMap::with_key(),
            needed: BTreeMap::new(),
            unneeded: BTreeMap::new(),
            of_links: Vec::new(),
            pulling: VecDeque::new(),
            unpullable: BTreeSet::new(),
            step_max_bytes: PULL_STEP_MAX_BYTES,
        }
    }
}

impl<O> Fetches<O> {
    #[cfg(test)]
    pub(crate) fn set_step_max_bytes(&mut self, step_max_bytes: usize) {
        self.step_max_bytes = step_max_bytes;
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether an offer with this number by a link's peer has not ended yet.
    pub(crate) fn has_offer(&self, link: LinkId, op: u64) -> bool {
        self.find_offer(link, op).is_some()
    }

    fn find_offer(&self, link: LinkId, op: u64) -> Option<FetchId> {
        let key = (self.offered_link(link), op);
        self.needed.get(&key).or_else(|| self.unneeded.get(&key)).copied()
    }

    /// Returns the present link with this number.
    fn offered_link(&self, link: LinkId) -> OfferedLink {
        let generation = self.of_links.get(link.0 as usize).map_or(0, |of| of.generation);
        OfferedLink { link, generation }
    }

    fn of_link_mut(&mut self, link: LinkId) -> &mut OffersOfLink {
        let place = link.0 as usize;
        if self.of_links.len() <= place {
            self.of_links.resize(place + 1, OffersOfLink::default());
        }
        &mut self.of_links[place]
    }

    fn is_abandoned(&self, fetch: &Fetch<O>) -> bool {
        fetch.of_link != self.offered_link(fetch.link)
    }

    /// Whether payload of a link's peer may be pulled: no pull on the link was refused.
    pub(crate) fn may_pull_from(&self, link: LinkId) -> bool {
        !self.unpullable.contains(&link)
    }

    /// Whether there are offers whose payload the owner does not need yet.
    pub(crate) fn has_any_unneeded(&self) -> bool {
        !self.unneeded.is_empty()
    }

    /// Whether a fetch has not ended.
    pub(crate) fn contains(&self, id: FetchId) -> bool {
        self.by_id.contains_key(id)
    }

    /// Returns the reassembly of a fetch that has not ended.
    pub(crate) fn reassembly_mut(&mut self, id: FetchId) -> Option<&mut Reassembly<O>> {
        self.by_id.get_mut(id).map(|fetch| &mut fetch.filling)
    }

    /// Returns the reassemblies of all fetches, with their links.
    pub(crate) fn fillings_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Reassembly<O>)> {
        self.by_id.values_mut().map(|fetch| (fetch.link, &mut fetch.filling))
    }

    /// Returns where the payload of a fetch goes, if this side has asked the sender to send that payload.
    pub(crate) fn cleared_reassembly(&mut self, id: FetchId) -> Option<&mut Reassembly<O>> {
        let fetch = self.by_id.get_mut(id)?;
        matches!(fetch.stage, FetchStage::Cleared).then_some(&mut fetch.filling)
    }

    /// Makes room for one more offer of a link's peer.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]
    pub(crate) fn try_reserve_offer(&mut self, link: LinkId) -> Result<OfferRoom<O>, NoMemory> {
        self.by_id.try_reserve(1)?;
        self.pulling.try_reserve(1)?;
        let missing = (link.0 as usize + 1).saturating_sub(self.of_links.len());
        self.of_links.try_reserve(missing)?;
        Ok(OfferRoom(Room::try_new()?))
    }

    /// Adds an offer. The offer waits until [`begin_fetch`](Self::begin_fetch). `is_needed` says whether
    /// the owner needs the payload.
    pub(crate) fn add_offer(
        &mut self,
        OfferRoom(room): OfferRoom<O>,
        (link, op): (LinkId, u64),
        filling: Reassembly<O>,
        remote: RemotePayload,
        is_needed: bool,
    ) -> FetchId {
        let (of_link, stage) = (self.offered_link(link), FetchStage::Waiting(remote));
        let id = self.by_id.insert(room.fill(Fetch { link, op, filling, stage, of_link, is_needed }));
        self.offers_mut(is_needed).insert((of_link, op), id);
        let of = self.of_link_mut(link);
        of.unneeded_offers += usize::from(!is_needed);
        of.changes = of.changes.wrapping_add(1);
        id
    }

    fn offers_mut(&mut self, are_needed: bool) -> &mut BTreeMap<OfferKey, FetchId> {
        if are_needed { &mut self.needed } else { &mut self.unneeded }
    }

    /// Records that the owner needs the payload of an offer from now on.
    pub(crate) fn mark_needed(&mut self, id: FetchId) {
        if let Some(fetch) = self.by_id.get_mut(id).filter(|fetch| !fetch.is_needed) {
            fetch.is_needed = true;
            let (of_link, key) = (fetch.of_link, (fetch.of_link, fetch.op));
            self.unneeded.remove(&key);
            self.needed.insert(key, id);
            if of_link == self.offered_link(of_link.link) {
                self.of_link_mut(of_link.link).unneeded_offers -= 1;
            }
        }
    }

    /// Begins to pull the payload of an offer that waits.
    pub(crate) fn begin_fetch(&mut self, id: FetchId) {
        if let Some(fetch) = self.by_id.get_mut(id)
            && let FetchStage::Waiting(remote) = &mut fetch.stage
        {
            fetch.stage = FetchStage::Pulling(mem::take(remote));
            self.pulling.push_back(id);
        }
    }

    /// Returns how many fetches this side pulls: the number of pull steps that advance each fetch once.
    #[inline(always)]
    pub(crate) fn pulling_len(&self) -> usize {
        self.pulling.len()
    }

    /// Returns the links of the fetches that this side pulls.
    pub(crate) fn pulling_links(&self) -> impl Iterator<Item = LinkId> {
        let pulled = self.pulling.iter().filter_map(|id| self.by_id.get(*id));
        pulled.filter(|fetch| !self.is_abandoned(fetch)).map(|fetch| fetch.link)
    }

    /// Moves the next fetch that has ended, or whose link has ended or `matches`, to the front. Returns
    /// whether there is such a fetch.
    pub(crate) fn bring_next_to_front(&mut self, matches: impl Fn(LinkId) -> bool) -> bool {
        let is_next = |id: &FetchId| {
            self.by_id.get(*id).is_none_or(|fetch| self.is_abandoned(fetch) || matches(fetch.link))
        };
        let Some(at) = self.pulling.iter().position(is_next) else { return false };
        self.pulling.rotate_left(at);
        true
    }

    /// Pulls one step of the fetch at the front. `pull` copies from memory that a link's peer has
    /// exposed.
    pub(crate) fn pull_next_piece(
        &mut self,
        memory: &mut impl FetchMemory<O>,
        pull: &mut impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull,
    ) -> FetchStep<O> {
        let Some(id) = self.pulling.pop_front() else { return FetchStep::Pulled(0) };
        if self.by_id.get(id).is_none_or(|fetch| self.is_abandoned(fetch)) {
            return FetchStep::Pulled(0);
        }
        let Some(fetch) = self.by_id.get_mut(id) else { return FetchStep::Pulled(0) };
        let FetchStage::Pulling(remote) = &fetch.stage else { return FetchStep::Pulled(0) };
        let link = fetch.link;
        let arrived_bytes = fetch.filling.arrived_bytes;
        let wanted_bytes = memory.wanted_bytes(&fetch.filling);
        if arrived_bytes >= wanted_bytes {
            return self.end_fetch(id, 0);
        }
        if remote.as_bytes().is_empty() {
            return self.fall_back_to_request(id, false, memory);
        }
        if self.unpullable.contains(&link) {
            return self.fall_back_to_request(id, true, memory);
        }
        let step_bytes = clamp_to_usize(wanted_bytes - arrived_bytes).min(self.step_max_bytes);
        let copy = |space: &mut [IoSliceMut<'_>]| pull(link, remote, arrived_bytes, space);
        match memory.pull(&fetch.filling, step_bytes, copy) {
            Pull::Done => {
                fetch.filling.arrived_bytes += step_bytes as u64;
                let is_whole = fetch.filling.arrived_bytes >= wanted_bytes;
                self.add_changes(link, step_bytes as u64);
                if !is_whole {
                    self.pulling.push_back(id);
                    return FetchStep::Pulled(step_bytes);
                }
                self.end_fetch(id, step_bytes)
            }
            Pull::Refused => {
                self.unpullable.insert(link);
                self.fall_back_to_request(id, true, memory)
            }
            Pull::Declined => self.fall_back_to_request(id, false, memory),
            Pull::Fault => self.remove(id).map_or(FetchStep::Pulled(0), FetchStep::Faulted),
            Pull::Gone => {
                fetch.stage = FetchStage::Gone;
                FetchStep::Pulled(0)
            }
        }
    }

    fn end_fetch(&mut self, id: FetchId, pulled_bytes: usize) -> FetchStep<O> {
        match self.remove(id) {
            Some(fetch) => FetchStep::Ended { fetch, pulled_bytes },
            None => FetchStep::Pulled(pulled_bytes),
        }
    }

    /// Asks the sender to send the whole payload, and discards the bytes that were pulled before.
    fn fall_back_to_request(
        &mut self,
        id: FetchId,
        cannot_pull: bool,
        memory: &mut impl FetchMemory<O>,
    ) -> FetchStep<O> {
        let Some(fetch) = self.by_id.get_mut(id) else { return FetchStep::Pulled(0) };
        fetch.stage = FetchStage::Cleared;
        fetch.filling.arrived_bytes = 0;
        memory.discard_pulled(&fetch.filling.owner);
        FetchStep::Asked { link: fetch.link, op: fetch.op, cannot_pull }
    }

    /// Returns the fetch whose payload the peer of this link now begins to send. Returns `None` if this side
    /// has not asked for the payload, or if the length differs from the offer.
    pub(crate) fn cleared_fetch(&self, link: LinkId, op: u64, len_bytes: u64) -> Option<FetchId> {
        let id = self.find_offer(link, op)?;
        let fetch = self.by_id.get(id)?;
        let is_asked_for = matches!(fetch.stage, FetchStage::Cleared) && fetch.filling.len_bytes == len_bytes;
        is_asked_for.then_some(id)
    }

    /// Ends a fetch, and returns it.
    pub(crate) fn remove(&mut self, id: FetchId) -> Option<TryBox<Fetch<O>>> {
        let fetch = self.by_id.remove(id)?;
        self.offers_mut(fetch.is_needed).remove(&(fetch.of_link, fetch.op));
        if !self.is_abandoned(&fetch) {
            let of = self.of_link_mut(fetch.link);
            of.unneeded_offers -= usize::from(!fetch.is_needed);
            of.changes = of.changes.wrapping_add(1);
        }
        Some(fetch)
    }

    /// Records that a link has ended. From now on nothing is fetched on it, and its offers are not those
    /// of a later link with this number. This costs the same however many offers there are. The caller
    /// removes them one by one.
    pub(crate) fn end_link(&mut self, link: LinkId) -> AbandonedOffers {
        let of_link = self.offered_link(link);
        self.unpullable.remove(&link);
        let of = self.of_link_mut(link);
        of.generation = of.generation.wrapping_add(1);
        AbandonedOffers { of_link, unneeded_offers: mem::take(&mut of.unneeded_offers) }
    }

    /// Removes and returns one needed fetch of a link that has ended: the one whose offer has the
    /// lowest number. The caller repeats the call until the result is `None`.
    pub(crate) fn remove_next_needed(&mut self, offers: &AbandonedOffers) -> Option<TryBox<Fetch<O>>> {
        let id = first_of_link(&self.needed, offers.of_link)?;
        self.remove(id)
    }

    /// As [`remove_next_needed`](Self::remove_next_needed), for a fetch that is not needed.
    pub(crate) fn remove_next_unneeded(&mut self, offers: &mut AbandonedOffers) -> Option<TryBox<Fetch<O>>> {
        let id = first_of_link(&self.unneeded, offers.of_link)?;
        self.remove_unneeded(id, offers)
    }

    /// Removes and returns a fetch of a link that has ended, if the fetch is not needed.
    pub(crate) fn remove_unneeded(
        &mut self,
        id: FetchId,
        offers: &mut AbandonedOffers,
    ) -> Option<TryBox<Fetch<O>>> {
        let fetch = self.remove(id)?;
        offers.unneeded_offers = offers.unneeded_offers.saturating_sub(1);
        Some(fetch)
    }

    /// Whether a link that has ended has left unneeded fetches behind.
    pub(crate) fn has_unneeded(&self, offers: &AbandonedOffers) -> bool {
        first_of_link(&self.unneeded, offers.of_link).is_some()
    }

    /// Returns a number that changes when the link's peer makes an offer, when an offer ends, and when bytes
    /// of an offer are pulled. The cost does not depend on the number of offers.
    pub(crate) fn count_of_changes(&self, link: LinkId) -> u64 {
        self.of_links.get(link.0 as usize).map_or(0, |of| of.changes)
    }

    /// Returns how many bytes have arrived of a payload.
    pub(crate) fn arrived_bytes(&self, id: FetchId) -> u64 {
        self.by_id.get(id).map_or(0, |fetch| fetch.filling.arrived_bytes)
    }

    fn add_changes(&mut self, link: LinkId, by: u64) {
        let of = self.of_link_mut(link);
        of.changes = of.changes.wrapping_add(by);
    }
}

/// Returns the offer of a link with the lowest number.
fn first_of_link(offers: &BTreeMap<OfferKey, FetchId>, of_link: OfferedLink) -> Option<FetchId> {
    offers.range((of_link, 0)..=(of_link, u64::MAX)).next().map(|(_, id)| *id)
}

impl<O> FetchStep<O> {
    /// Returns how many bytes the step has copied.
    pub(crate) fn pulled_bytes(&self) -> usize {
        match self {
            FetchStep::Pulled(pulled_bytes) | FetchStep::Ended { pulled_bytes, .. } => *pulled_bytes,
            FetchStep::Faulted(_) | FetchStep::Asked { .. } => 0,
        }
    }
}
