//! The regions of a peer that receives may fill.

use homespun::{Domain, SegmentMut};
use parking_lot::Mutex;

/// The memory of the regions of a peer that receives may fill.
///
/// When a region ends, the receives into it end, too, so that no later message changes memory that the
/// application may have freed. Receives name memory and not a region. So if another region has the same
/// memory, its receives stay: the application still lends that memory.
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

    /// Removes a region, and cancels the receives into its memory.
    pub(crate) fn remove(&self, memory: SegmentMut, domain: &Domain) {
        let mut regions = self.memory.lock();
        if let Some(index) = regions.iter().position(|region| *region == memory) {
            regions.swap_remove(index);
        }
        if !regions.iter().any(|region| region.overlaps(&memory)) {
            domain.cancel_receives_into(memory);
        }
    }
}
