//! The receiving side of a rendezvous: payload that is fetched from where it is, or asked for.
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
//! What is fetched, where it goes and what is answered is the owner's to know: a receiver fetches messages, a
//! target what peers write to regions. Each of them has a table like this one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSliceMut;
use std::mem;

use slotmap::SlotMap;

use crate::limits::PULL_STEP_MAX_BYTES;
use crate::operation::FetchId;
use crate::reassembly::{Reassembly, clamp_to_usize};
use crate::transport::{LinkId, Pull, RemotePayload};

/// What peers have offered, by the places where it goes.
#[derive(Debug)]
pub(crate) struct Fetches<P> {
    // In boxes, since a table keeps the size that it once had, and these may have been very many.
    by_id: SlotMap<FetchId, Box<Fetch<P>>>,
    /// By the link and the sender's number.
    by_offer: BTreeMap<(LinkId, u64), FetchId>,
    /// What is to be pulled, in turn. Some of it may have ended meanwhile.
    pulling: VecDeque<FetchId>,
    /// Links on which this side has found out that it cannot pull.
    unpullable: BTreeSet<LinkId>,
    /// See [`PULL_STEP_MAX_BYTES`].
    step_max_bytes: usize,
}

/// Payload that its sender has offered.
#[derive(Debug)]
pub(crate) struct Fetch<P> {
    pub(crate) link: LinkId,
    /// The sender's number for it.
    pub(crate) op: u64,
    pub(crate) filling: Reassembly<P>,
    stage: FetchStage,
}

#[derive(Debug)]
enum FetchStage {
    /// Its owner has no use or no room for it yet.
    Waiting(RemotePayload),
    /// It is pulled step by step.
    Pulling(RemotePayload),
    /// Its sender was asked for it.
    Cleared,
    /// Its sender is gone, and the link is about to end.
    Gone,
}

/// The memory where payload goes.
pub(crate) trait Memory<P> {
    /// How much of it is wanted there.
    fn wanted_bytes(&mut self, filling: &Reassembly<P>) -> u64;

    /// Has the next `step_bytes` copied there.
    fn pull(
        &mut self,
        filling: &Reassembly<P>,
        step_bytes: usize,
        copy: impl FnOnce(&mut [IoSliceMut<'_>]) -> Pull,
    ) -> Pull;

    /// Forgets what was pulled: the payload comes again from its beginning.
    fn forget_pulled(&mut self, place: &P);
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum FetchStep<P> {
    /// This many more bytes were pulled, and the rest may follow.
    Pulled(usize),
    /// The last `pulled_bytes` that are wanted are there, or none is any more.
    Ended { fetch: Box<Fetch<P>>, pulled_bytes: usize },
    /// The sender's memory could not be read.
    Faulted(Box<Fetch<P>>),
    /// Its sender is to be asked for it.
    Asked { link: LinkId, op: u64, cannot_pull: bool },
}

impl<P> Default for Fetches<P> {
    fn default() -> Self {
        Fetches {
            by_id: SlotMap::with_key(),
            by_offer: BTreeMap::new(),
            pulling: VecDeque::new(),
            unpullable: BTreeSet::new(),
            step_max_bytes: PULL_STEP_MAX_BYTES,
        }
    }
}

impl<P> Fetches<P> {
    #[cfg(test)]
    pub(crate) fn set_step_max_bytes(&mut self, step_max_bytes: usize) {
        self.step_max_bytes = step_max_bytes;
    }

    /// The numbers of what a link's peer has offered.
    #[cfg(test)]
    pub(crate) fn offered_ops(&self, link: LinkId) -> Vec<u64> {
        self.by_offer.range((link, 0)..=(link, u64::MAX)).map(|((_, op), _)| *op).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether a link's peer has offered something under this number.
    pub(crate) fn has_offer(&self, link: LinkId, op: u64) -> bool {
        self.by_offer.contains_key(&(link, op))
    }

    /// Whether a fetch has not ended.
    pub(crate) fn contains(&self, id: FetchId) -> bool {
        self.by_id.contains_key(id)
    }

    /// The payload of a fetch, as far as it is there.
    pub(crate) fn reassembly_mut(&mut self, id: FetchId) -> Option<&mut Reassembly<P>> {
        self.by_id.get_mut(id).map(|fetch| &mut fetch.filling)
    }

    /// The payload of a fetch that waits, if it does.
    pub(crate) fn waiting_reassembly(&self, id: FetchId) -> Option<&Reassembly<P>> {
        let fetch = self.by_id.get(id)?;
        matches!(fetch.stage, FetchStage::Waiting(_)).then_some(&fetch.filling)
    }

    /// The payload of a fetch whose sender was asked for it, if it was.
    pub(crate) fn cleared_reassembly(&mut self, id: FetchId) -> Option<&mut Reassembly<P>> {
        let fetch = self.by_id.get_mut(id)?;
        matches!(fetch.stage, FetchStage::Cleared).then_some(&mut fetch.filling)
    }

    /// Keeps an offer until it is [wanted](Self::begin).
    pub(crate) fn add_offer(
        &mut self,
        link: LinkId,
        op: u64,
        filling: Reassembly<P>,
        remote: RemotePayload,
    ) -> FetchId {
        let id = self.by_id.insert(Box::new(Fetch { link, op, filling, stage: FetchStage::Waiting(remote) }));
        self.by_offer.insert((link, op), id);
        id
    }

    /// Begins to fetch what waits.
    pub(crate) fn begin_fetch(&mut self, id: FetchId) {
        if let Some(fetch) = self.by_id.get_mut(id)
            && let FetchStage::Waiting(remote) = &mut fetch.stage
        {
            fetch.stage = FetchStage::Pulling(mem::take(remote));
            self.pulling.push_back(id);
        }
    }

    /// How many steps bring everything that is pulled one further.
    #[inline(always)]
    pub(crate) fn pulling_len(&self) -> usize {
        self.pulling.len()
    }

    /// The links on which something is to be pulled.
    pub(crate) fn pulling_links(&self) -> impl Iterator<Item = LinkId> {
        self.pulling.iter().filter_map(|id| self.by_id.get(*id)).map(|fetch| fetch.link)
    }

    /// Puts what is next on a link like this before everything else that is to be pulled. Returns whether
    /// there is anything.
    pub(crate) fn bring_forward(&mut self, is_meant: impl Fn(LinkId) -> bool) -> bool {
        let is_next = |id: &FetchId| self.by_id.get(*id).is_none_or(|fetch| is_meant(fetch.link));
        let Some(at) = self.pulling.iter().position(is_next) else { return false };
        self.pulling.rotate_left(at);
        true
    }

    /// Goes a step further with what is next. `pull` copies from where a link's peer has its payload.
    pub(crate) fn pull_step(
        &mut self,
        memory: &mut impl Memory<P>,
        pull: &mut impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull,
    ) -> FetchStep<P> {
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
            return self.request_payload(id, false, memory);
        }
        if self.unpullable.contains(&link) {
            return self.request_payload(id, true, memory);
        }
        let step_bytes = clamp_to_usize(wanted_bytes - arrived_bytes).min(self.step_max_bytes);
        let copy = |space: &mut [IoSliceMut<'_>]| pull(link, remote, arrived_bytes, space);
        match memory.pull(&fetch.filling, step_bytes, copy) {
            Pull::Done => {
                fetch.filling.arrived_bytes += step_bytes as u64;
                if fetch.filling.arrived_bytes < wanted_bytes {
                    self.pulling.push_back(id);
                    return FetchStep::Pulled(step_bytes);
                }
                self.end_fetch(id, step_bytes)
            }
            Pull::Refused => {
                self.unpullable.insert(link);
                self.request_payload(id, true, memory)
            }
            Pull::Fault => self.remove(id).map_or(FetchStep::Pulled(0), FetchStep::Faulted),
            Pull::Gone => {
                fetch.stage = FetchStage::Gone;
                FetchStep::Pulled(0)
            }
        }
    }

    fn end_fetch(&mut self, id: FetchId, pulled_bytes: usize) -> FetchStep<P> {
        match self.remove(id) {
            Some(fetch) => FetchStep::Ended { fetch, pulled_bytes },
            None => FetchStep::Pulled(pulled_bytes),
        }
    }

    /// Has the sender send it, all of it: what was pulled before is not believed.
    fn request_payload(
        &mut self,
        id: FetchId,
        cannot_pull: bool,
        memory: &mut impl Memory<P>,
    ) -> FetchStep<P> {
        let Some(fetch) = self.by_id.get_mut(id) else { return FetchStep::Pulled(0) };
        fetch.stage = FetchStage::Cleared;
        fetch.filling.arrived_bytes = 0;
        memory.forget_pulled(&fetch.filling.place);
        FetchStep::Asked { link: fetch.link, op: fetch.op, cannot_pull }
    }

    /// The fetch that a payload belongs to which a link's peer says it was asked for, if it was.
    pub(crate) fn cleared_fetch(&self, link: LinkId, op: u64, len_bytes: u64) -> Option<FetchId> {
        let id = *self.by_offer.get(&(link, op))?;
        let fetch = self.by_id.get(id)?;
        let is_asked_for = matches!(fetch.stage, FetchStage::Cleared) && fetch.filling.len_bytes == len_bytes;
        is_asked_for.then_some(id)
    }

    /// Ends a fetch.
    pub(crate) fn remove(&mut self, id: FetchId) -> Option<Box<Fetch<P>>> {
        let fetch = self.by_id.remove(id)?;
        self.by_offer.remove(&(fetch.link, fetch.op));
        Some(fetch)
    }

    /// Ends the offer of a link's peer that has the lowest number, if there is any. To be called until there
    /// is none.
    pub(crate) fn remove_next_of_link(&mut self, link: LinkId) -> Option<Box<Fetch<P>>> {
        self.unpullable.remove(&link);
        let (_, id) = self.by_offer.range((link, 0)..=(link, u64::MAX)).next()?;
        self.remove(*id)
    }

    /// How much a link's peer has offered, and how much of that has arrived.
    pub(crate) fn progress_counts(&self, link: LinkId) -> (usize, u64) {
        let of_link = self.by_offer.range((link, 0)..=(link, u64::MAX));
        of_link.filter_map(|(_, id)| self.by_id.get(*id)).fold((0, 0), |(count, arrived_bytes), fetch| {
            (count + 1, arrived_bytes + fetch.filling.arrived_bytes)
        })
    }
}

impl<P> FetchStep<P> {
    /// How many bytes the step has copied.
    pub(crate) fn pulled_bytes(&self) -> usize {
        match self {
            FetchStep::Pulled(pulled_bytes) | FetchStep::Ended { pulled_bytes, .. } => *pulled_bytes,
            FetchStep::Faulted(_) | FetchStep::Asked { .. } => 0,
        }
    }
}
