//! Persistent memory: `FI_RMA_PMEM` and `FI_COMMIT_COMPLETE`, `fi_cq(3)`.
//!
//! If a write must be durable, the target answers once the bytes are durable. The bytes of other
//! writes may stay in the caches of the processor or the system. A write that must be durable may
//! also have a fence. Then the target makes all earlier writes of the same peer durable, before it
//! places the first byte of the fenced write. So if the fenced write survives a power failure, all
//! earlier writes survive too. The target records writes that are not durable for each peer, not
//! for each link, since a fence also covers writes on ended links.
//!
//! Making memory durable takes as long as the device needs. Meanwhile the endpoint does nothing
//! else.

use std::collections::hash_map::Entry;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Weak};

use super::Target;
use crate::mutated;
use crate::reassembly::clamp_to_usize;
use crate::region::{Region, Window};
use crate::transport::LinkId;
use crate::wire::Durable;

/// A peer's writes to persistent memory that completed before they were durable. Each region has
/// one range, which covers all writes to the region.
#[derive(Debug, Default)]
pub(super) struct Unpersisted {
    written: Vec<Written>,
    /// Whether some of these writes were to regions that have ended, and no answer has reported
    /// this yet.
    is_incomplete: bool,
}

#[derive(Debug)]
struct Written {
    region: Weak<Region>,
    begin_bytes: usize,
    end_bytes: usize,
}

impl Target {
    /// Makes all earlier writes of the link's peer durable, if `durable` demands it. Returns
    /// whether the next write may go on: `false` if an earlier write could not be made durable.
    pub(super) fn persist_earlier_writes_if_asked(&mut self, id: LinkId, durable: Durable) -> bool {
        if durable != Durable::Everything {
            return true;
        }
        let Some(peer) = self.links.get_mut(id).map(|link| link.peer) else { return true };
        let Entry::Occupied(mut unpersisted) = self.unpersisted.entry(peer) else { return true };
        let is_durable = unpersisted.get_mut().try_persist_all();
        if unpersisted.get().written.is_empty() {
            unpersisted.remove();
        }
        is_durable
    }

    /// Makes a completed write to persistent memory durable, if the peer has asked for it.
    /// Otherwise records the write for a later fenced write. Returns false if the write could not
    /// be made durable.
    pub(super) fn persist_or_note_write(
        &mut self,
        id: LinkId,
        window: &mut Window,
        durable: Durable,
        len_bytes: u64,
    ) -> bool {
        if !window.region().is_persistent() {
            return true;
        }
        let is_broken = mutated!("fi_cq/commit-means-durable") || mutated!("fi_rma/rma-commit");
        if durable != Durable::Nothing && !is_broken {
            return window.open().is_some_and(|open| open.try_persist(0, clamp_to_usize(len_bytes)));
        }
        let range = window.region_range(clamp_to_usize(len_bytes));
        if !range.is_empty()
            && let Some(peer) = self.links.get_mut(id).map(|link| link.peer)
        {
            self.unpersisted.entry(peer).or_default().note_written(window, range);
        }
        true
    }
}

impl Unpersisted {
    /// Records a write to this range of a window's region.
    fn note_written(&mut self, window: &Window, range: Range<usize>) {
        let is_same = |written: &&mut Written| written.region.as_ptr() == Arc::as_ptr(window.region());
        match self.written.iter_mut().find(is_same) {
            Some(written) => {
                written.begin_bytes = written.begin_bytes.min(range.start);
                written.end_bytes = written.end_bytes.max(range.end);
            }
            None => {
                let count_before = self.written.len();
                self.written.retain(|written| written.region_if_open().is_some());
                self.is_incomplete |= self.written.len() < count_before;
                let region = Arc::downgrade(window.region());
                self.written.push(Written { region, begin_bytes: range.start, end_bytes: range.end });
            }
        }
    }

    /// Makes the recorded writes durable. Returns whether all of them are durable now. Keeps the others for
    /// the next call. If the region of a write has ended, the call returns `false` once, and forgets the
    /// write.
    fn try_persist_all(&mut self) -> bool {
        let mut is_durable = !mem::take(&mut self.is_incomplete);
        self.written.retain(|written| {
            let Some(region) = written.region_if_open() else {
                is_durable = false;
                return false;
            };
            let is_now = region.try_persist(written.begin_bytes, written.end_bytes - written.begin_bytes);
            is_durable &= is_now;
            !is_now
        });
        is_durable
    }
}

impl Written {
    /// Returns the region, if it has not ended.
    fn region_if_open(&self) -> Option<Arc<Region>> {
        self.region.upgrade().filter(|region| region.is_open())
    }
}
