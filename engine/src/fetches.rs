//! The receiving side of a rendezvous: this side pulls payload from the sender's memory, or asks the sender
//! to send the payload.
//!
//! ```text
//!  offered --> Waiting (its owner has no use or no room for it yet)
//!     |           |
//!     +--> Pulling --> all there: ended
//!             |
//!             +--> cannot pull: its sender is asked --> Cleared --Data--> all there: ended
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
use crate::operation::FetchId;
use crate::reassembly::{Reassembly, clamp_to_usize};
use crate::transport::{LinkId, Pull, RemotePayload};

/// The payloads that peers have offered. `O` names what a payload belongs to: a message or a write.
#[derive(Debug)]
pub(crate) struct Fetches<O> {
    // Boxed, to keep unused slots small: a slot map never shrinks, and may once have held very many fetches.
    by_id: SlotMap<FetchId, Box<Fetch<O>>>,
    /// Fetches, by the link and the sender's number of the offer.
    by_offer: BTreeMap<(LinkId, u64), FetchId>,
    /// The fetches that this side pulls, in turn. Some fetches in the queue may have ended.
    pulling: VecDeque<FetchId>,
    /// Links on which a pull was refused. On these links, this side asks the sender to send instead.
    unpullable: BTreeSet<LinkId>,
    /// Counts the changes to the offers of each link, by the link's number. A change is a new offer, a pull
    /// of bytes, or the end of an offer.
    changes: Vec<u64>,
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
    Ended { fetch: Box<Fetch<O>>, pulled_bytes: usize },
    /// The sender's memory could not be read.
    Faulted(Box<Fetch<O>>),
    /// The caller must ask the sender to send the payload.
    Asked { link: LinkId, op: u64, cannot_pull: bool },
}

impl<O> Default for Fetches<O> {
    fn default() -> Self {
        Fetches {
            by_id: SlotMap::with_key(),
            by_offer: BTreeMap::new(),
            pulling: VecDeque::new(),
            unpullable: BTreeSet::new(),
            changes: Vec::new(),
            step_max_bytes: PULL_STEP_MAX_BYTES,
        }
    }
}

impl<O> Fetches<O> {
    #[cfg(test)]
    pub(crate) fn set_step_max_bytes(&mut self, step_max_bytes: usize) {
        self.step_max_bytes = step_max_bytes;
    }

    /// Returns the numbers of the offers of a link's peer.
    #[cfg(test)]
    pub(crate) fn offered_ops(&self, link: LinkId) -> Vec<u64> {
        self.by_offer.range((link, 0)..=(link, u64::MAX)).map(|((_, op), _)| *op).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether an offer with this number by a link's peer has not ended yet.
    pub(crate) fn has_offer(&self, link: LinkId, op: u64) -> bool {
        self.by_offer.contains_key(&(link, op))
    }

    /// Whether a fetch has not ended.
    pub(crate) fn contains(&self, id: FetchId) -> bool {
        self.by_id.contains_key(id)
    }

    /// Returns the reassembly of a fetch that has not ended.
    pub(crate) fn reassembly_mut(&mut self, id: FetchId) -> Option<&mut Reassembly<O>> {
        self.by_id.get_mut(id).map(|fetch| &mut fetch.filling)
    }
    /// Returns where the payload of a fetch goes, if this side has asked the sender to send that payload.
    pub(crate) fn cleared_reassembly(&mut self, id: FetchId) -> Option<&mut Reassembly<O>> {
        let fetch = self.by_id.get_mut(id)?;
        matches!(fetch.stage, FetchStage::Cleared).then_some(&mut fetch.filling)
    }

    /// Adds an offer. The offer waits until [`begin_fetch`](Self::begin_fetch).
    pub(crate) fn add_offer(
        &mut self,
        link: LinkId,
        op: u64,
        filling: Reassembly<O>,
        remote: RemotePayload,
    ) -> FetchId {
        let id = self.by_id.insert(Box::new(Fetch { link, op, filling, stage: FetchStage::Waiting(remote) }));
        self.by_offer.insert((link, op), id);
        self.add_to_change_count(link, 1);
        id
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
        self.pulling.iter().filter_map(|id| self.by_id.get(*id)).map(|fetch| fetch.link)
    }

    /// Moves the next fetch on a link that `matches` accepts, or the next ended fetch, to the front. Returns
    /// whether there is one.
    pub(crate) fn bring_next_to_front(&mut self, matches: impl Fn(LinkId) -> bool) -> bool {
        let is_next = |id: &FetchId| self.by_id.get(*id).is_none_or(|fetch| matches(fetch.link));
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
                self.add_to_change_count(link, step_bytes as u64);
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
        let id = *self.by_offer.get(&(link, op))?;
        let fetch = self.by_id.get(id)?;
        let is_asked_for = matches!(fetch.stage, FetchStage::Cleared) && fetch.filling.len_bytes == len_bytes;
        is_asked_for.then_some(id)
    }

    /// Ends a fetch, and returns it.
    pub(crate) fn remove(&mut self, id: FetchId) -> Option<Box<Fetch<O>>> {
        let fetch = self.by_id.remove(id)?;
        self.by_offer.remove(&(fetch.link, fetch.op));
        self.add_to_change_count(fetch.link, 1);
        Some(fetch)
    }

    /// Removes and returns the fetch with the lowest offer number of a link that has ended. The caller
    /// repeats this until the result is `None`.
    pub(crate) fn remove_next_of_link(&mut self, link: LinkId) -> Option<Box<Fetch<O>>> {
        self.unpullable.remove(&link);
        let (_, id) = self.by_offer.range((link, 0)..=(link, u64::MAX)).next()?;
        self.remove(*id)
    }

    /// Returns a number that changes when the link's peer makes an offer, when an offer ends, and when bytes
    /// of an offer are pulled. The cost does not depend on the number of offers.
    pub(crate) fn change_count(&self, link: LinkId) -> u64 {
        self.changes.get(link.0 as usize).copied().unwrap_or(0)
    }

    /// Returns how many bytes have arrived of a payload.
    pub(crate) fn arrived_bytes(&self, id: FetchId) -> u64 {
        self.by_id.get(id).map_or(0, |fetch| fetch.filling.arrived_bytes)
    }

    fn add_to_change_count(&mut self, link: LinkId, by: u64) {
        let place = link.0 as usize;
        if self.changes.len() <= place {
            self.changes.resize(place + 1, 0);
        }
        self.changes[place] = self.changes[place].wrapping_add(by);
    }
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
