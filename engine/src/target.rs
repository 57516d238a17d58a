//! The target of an endpoint: its regions, and the accesses of peers to them.
//!
//! ```text
//!  write_arrived, begin_write, ...     +------------------------------+  queue_header, count, ...
//!  ----------------------------------> | windows of regions           | ------------------------------->
//!  read_request_arrived, ...           | what is being written, read  |  return_credit, hold_credit, ...
//!  ----------------------------------> | offered writes, durability   | ------------------------------->
//!  link_added, link_ended, ...         | offered regions, held events |  Err(LinkFault)
//!  ----------------------------------> +------------------------------+
//! ```
//!
//! ```text
//!  Write --> all there --> Answer queued
//!
//!  Offer --> is fetched like a message that was matched --> Answer queued
//!
//!  Read  --> ReadData, piece by piece --> Answer
//!
//!  Flush --> Answer queued
//!     |
//!     +-----> is long: made durable part by part --> Answer queued
//! ```
//!
//! The target sends the results of [atomic operations](atomics) like the data of a read. The results are
//! also the answer.
//!
//! The target refuses an access with an unknown key, without the needed right, or beyond the end of the
//! region. Then it sends an answer and drops the payload. If a region is closed during an access, the target
//! refuses the access, too.
//!
//! The caller tells the target what happened. The target asks for [`TargetEffects`], and the caller carries
//! them out. The target knows a link only by its number.

mod atomics;
mod durability;
mod effects;
mod events;
mod flushes;
mod links;
mod mappable_regions;
mod partial_flush;
mod reads;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use slotmap::SlotMap;

use self::durability::Unpersisted;
pub(crate) use self::effects::TargetEffects;
use self::events::HeldEvent;
use self::links::TargetLinks;
use self::writes::PeerWrite;
use crate::fetches::Fetches;
use crate::flags::{CounterEvents, MrAccess, Order};
use crate::limits::RMA_LINK_MAX_OPS;
use crate::link_fault::TryBox;
use crate::mutated;
use crate::operation::PeerWriteId;
use crate::peer_id::PeerId;
use crate::peers::PeerMarks;
use crate::protocol_violation::ProtocolViolation;
use crate::region::{Region, Regions, Window};
use crate::remote_memory::RemoteMemory;
use crate::transport::LinkId;
use crate::wire::{Durable, Header, Outcome, Refusal, Rma};

/// Carries out accesses of peers as reads and writes of regions.
#[derive(Debug)]
pub(crate) struct Target {
    regions: Arc<Regions>,
    /// The region of the last access, if it is of the application's own memory. Peers access the same region
    /// many times in a row.
    last_region: Option<Arc<Region>>,
    /// The accesses to regions that peers may make by reads and writes.
    access: MrAccess,
    /// The accesses to regions that peers may make by atomic operations.
    atomics: MrAccess,
    /// Whether accesses of peers are counted.
    counts_accesses: bool,
    /// Whether the target copies the data of a short read when the request arrives, because later operations
    /// must not change the data.
    copies_reads: bool,
    /// Whether notices of writes with remote data take posted receives (`FI_RX_CQ_DATA`).
    gives_remote_data_to_receives: bool,
    /// Whether peers must access regions by frames only.
    forbids_mapping: bool,
    links: TargetLinks,
    // Boxed, to keep unused slots small: a slot map never shrinks, and may once have held very many writes.
    inbounds: SlotMap<PeerWriteId, TryBox<PeerWrite>>,
    /// The writes that peers have offered.
    fetches: Fetches<PeerWriteId>,
    /// The links on which peers have asked for flushes that are carried out in parts. Each is listed once.
    /// The first is the next to have its turn.
    flushing: VecDeque<LinkId>,
    /// Writes of peers to persistent memory that completed without being made durable.
    unpersisted: HashMap<PeerId, Unpersisted>,
    /// Completions of writes with remote data that found no room in the queue, in order.
    events: VecDeque<HeldEvent>,
}

impl Target {
    /// Creates a target without links. `access` says whether peers may read and write `regions`. `atomics`
    /// says the same of atomic operations. `order` is the agreed order of one peer's operations.
    pub(crate) fn new(
        regions: Arc<Regions>,
        access: MrAccess,
        atomics: MrAccess,
        order: Order,
        counts_accesses: bool,
    ) -> Target {
        Target {
            regions,
            last_region: None,
            access,
            atomics,
            counts_accesses,
            // `RAR` counts too: a fetching atomic operation is a read, and could overtake an earlier read.
            copies_reads: order.intersects(Order::WAR | Order::RMA_WAR | Order::SAR | Order::RAR),
            gives_remote_data_to_receives: false,
            forbids_mapping: false,
            links: TargetLinks::default(),
            inbounds: SlotMap::with_key(),
            fetches: Fetches::default(),
            flushing: VecDeque::new(),
            unpersisted: HashMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds a link on which accesses of this peer arrive.
    pub(crate) fn link_added(&mut self, id: LinkId, peer: PeerId) {
        self.links.insert(id, peer);
    }

    /// Removes a link that has ended. Bytes that were written stay. A write that was still arriving gets no
    /// answer.
    pub(crate) fn link_ended(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(id) else { return };
        if !link.flushes.is_empty() {
            self.flushing.retain(|other| *other != id);
        }
        if let Some(writes::IncomingWrite::Sent(filling)) = link.writing {
            self.inbounds.remove(filling.owner);
        }
        let offers = self.fetches.end_link(id);
        while let Some(fetch) = self.fetches.remove_next_needed(&offers) {
            self.inbounds.remove(fetch.filling.owner);
        }
    }

    /// Returns two counts of a link: arrived accesses together with changes of offers, and arrived bytes of
    /// the write that is being read. Each byte of an access changes one of the counts when it arrives.
    pub(crate) fn progress_counts(&self, id: LinkId) -> (u64, u64) {
        let writing_bytes = match self.links.get(id).and_then(|link| link.writing.as_ref()) {
            Some(writes::IncomingWrite::Sent(filling)) => filling.arrived_bytes,
            Some(writes::IncomingWrite::Requested(fetch)) => self.fetches.arrived_bytes(*fetch),
            None => 0,
        };
        let arrived_ops = self.links.get(id).map_or(0, |link| link.arrived_ops + link.ended_counted_ops);
        (arrived_ops + self.fetches.count_of_changes(id), writing_bytes)
    }

    /// Whether the next pass has work even if no frame arrives.
    pub(crate) fn has_work_without_arrivals(&self) -> bool {
        self.is_pulling() || !self.flushing.is_empty()
    }

    /// Returns a number other than 0 if the target needs part of a pass: a payload is being pulled, or a
    /// flush is carried out in parts.
    #[inline(always)]
    pub(crate) fn rare_work_bits(&self) -> usize {
        self.pulling_len() | self.flushing.len()
    }

    /// Marks the peers that have links, held completions, or writes that are not durable yet.
    pub(crate) fn mark_peers(&self, marks: &mut PeerMarks) {
        let Target { links, unpersisted, events, .. } = self;
        marks.mark(links.peers());
        marks.mark(unpersisted.keys().copied());
        marks.mark(events.iter().filter_map(HeldEvent::source));
    }

    /// Counts a new access of the link's peer.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer has too many accesses without an answer.
    fn admit_access(&mut self, id: LinkId) -> Result<(), ProtocolViolation> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        if link.unanswered_ops >= RMA_LINK_MAX_OPS {
            return Err(TOO_MANY);
        }
        link.unanswered_ops += 1;
        link.arrived_ops += 1;
        Ok(())
    }

    /// Returns the part of a region that a peer wants to access, if this endpoint allows the access. Then
    /// also offers the region for mapping, unless it has done so before.
    fn check_rma_window_and_offer_mapping(
        &mut self,
        id: LinkId,
        rma: &Rma,
        access: MrAccess,
        effects: &mut impl TargetEffects,
    ) -> Result<Window, Refusal> {
        let Rma { key, address, len_bytes, durable, .. } = *rma;
        let memory = RemoteMemory { key, address };
        self.check_window_and_offer_mapping(id, memory, len_bytes, durable, access, effects)
    }

    /// As [`check_rma_window_and_offer_mapping`](Self::check_rma_window_and_offer_mapping), for an access
    /// of `len_bytes` at `memory`.
    fn check_window_and_offer_mapping(
        &mut self,
        id: LinkId,
        memory: RemoteMemory,
        len_bytes: u64,
        durable: Durable,
        access: MrAccess,
        effects: &mut impl TargetEffects,
    ) -> Result<Window, Refusal> {
        if !self.access.contains(access) {
            return Err(Refusal::Access);
        }
        // A write that must be durable needs a persistent region, even if the write is empty.
        let window = if durable == Durable::Nothing {
            self.checked_window_or_empty(memory, len_bytes, access)?
        } else {
            self.checked_window(memory, len_bytes, access)?
        };
        let is_volatile = !window.region().is_persistent() && !mutated!("fi_mr/persistent-region-flag");
        if durable != Durable::Nothing && is_volatile {
            return Err(Refusal::Volatile);
        }
        self.offer_region_for_mapping_once(id, &window, effects);
        self.remember_region(&window);
        Ok(window)
    }

    /// Returns the window on this range, if its region allows this access.
    #[inline]
    fn checked_window(
        &self,
        memory: RemoteMemory,
        len_bytes: u64,
        access: MrAccess,
    ) -> Result<Window, Refusal> {
        let RemoteMemory { key, address } = memory;
        match self.last_region_with_key(key) {
            Some(region) => region.clone().into_checked_window(address, len_bytes, access),
            None => self.regions.checked_window(key, address, len_bytes, access),
        }
    }

    /// Returns the region of the last access, if it has this key and is open. So a sequence of accesses to
    /// one region needs no look into the table of regions.
    #[inline(always)]
    fn last_region_with_key(&self, key: u64) -> Option<&Arc<Region>> {
        self.last_region.as_ref().filter(|region| region.key() == key && region.is_open())
    }

    /// Remembers the region of an access. Memory that the region owns would stay allocated with the region,
    /// so such a region is not remembered.
    #[inline]
    fn remember_region(&mut self, window: &Window) {
        let region = window.region();
        if window.is_sliceable() && self.last_region_with_key(region.key()).is_none() {
            self.last_region = Some(region.clone());
        }
    }

    /// As [`checked_window`](Self::checked_window), but an access of no bytes may name any key and address.
    #[inline]
    fn checked_window_or_empty(
        &self,
        memory: RemoteMemory,
        len_bytes: u64,
        access: MrAccess,
    ) -> Result<Window, Refusal> {
        match self.checked_window(memory, len_bytes, access) {
            Err(_) if len_bytes == 0 => Ok(Window::empty()),
            window => window,
        }
    }

    /// Counts a successful access, if the endpoint has `FI_RMA_EVENT`. The endpoint counts `of_endpoint`,
    /// and the region counts `of_region`. The two differ for atomic operations.
    #[inline]
    fn count_access_if_enabled(
        &self,
        region: &Region,
        of_endpoint: CounterEvents,
        of_region: CounterEvents,
        effects: &mut impl TargetEffects,
    ) {
        if self.counts_accesses {
            effects.count(of_endpoint);
            region.count_access(of_region);
        }
    }

    /// Records that the link has taken the answer to an access.
    #[inline]
    pub(crate) fn answer_sent(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id) {
            link.unanswered_ops -= 1;
        }
    }
}

/// The error of a peer that has more accesses under way than it may.
const TOO_MANY: ProtocolViolation = ProtocolViolation("has more accesses under way than it may");

fn queue_answer(id: LinkId, op: u64, outcome: Outcome, effects: &mut impl TargetEffects) {
    effects.queue_header(id, Header::Answer { op, outcome });
}
