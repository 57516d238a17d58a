//! The regions of a peer that receives may fill.

use homespun::{Domain, SegmentMut};
use parking_lot::Mutex;

/// The memory of the regions of a peer that receives may fill.
///
/// When a region ends, the receives into it end, too, so that no later message changes memory that the
/// application may have freed. Receives name memory and not a region. So if other regions have all memory of
/// a receive, it stays: the application still lends that memory.
#[derive(Debug, Default)]
pub(crate) struct ReceiveRegions {
    /// Locked while receives are cancelled. So a region of the same memory that is registered meanwhile has
    /// no receives yet.
    memory: Mutex<Vec<SegmentMut>>,
}

impl ReceiveRegions {
    pub(crate) fn add(&self, memory: SegmentMut) {
        self.memory.lock().push(memory);
    }

    /// Removes a region, and cancels the receives into memory that no region has any more.
    pub(crate) fn remove(&self, memory: SegmentMut, domain: &Domain) {
        let mut regions = self.memory.lock();
        if let Some(index) = regions.iter().position(|region| *region == memory) {
            regions.swap_remove(index);
        }
        for part in parts_outside(memory, &regions) {
            domain.cancel_receives_into(part);
        }
    }
}

/// Returns the parts of `memory` that no region has, in ascending order.
fn parts_outside(memory: SegmentMut, regions: &[SegmentMut]) -> Vec<SegmentMut> {
    // Offsets from the start of `memory`, since an end may lie beyond the last address.
    let start = memory.address.addr();
    let mut covered: Vec<_> = regions
        .iter()
        .filter(|region| region.overlaps(&memory))
        .map(|region| match region.address.addr().checked_sub(start) {
            Some(behind_bytes) => (behind_bytes, behind_bytes.saturating_add(region.len_bytes)),
            None => (0, region.len_bytes - (start - region.address.addr())),
        })
        .collect();
    covered.sort_unstable();
    let mut parts = Vec::new();
    let mut reached = 0;
    for (first, end) in covered.into_iter().chain([(memory.len_bytes, memory.len_bytes)]) {
        if first > reached {
            let address = memory.address.wrapping_add(reached);
            parts.push(SegmentMut { address, len_bytes: first - reached });
        }
        reached = reached.max(end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn segment(start: usize, len_bytes: usize) -> SegmentMut {
        SegmentMut { address: ptr::without_provenance_mut(start), len_bytes }
    }

    #[test]
    fn memory_outside_other_regions_is_what_none_of_them_has() {
        let whole = segment(1000, 100);
        let cases = [
            (vec![], vec![whole]),
            (vec![whole], vec![]),
            (vec![segment(900, 300)], vec![]),
            (vec![segment(900, 100), segment(1100, 5), segment(1050, 0)], vec![whole]),
            (vec![segment(1050, 100)], vec![segment(1000, 50)]),
            (vec![segment(950, 60)], vec![segment(1010, 90)]),
            (
                vec![segment(1040, 10), segment(1020, 10)],
                vec![segment(1000, 20), segment(1030, 10), segment(1050, 50)],
            ),
            (vec![segment(1060, 40), segment(1000, 60)], vec![]),
            (vec![segment(1000, 80), segment(1010, 10)], vec![segment(1080, 20)]),
        ];
        for (regions, expected) in cases {
            assert_eq!(parts_outside(whole, &regions), expected, "{regions:?}");
        }
        let last = segment(usize::MAX - 9, 10);
        assert_eq!(parts_outside(last, &[segment(usize::MAX - 4, 5)]), [segment(usize::MAX - 9, 5)]);
    }
}
