//! The regions of shareable memory that this process has allocated, by their addresses. A sender looks up
//! whether its payload lies in such a region.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use homespun_engine::fork::ForkGeneration;

use crate::exposed::{DESCRIPTOR_END, REGION_END_BYTES, RegionName};

/// The regions of this process. A forked child begins with an empty table of its own: at the fork, another
/// thread of the parent may have held the lock of the parent's table.
#[derive(Debug)]
struct Table {
    generation: ForkGeneration,
    /// The regions by their addresses.
    regions: RwLock<BTreeMap<usize, OwnRegion>>,
    /// The table of forked children.
    in_child: OnceLock<Box<Table>>,
}

/// A region of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnRegion {
    pub(crate) name: RegionName,
    len_bytes: usize,
}

static TABLE: OnceLock<Box<Table>> = OnceLock::new();

/// The lowest address of all regions so far, and the end of the highest. A look-up of memory outside takes no
/// lock, and writes nothing that another thread reads.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static END: AtomicUsize = AtomicUsize::new(0);

impl OwnRegion {
    /// The offset of a slice in the region. `None` if the region does not have all of the slice.
    pub(crate) fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        self.offset_of_range(slice.as_ptr().addr(), slice.len())
    }

    fn offset_of_range(&self, address: usize, len_bytes: usize) -> Option<u64> {
        let offset = (address as u64).checked_sub(self.name.address)?;
        let end_bytes = offset.checked_add(len_bytes as u64)?;
        (end_bytes <= self.len_bytes as u64).then_some(offset)
    }
}

impl Table {
    /// The table of this process.
    fn current() -> &'static Table {
        let mut place = &TABLE;
        loop {
            let table = place.get_or_init(|| {
                Box::new(Table {
                    generation: ForkGeneration::current(),
                    regions: RwLock::default(),
                    in_child: OnceLock::new(),
                })
            });
            if !table.generation.is_in_forked_child() {
                return table;
            }
            place = &table.in_child;
        }
    }
}

/// Adds a region. Does nothing for a region that cannot be described to peers.
pub(crate) fn add(name: RegionName, len_bytes: usize) {
    if name.descriptor >= DESCRIPTOR_END || len_bytes as u64 >= REGION_END_BYTES {
        return;
    }
    let mut regions = Table::current().regions.write().unwrap_or_else(PoisonError::into_inner);
    let address = name.address as usize;
    regions.insert(address, OwnRegion { name, len_bytes });
    LOWEST.fetch_min(address, Ordering::Relaxed);
    END.fetch_max(address.saturating_add(len_bytes), Ordering::Relaxed);
}

/// Removes a region, if the table has it.
pub(crate) fn remove(name: &RegionName) {
    let mut regions = Table::current().regions.write().unwrap_or_else(PoisonError::into_inner);
    if regions.get(&(name.address as usize)).is_some_and(|region| region.name == *name) {
        regions.remove(&(name.address as usize));
    }
}

/// The region that has all of a slice.
#[inline]
pub(crate) fn find(slice: &[u8]) -> Option<OwnRegion> {
    let address = slice.as_ptr().addr();
    // The thread that added a region has told this thread the address, and so the bounds, too.
    if address < LOWEST.load(Ordering::Relaxed) || address >= END.load(Ordering::Relaxed) {
        return None;
    }
    find_at(address, slice.len())
}

pub(crate) fn find_at(address: usize, len_bytes: usize) -> Option<OwnRegion> {
    let regions = Table::current().regions.read().unwrap_or_else(PoisonError::into_inner);
    let (_, region) = regions.range(..=address).next_back()?;
    region.offset_of_range(address, len_bytes).map(|_| *region)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other test has regions at such low addresses.
    fn make_name(address: u64) -> RegionName {
        RegionName { descriptor: 3, nonce: address, address }
    }

    #[test]
    fn region_with_all_of_a_range_is_found() {
        let names = [make_name(0x1000), make_name(0x3000)];
        for name in names {
            add(name, 0x1000);
        }
        let found = |address, len_bytes| find_at(address, len_bytes).map(|region| region.name);
        for (address, len_bytes, expected) in [
            (0x1000, 0x1000, Some(names[0])),
            (0x1fff, 1, Some(names[0])),
            (0x3010, 16, Some(names[1])),
            (0xfff, 2, None),
            (0x1fff, 2, None),
            (0x2000, 0x10, None),
            (0x1000, 0x3000, None),
            (0x3000, usize::MAX, None),
        ] {
            assert_eq!(found(address, len_bytes), expected, "{len_bytes:#x} bytes at {address:#x}");
        }
        remove(&RegionName { nonce: 7, ..names[0] });
        assert_eq!(found(0x1000, 1), Some(names[0]), "a later region has this address");
        names.iter().for_each(remove);
        assert_eq!((found(0x1000, 1), found(0x3000, 1)), (None, None));
    }

    #[test]
    fn region_that_cannot_be_described_is_not_added() {
        add(RegionName { descriptor: DESCRIPTOR_END, ..make_name(0x5000) }, 0x1000);
        add(make_name(0x5000), REGION_END_BYTES as usize);
        assert_eq!(find_at(0x5000, 1), None);
    }
}
