//! The target of an endpoint: regions, and what peers do with them.
//!
//! ```text
//!  write, begin_write, write_offered, put, ...  +--------------------------------+   owe, owe_read, count, complete
//!  -------------------------------------------> | windows of regions             | -------------------------------->
//!  read, atomic                                 | what is being written, read    |   return_credit, keep_credit, ...
//!  -------------------------------------------> | offered writes, durability     | -------------------------------->
//!  link_added, link_ended, reading, answered    | regions shown, events that wait|   Err(ProtocolViolation)
//!  -------------------------------------------> +--------------------------------+
//! ```
//!
//! ```text
//!  Write --> all there --> owes Answer
//!
//!  Offer --> is fetched like a message that was matched --> owes Answer
//!
//!  Read  --> ReadData, piece by piece --> Answer
//! ```
//!
//! The results of [atomic operations](atomics) leave with what is read; they are answered by it.
//!
//! An access with an unknown key, a missing right or a range that is too long is refused by an
//! answer, and its payload is dropped. So is an access whose region is closed in the middle of it.
//!
//! Like the [receiver](crate::receiver) it gets events, answers with small [`TargetEffects`], and
//! knows a link by its number alone.

mod atomics;
mod durability;
mod effects;
mod events;
mod links;
mod mappable_regions;
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
use self::writes::Inbound;
use crate::fetches::Fetches;
use crate::flags::{CounterEvents, MrAccess, Order};
use crate::limits::RMA_LINK_MAX_OPS;
use crate::operation::InboundId;
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::region::{Regions, Window};
use crate::transport::LinkId;
use crate::wire::{Durable, Header, Outcome, Refusal, Rma};

/// Where accesses of peers become reads and writes of regions.
#[derive(Debug)]
pub(crate) struct Target {
    regions: Arc<Regions>,
    /// What peers may do with regions by reads and writes.
    access: MrAccess,
    /// What they may do by atomic operations.
    atomics: MrAccess,
    /// Whether what peers do is counted.
    counts: bool,
    /// Whether a short read is copied as it arrives, because what comes after it must not change it.
    copies_reads: bool,
    /// Whether peers are to access regions by frames alone.
    observes_accesses: bool,
    links: TargetLinks,
    // In boxes, since a table keeps the size that it once had, and these may have been very many.
    inbounds: SlotMap<InboundId, Box<Inbound>>,
    /// What peers have offered to write.
    fetches: Fetches<InboundId>,
    /// What peers have written to persistent memory without waiting for it to be durable.
    unpersisted: HashMap<PeerId, Unpersisted>,
    /// Completions of writes that bring data, which the queue had no room for, in order.
    events: VecDeque<HeldEvent>,
}

impl Target {
    /// A target without links, whose peers may access these regions: by reads and writes as
    /// `access` says, by atomic operations as `atomics` does. `order` is what it has agreed to keep
    /// between operations of one peer.
    pub(crate) fn new(
        regions: Arc<Regions>,
        access: MrAccess,
        atomics: MrAccess,
        order: Order,
        counts: bool,
    ) -> Target {
        Target {
            regions,
            access,
            atomics,
            counts,
            // What comes after a read may also be an atomic operation that fetches, which is a read.
            copies_reads: order.intersects(Order::WAR | Order::RMA_WAR | Order::SAR | Order::RAR),
            observes_accesses: false,
            links: TargetLinks::default(),
            inbounds: SlotMap::with_key(),
            fetches: Fetches::default(),
            unpersisted: HashMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Accesses of this peer arrive on a link from now on.
    pub(crate) fn link_added(&mut self, id: LinkId, peer: PeerId) {
        self.links.insert(id, peer);
    }

    /// A link has ended. What was being written stays as far as it had come; nothing of it is answered.
    pub(crate) fn link_ended(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(id) else { return };
        if let Some(writes::IncomingWrite::Sent(filling)) = link.writing {
            self.inbounds.remove(filling.place);
        }
        while let Some(fetch) = self.fetches.remove_next_of_link(id) {
            self.inbounds.remove(fetch.filling.place);
        }
    }

    /// How far a link is: offers, and bytes that have arrived of a write and of offers. Whatever of
    /// a write comes changes it.
    pub(crate) fn progress_counts(&self, id: LinkId) -> (usize, u64, u64) {
        let writing_bytes = match self.links.get(id).and_then(|link| link.writing.as_ref()) {
            Some(writes::IncomingWrite::Sent(filling)) => filling.arrived_bytes,
            Some(writes::IncomingWrite::AskedFor(_)) | None => 0,
        };
        let (offers, fetched_bytes) = self.fetches.progress_counts(id);
        (offers, writing_bytes, fetched_bytes)
    }

    /// An access of a link's peer begins.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if too many of them are not answered.
    fn admit_access(&mut self, id: LinkId) -> Result<(), ProtocolViolation> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        if link.unanswered_ops >= RMA_LINK_MAX_OPS {
            return Err(TOO_MANY);
        }
        link.unanswered_ops += 1;
        Ok(())
    }

    /// The part of a region that a peer names, if it may access it so through this endpoint.
    fn checked_window(
        &mut self,
        id: LinkId,
        rma: &Rma,
        access: MrAccess,
        effects: &mut impl TargetEffects,
    ) -> Result<Window, Refusal> {
        if !self.access.contains(access) {
            return Err(Refusal::Access);
        }
        let Rma { key, address, len_bytes, durable, .. } = *rma;
        // Of no bytes, too, it matters on which device earlier ones are to be durable.
        let window = if durable == Durable::Nothing {
            self.regions.checked_window_or_empty(key, address, len_bytes, access)?
        } else {
            self.regions.checked_window(key, address, len_bytes, access)?
        };
        if durable != Durable::Nothing && !window.region().is_persistent() {
            return Err(Refusal::Volatile);
        }
        self.offer_region_for_mapping(id, &window, effects);
        Ok(window)
    }

    /// An access by a peer has succeeded. An endpoint with `FI_RMA_EVENT` counts it as one event,
    /// `of_endpoint`, and so does the region, which distinguishes by what happened to its memory:
    /// `of_region`. A refused access is no event.
    fn count_access(
        &self,
        window: &Window,
        of_endpoint: CounterEvents,
        of_region: CounterEvents,
        effects: &mut impl TargetEffects,
    ) {
        if self.counts {
            effects.count(of_endpoint);
            window.count_access(of_region);
        }
    }

    /// The link has taken the answer to an access.
    #[inline]
    pub(crate) fn answer_sent(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id) {
            link.unanswered_ops -= 1;
        }
    }
}

/// A peer has more under way than it may.
const TOO_MANY: ProtocolViolation = ProtocolViolation("has more accesses under way than it may");

fn owe_answer(id: LinkId, op: u64, outcome: Outcome, effects: &mut impl TargetEffects) {
    effects.owe(id, Header::Answer { op, outcome });
}
