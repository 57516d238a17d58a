//! The regions of a domain, by key.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use super::{Region, Window};
use crate::error::Misuse;
use crate::flags::MrAccess;
use crate::mutated;
use crate::wire::Refusal;

/// The regions of a domain, by key.
#[derive(Debug, Default)]
pub struct Regions {
    by_key: RwLock<HashMap<u64, Arc<Region>>>,
}

impl Regions {
    /// Adds a region. A region that gives peers no rights takes no key: peers do not find it.
    ///
    /// # Errors
    ///
    /// [`Misuse::KeyInUse`] if another region has the same key.
    pub fn add(&self, region: Region) -> Result<Arc<Region>, Misuse> {
        if !region.access.gives_peers_rights() {
            return Ok(Arc::new(region));
        }
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        match by_key.entry(region.key) {
            Entry::Occupied(mut present) if mutated!("fi_mr/requested-key") => {
                present.insert(Arc::new(region));
                Ok(present.get().clone())
            }
            Entry::Occupied(_) => Err(Misuse::KeyInUse(region.key)),
            Entry::Vacant(vacant) => Ok(vacant.insert(Arc::new(region)).clone()),
        }
    }

    /// Closes a region. Calls of an [`Engine`](crate::Engine) that are running now may use the
    /// region's memory until they return.
    pub fn close(&self, region: &Arc<Region>) {
        if mutated!("fi_mr/closed-region-is-not-accessed") {
            return;
        }
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        if by_key.get(&region.key).is_some_and(|present| Arc::ptr_eq(present, region)) {
            by_key.remove(&region.key);
        }
        // Retire the memory before another region can get the key. Otherwise a peer that still maps
        // this memory could reach it by that key.
        if let Some(memory) = region.shareable_memory() {
            memory.retire();
        }
        region.is_closed.store(true, Ordering::Release);
    }

    /// Returns the window on the range that a peer names, if the region allows this access.
    pub(crate) fn checked_window(
        &self,
        key: u64,
        address: u64,
        len_bytes: u64,
        access: MrAccess,
    ) -> Result<Window, Refusal> {
        let by_key = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
        let is_any = mutated!("fi_mr/target-must-be-registered");
        let other = if is_any { by_key.values().next() } else { None };
        by_key
            .get(&key)
            .or(other)
            .ok_or(Refusal::Key)?
            .clone()
            .into_checked_window(address, len_bytes, access)
    }
}

impl Region {
    /// Returns the window on the range that a peer names, if the region allows this access.
    #[inline]
    pub(crate) fn into_checked_window(
        self: Arc<Region>,
        address: u64,
        len_bytes: u64,
        access: MrAccess,
    ) -> Result<Window, Refusal> {
        let offset_bytes = self.checked_offset_bytes(address, len_bytes, access)?;
        Ok(Window::new(self, offset_bytes))
    }

    /// Copies bytes of a peer's write to this address, if the region is open and allows the write.
    /// Returns whether it does.
    #[inline]
    pub(crate) fn try_write_for_peer(&self, address: u64, len_bytes: u64, bytes: &[u8]) -> bool {
        let offset_bytes = self.checked_offset_bytes(address, len_bytes, MrAccess::REMOTE_WRITE);
        match offset_bytes {
            Ok(offset_bytes) if self.is_open() && bytes.len() as u64 == len_bytes => {
                self.copy_in(offset_bytes, bytes);
                true
            }
            _ => false,
        }
    }

    /// Returns the offset in the region of the range that a peer names, if the region allows this
    /// access.
    #[inline]
    fn checked_offset_bytes(&self, address: u64, len_bytes: u64, access: MrAccess) -> Result<usize, Refusal> {
        if !self.is_enabled() {
            return Err(Refusal::Key);
        }
        if !self.access.contains(access) && !mutated!("fi_mr/access-rights") {
            return Err(Refusal::Access);
        }
        let offset_bytes = address.checked_sub(self.base_address).ok_or(Refusal::Range)?;
        let end = offset_bytes.checked_add(len_bytes).ok_or(Refusal::Range)?;
        if end > self.len_bytes as u64 {
            return Err(Refusal::Range);
        }
        // The offset is at most the region's length, which is a `usize`.
        Ok(offset_bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RegionAttr;
    use super::*;

    const ATTR: RegionAttr = RegionAttr { key: 7, access: MrAccess::REMOTE_WRITE, base_address: 0 };

    #[test]
    fn access_needs_key_rights_and_range_of_the_region() {
        let regions = Regions::default();
        let attr = RegionAttr { base_address: u64::MAX - 99, ..ATTR };
        let region = regions.add(Region::owned(100, attr).unwrap()).unwrap();
        let base = attr.base_address;
        let window =
            |key, address, len| regions.checked_window(key, address, len, MrAccess::REMOTE_WRITE).err();
        assert_eq!(window(7, base, 100), None);
        assert_eq!(window(7, base + 99, 1), None);
        assert_eq!(window(8, base, 1), Some(Refusal::Key));
        for (address, len_bytes) in
            [(base, 101), (base + 99, 2), (base - 1, 1), (0, 0), (base + 1, u64::MAX), (u64::MAX, u64::MAX)]
        {
            assert_eq!(window(7, address, len_bytes), Some(Refusal::Range), "{len_bytes} from {address:#x}");
        }
        let read = regions.checked_window(7, base, 1, MrAccess::REMOTE_READ);
        assert_eq!(read.err(), Some(Refusal::Access));
        regions.close(&region);
        assert_eq!(window(7, base, 1), Some(Refusal::Key));
    }

    #[test]
    fn local_region_takes_no_key() {
        let regions = Regions::default();
        let attr = RegionAttr { access: MrAccess::READ | MrAccess::WRITE, ..ATTR };
        let locals = [(); 2].map(|()| regions.add(Region::owned(1, attr).unwrap()).unwrap());
        let refused = regions.checked_window(7, 0, 1, MrAccess::REMOTE_READ).err();
        assert_eq!(refused, Some(Refusal::Key));
        let _remote = regions.add(Region::owned(1, ATTR).unwrap()).unwrap();
        locals.iter().for_each(|local| regions.close(local));
        assert!(
            regions.checked_window(7, 0, 1, MrAccess::REMOTE_WRITE).is_ok(),
            "the local ones took it with them"
        );
    }

    #[test]
    fn key_is_reusable_after_region_ends() {
        let regions = Regions::default();
        let first = regions.add(Region::owned(1, ATTR).unwrap()).unwrap();
        assert_eq!(regions.add(Region::owned(1, ATTR).unwrap()).err(), Some(Misuse::KeyInUse(7)));
        let mut window = regions.checked_window(7, 0, 1, MrAccess::REMOTE_WRITE).unwrap();
        regions.close(&first);
        regions.close(&first);
        let _second = regions.add(Region::owned(1, ATTR).unwrap()).unwrap();
        regions.close(&first);
        assert!(
            regions.checked_window(7, 0, 1, MrAccess::REMOTE_WRITE).is_ok(),
            "the first took the second with it"
        );
        assert!(window.open().is_none());
    }
}
