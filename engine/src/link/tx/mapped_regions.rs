//! Regions of a link's peer that this side has mapped and accesses directly.

use std::sync::Arc;

use crate::flags::MrAccess;
use crate::limits::MAPPED_LINK_MAX_REGIONS;
use crate::transport::{RemotePayload, SharedMemory};
use crate::wire::MappableRegion;

/// The regions of a link's peer that this side has mapped, or may map.
#[derive(Debug, Default)]
pub(crate) struct MappedRegions {
    mapped: Vec<MappedRegion>,
    /// Regions that the peer has offered, and that this side has not accessed since.
    offers: Vec<Offer>,
}

/// A region that a peer lets this side map.
#[derive(Debug)]
pub(crate) struct Offer {
    shown: MappableRegion,
    remote: RemotePayload,
}

impl Offer {
    pub(crate) fn len_bytes(&self) -> u64 {
        self.shown.len_bytes
    }

    pub(crate) fn remote(&self) -> &RemotePayload {
        &self.remote
    }
}

/// A region of a peer, mapped into this process.
#[derive(Debug)]
pub(crate) struct MappedRegion {
    key: u64,
    address: u64,
    len_bytes: u64,
    access: MrAccess,
    memory: Arc<dyn SharedMemory>,
}

impl MappedRegion {
    /// Returns the offset of a range in the mapped memory. Returns `None` if the range leaves the
    /// region, if the region does not allow the access, or if its memory is retired.
    #[inline(always)]
    pub(crate) fn offset_if_allowed(&self, address: u64, len_bytes: u64, access: MrAccess) -> Option<usize> {
        let offset_bytes = address.checked_sub(self.address)?;
        let end_bytes = offset_bytes.checked_add(len_bytes)?;
        let is_allowed = self.access.contains(access) && end_bytes <= self.len_bytes;
        (is_allowed && !self.memory.is_retired()).then_some(offset_bytes as usize)
    }

    #[inline(always)]
    pub(crate) fn memory(&self) -> &dyn SharedMemory {
        &*self.memory
    }
}

impl MappedRegions {
    /// Returns the region with this key.
    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Option<&MappedRegion> {
        self.mapped.iter().find(|mapped| mapped.key == key)
    }

    /// Keeps the offer of a region. The region takes no address space until this side accesses it.
    pub(crate) fn add_offered_region(&mut self, shown: MappableRegion, remote: RemotePayload) {
        self.mapped.retain(|mapped| mapped.key != shown.key && !mapped.memory.is_retired());
        self.offers.retain(|offer| offer.shown.key != shown.key);
        // An offer beyond the limit is no violation: the peer no longer counts regions that it has
        // ended, but this side may still count them. Accesses to a region that is dropped here go
        // by frames.
        if self.mapped.len() + self.offers.len() >= MAPPED_LINK_MAX_REGIONS {
            if self.offers.is_empty() {
                return;
            }
            // The oldest of these regions is the most likely to have ended.
            self.offers.remove(0);
        }
        if self.offers.try_reserve(1).is_ok() {
            self.offers.push(Offer { shown, remote });
        }
    }

    /// Whether the peer has offered regions that are not mapped.
    pub(crate) fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Takes the offer of the region with this key.
    pub(crate) fn take_offer(&mut self, key: u64) -> Option<Offer> {
        let at = self.offers.iter().position(|offer| offer.shown.key == key)?;
        Some(self.offers.remove(at))
    }

    /// Adds a region that was offered, and that this side has mapped. Returns false if there is no memory
    /// to remember it.
    pub(crate) fn add_mapped(&mut self, offer: &Offer, memory: Arc<dyn SharedMemory>) -> bool {
        let MappableRegion { key, address, len_bytes, access, .. } = offer.shown;
        let access = MrAccess::from_bits_truncate(access);
        let has_room = self.mapped.try_reserve(1).is_ok();
        if has_room {
            self.mapped.push(MappedRegion { key, address, len_bytes, access, memory });
        }
        has_room
    }

    /// Unmaps the region with this key, if the peer has ended it.
    pub(crate) fn unmap_if_retired(&mut self, key: u64) {
        self.mapped.retain(|mapped| mapped.key != key || !mapped.memory.is_retired());
    }

    /// Unmaps all regions that the peer has ended.
    pub(crate) fn unmap_retired(&mut self) {
        self.mapped.retain(|mapped| !mapped.memory.is_retired());
    }

    /// Whether this side has mapped any region.
    pub(crate) fn has_mapped_regions(&self) -> bool {
        !self.mapped.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn memory_of(&self, key: u64) -> Arc<dyn SharedMemory> {
        self.find(key).expect("it is mapped").memory.clone()
    }

    #[cfg(test)]
    pub(crate) fn mapped_count(&self) -> usize {
        self.mapped.len()
    }

    #[cfg(test)]
    pub(crate) fn offer_count(&self) -> usize {
        self.offers.len()
    }
}
