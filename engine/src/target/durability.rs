//! Persistent memory: `FI_RMA_PMEM` and `FI_COMMIT_COMPLETE`, `fi_cq(3)`.
//!
//! A write that is to be durable is answered when its bytes are. Those of others stay where the
//! processor or the system has them, until a write comes that is to be durable *and* fenced: then
//! everything is that its peer has brought before, for a fence promises that what is before it has
//! reached its level. What that is, is remembered for each peer, since a fence does not end with a
//! link. It is made durable before the first byte of that write is put anywhere, so that a write
//! that is found after the power has failed is found with all that came before it.
//!
//! To make memory durable takes as long as the device does, and the endpoint does nothing else meanwhile.

use std::collections::hash_map::Entry;
use std::mem;
use std::sync::{Arc, Weak};

use super::Target;
use crate::reassembly::clamp_to_usize;
use crate::region::{Region, Window};
use crate::transport::LinkId;
use crate::wire::Durable;

/// What a peer has brought to persistent memory without waiting for it to be durable: for each
/// region, all between the first byte and the last.
#[derive(Debug, Default)]
pub(super) struct Unpersisted {
    written: Vec<Written>,
    /// Whether some of it was in regions that have ended, and the peer was not answered so yet.
    is_incomplete: bool,
}

#[derive(Debug)]
struct Written {
    region: Weak<Region>,
    begin_bytes: usize,
    end_bytes: usize,
}

impl Target {
    /// Makes all earlier writes of a link's peer durable, before a write that must be durable after
    /// them. Returns whether that succeeded.
    pub(super) fn persist_earlier_writes(&mut self, id: LinkId, durable: Durable) -> bool {
        if durable != Durable::Everything {
            return true;
        }
        let Some(peer) = self.links.get_mut(id).map(|link| link.peer) else { return true };
        let Entry::Occupied(mut unpersisted) = self.unpersisted.entry(peer) else { return true };
        let is_durable = unpersisted.get_mut().persist_all();
        if unpersisted.get().written.is_empty() {
            unpersisted.remove();
        }
        is_durable
    }

    /// All of a write is in its place. Makes it durable if its peer asked for that. Returns whether
    /// that succeeded.
    pub(super) fn persist_write(
        &mut self,
        id: LinkId,
        window: &Window,
        durable: Durable,
        len_bytes: u64,
    ) -> bool {
        if !window.region().is_persistent() {
            return true;
        }
        if durable != Durable::Nothing {
            return window.persist(clamp_to_usize(len_bytes));
        }
        if let Some(peer) = self.links.get_mut(id).map(|link| link.peer) {
            self.unpersisted.entry(peer).or_default().note_written(window, clamp_to_usize(len_bytes));
        }
        true
    }
}

impl Unpersisted {
    /// The first `len_bytes` of a window were written.
    fn note_written(&mut self, window: &Window, len_bytes: usize) {
        let range = window.region_range(len_bytes);
        if range.is_empty() {
            return;
        }
        let is_same = |written: &&mut Written| written.region.as_ptr() == Arc::as_ptr(window.region());
        match self.written.iter_mut().find(is_same) {
            Some(written) => {
                written.begin_bytes = written.begin_bytes.min(range.start);
                written.end_bytes = written.end_bytes.max(range.end);
            }
            None => {
                let count_before = self.written.len();
                self.written.retain(|written| written.open_region().is_some());
                self.is_incomplete |= self.written.len() < count_before;
                let region = Arc::downgrade(window.region());
                self.written.push(Written { region, begin_bytes: range.start, end_bytes: range.end });
            }
        }
    }

    /// Makes it durable. Returns whether all of it is. The rest may succeed another time, except
    /// writes to regions that have ended: these fail once, and are then forgotten.
    fn persist_all(&mut self) -> bool {
        let mut is_durable = !mem::take(&mut self.is_incomplete);
        self.written.retain(|written| {
            let Some(region) = written.open_region() else {
                is_durable = false;
                return false;
            };
            let is_now = region.persist(written.begin_bytes, written.end_bytes - written.begin_bytes);
            is_durable &= is_now;
            !is_now
        });
        is_durable
    }
}

impl Written {
    /// The region, if it has not ended.
    fn open_region(&self) -> Option<Arc<Region>> {
        self.region.upgrade().filter(|region| region.is_open())
    }
}
