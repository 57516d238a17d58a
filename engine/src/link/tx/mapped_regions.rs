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
    /// Regions that the peer has offered, and that this side has not mapped yet.
    to_map: Vec<(MappableRegion, RemotePayload)>,
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

    /// Keeps a region that the peer offers to map.
    pub(crate) fn add_offered_region(&mut self, shown: MappableRegion, remote: RemotePayload) {
        self.mapped.retain(|mapped| mapped.key != shown.key && !mapped.memory.is_retired());
        self.to_map.retain(|(waiting, _)| waiting.key != shown.key);
        // An offer beyond the limit is no violation: the peer no longer counts regions that it has
        // ended, but this side may still count them. Accesses to a region that is dropped here go
        // by frames.
        if self.mapped.len() + self.to_map.len() >= MAPPED_LINK_MAX_REGIONS {
            if self.to_map.is_empty() {
                return;
            }
            // The oldest of these regions is the most likely to have ended.
            self.to_map.remove(0);
        }
        self.to_map.push((shown, remote));
    }

    /// Whether the peer has offered regions that are not mapped yet.
    pub(crate) fn has_regions_to_map(&self) -> bool {
        !self.to_map.is_empty()
    }

    /// Maps the regions that the peer has offered, as far as `map` can.
    pub(crate) fn map_offered(
        &mut self,
        mut map: impl FnMut(&RemotePayload, u64) -> Option<Arc<dyn SharedMemory>>,
    ) {
        for (MappableRegion { key, address, len_bytes, access, .. }, remote) in self.to_map.drain(..) {
            if let Some(memory) = map(&remote, len_bytes) {
                let access = MrAccess::from_bits_truncate(access);
                self.mapped.push(MappedRegion { key, address, len_bytes, access, memory });
            }
        }
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
    pub(crate) fn to_map_count(&self) -> usize {
        self.to_map.len()
    }
}
