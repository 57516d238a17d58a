//! Regions that peers may map. Peers access a mapped region without the target's help: see
//! `engine/direct.rs`.

use std::sync::{Arc, Weak};

use super::{Target, TargetEffects};
use crate::limits::{MAPPED_LINK_MAX_REGIONS, MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use crate::region::{Region, Window};
use crate::transport::{LinkCaps, LinkId, RemotePayload};
use crate::wire::{Header, MappableRegion};

const _: () = assert!(REMOTE_MAX_BYTES <= u8::MAX as usize);

impl Target {
    /// Offers a region for mapping to a peer that has accessed the region. Does nothing if the link
    /// already has this offer, or if peers cannot map the region.
    pub(super) fn offer_region_for_mapping_once(
        &mut self,
        id: LinkId,
        window: &Window,
        effects: &mut impl TargetEffects,
    ) {
        let region = window.region();
        // Do not offer memory that is too long to describe. Do not offer persistent memory, because
        // only frames tell which writes must be made durable.
        if self.forbids_mapping || region.is_persistent() || region.len_bytes() as u64 > MESSAGE_MAX_BYTES {
            return;
        }
        let Some(memory) = region.shareable_memory() else { return };
        let access = region.access() & self.access;
        let Some(link) = self.links.get_mut(id) else { return };
        let offered = &mut link.offered_regions;
        let is_same = |other: &Weak<Region>| other.as_ptr() == Arc::as_ptr(region);
        if offered.iter().any(is_same) {
            return;
        }
        // Forget regions that peers can no longer map: closed regions, and regions with a counter.
        // Their offers must not use up the link's limit.
        offered.retain(|region| region.upgrade().is_some_and(|region| region.shareable_memory().is_some()));
        if offered.len() >= MAPPED_LINK_MAX_REGIONS {
            return;
        }
        let Some(remote) = memory.describe() else { return };
        offered.push(Arc::downgrade(region));
        let offer = MappableRegion {
            key: region.key(),
            address: region.base_address(),
            len_bytes: region.len_bytes() as u64,
            access: access.bits(),
            // The length fits: a description has at most `REMOTE_MAX_BYTES`.
            remote_bytes: remote.as_bytes().len() as u8,
        };
        effects.queue_header(id, Header::MappableRegion(offer));
    }

    /// Makes peers access all regions by frames from now on. Retires the regions that this side has
    /// offered for mapping.
    pub(crate) fn disable_direct_access(&mut self) {
        if self.forbids_mapping {
            return;
        }
        self.forbids_mapping = true;
        for region in self.links.iter_mut().flat_map(|link| link.offered_regions.drain(..)) {
            if let Some(region) = region.upgrade()
                && let Some(memory) = region.shareable_memory()
            {
                memory.retire();
            }
        }
    }

    /// Returns the description of a region that was offered to the link's peer, or `None` if the
    /// region can no longer be mapped.
    pub(crate) fn describe_mappable_region(
        &self,
        id: LinkId,
        key: u64,
        caps: &LinkCaps,
    ) -> Option<RemotePayload> {
        let offered = &self.links.get(id)?.offered_regions;
        let region = offered.iter().filter_map(Weak::upgrade).find(|region| region.key() == key)?;
        let remote = region.shareable_memory().filter(|_| region.is_open())?.describe()?;
        (remote.as_bytes().len() <= caps.inline_max_bytes).then_some(remote)
    }
}
