//! The entries of a completion queue.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::CqShared;
use super::completion::{Completion, CompletionError};
use crate::av::FabricAddress;
use crate::lock::LockGuard;

/// The largest number of entries that a read removes before it unlocks the ring.
const READ_BATCH_ENTRIES: usize = 4;

/// The entries that a read removes before it unlocks the ring.
pub(super) type Batch = SmallVec<[(Completion, FabricAddress); READ_BATCH_ENTRIES]>;

/// The entries, never more than the queue's depth.
pub(crate) struct Ring {
    entries: VecDeque<RingEntry>,
    /// The largest number of entries: the queue's depth, or 0 once the queue was overrun.
    limit_entries: usize,
    /// The number of entries of failed operations.
    failed_entries: usize,
}

pub(super) enum RingEntry {
    Completed(Completion, FabricAddress),
    Failed(Box<CompletionError>),
}

/// A ring that is locked.
pub(crate) struct RingGuard<'a> {
    ring: LockGuard<'a, Ring>,
    /// The queue of the ring. When the guard unlocks the ring, it stores [`Ring::unread_entries`] in the
    /// queue. If there are entries, the guard also rings the queue's doorbell.
    cq: &'a CqShared,
}

impl Ring {
    /// Creates an empty ring. The depth must not be 0: a limit of 0 marks an overrun ring.
    pub(super) fn new(depth_entries: usize) -> Ring {
        debug_assert!(depth_entries > 0);
        Ring { entries: VecDeque::new(), limit_entries: depth_entries, failed_entries: 0 }
    }

    /// Returns the oldest entry.
    #[inline]
    pub(super) fn front(&self) -> Option<&RingEntry> {
        self.entries.front()
    }

    /// Removes and returns the oldest entry, if its operation has succeeded.
    #[inline]
    pub(super) fn pop_one_completed(&mut self) -> Option<(Completion, FabricAddress)> {
        if matches!(self.entries.front(), Some(RingEntry::Completed(..)))
            && let Some(RingEntry::Completed(completion, source)) = self.entries.pop_front()
        {
            Some((completion, source))
        } else {
            None
        }
    }

    /// If the operation of the oldest entry has succeeded, shows the entry to `look` and removes it. Returns
    /// whether it has removed the entry.
    #[inline(always)]
    pub(super) fn drop_front_if_completed(&mut self, look: impl FnOnce(&Completion, FabricAddress)) -> bool {
        let Some(RingEntry::Completed(completion, source)) = self.entries.front() else { return false };
        look(completion, *source);
        drop(self.entries.pop_front());
        true
    }

    /// Moves entries from the front to `batch`. Stops at the entry of a failed operation, at the end of the
    /// ring, and when `batch` has `max` entries or is full.
    #[inline]
    pub(super) fn pop_completed(&mut self, max: usize, batch: &mut Batch) {
        while batch.len() < max.min(READ_BATCH_ENTRIES)
            && matches!(self.entries.front(), Some(RingEntry::Completed(..)))
            && let Some(RingEntry::Completed(completion, source)) = self.entries.pop_front()
        {
            batch.push((completion, source));
        }
    }

    /// Removes and returns the oldest entry, if its operation has failed.
    pub(super) fn pop_failed(&mut self) -> Option<Box<CompletionError>> {
        match self.entries.pop_front()? {
            RingEntry::Failed(error) => {
                self.failed_entries -= 1;
                Some(error)
            }
            completed => {
                self.entries.push_front(completed);
                None
            }
        }
    }

    /// Returns the number of entries to read, or `usize::MAX` if the queue was overrun. An overrun queue
    /// must never look empty: the read after the last entry reports the overrun.
    #[inline]
    pub(super) fn unread_entries(&self) -> usize {
        if self.is_overrun() { usize::MAX } else { self.entries.len() }
    }

    /// Whether the ring has an entry of a failed operation, at any place.
    pub(super) fn has_failed(&self) -> bool {
        self.failed_entries > 0
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() < self.limit_entries
    }

    /// Records that a completion was lost for lack of room. From now on the ring has no room, but the
    /// entries in it can still be read.
    #[cold]
    pub(crate) fn mark_overrun(&mut self) {
        self.limit_entries = 0;
    }

    #[inline]
    pub(super) fn is_overrun(&self) -> bool {
        self.limit_entries == 0
    }

    /// Appends a completion. There must be room.
    #[inline(always)]
    pub(crate) fn push_completed(&mut self, completion: Completion, source: FabricAddress) {
        debug_assert!(self.has_room());
        self.entries.push_back(RingEntry::Completed(completion, source));
    }

    /// Appends an error. There must be room.
    pub(crate) fn push_failed(&mut self, error: CompletionError) {
        debug_assert!(self.has_room());
        self.failed_entries += 1;
        self.entries.push_back(RingEntry::Failed(Box::new(error)));
    }
}

impl<'a> RingGuard<'a> {
    #[inline]
    pub(super) fn new(ring: LockGuard<'a, Ring>, cq: &'a CqShared) -> RingGuard<'a> {
        RingGuard { ring, cq }
    }
}

impl Deref for RingGuard<'_> {
    type Target = Ring;

    #[inline]
    fn deref(&self) -> &Ring {
        &self.ring
    }
}

impl DerefMut for RingGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }
}

impl Drop for RingGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let unread = self.ring.unread_entries();
        self.cq.unread.store(unread, Ordering::Release);
        if unread > 0
            && let Some(waiter) = self.cq.waiter()
        {
            waiter.ring();
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("entries", &self.entries.len())
            .field("is_overrun", &self.is_overrun())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH_ENTRIES: usize = 3;

    fn make_completion(context: u64) -> Completion {
        Completion { context, ..Completion::default() }
    }

    fn push_context(ring: &mut Ring, context: u64) {
        ring.push_completed(make_completion(context), FabricAddress::UNSPECIFIED);
    }

    fn pop_contexts(ring: &mut Ring) -> Vec<u64> {
        let mut batch = Batch::new();
        ring.pop_completed(usize::MAX, &mut batch);
        batch.into_iter().map(|(completion, _)| completion.context).collect()
    }

    #[test]
    fn ring_holds_as_many_entries_as_its_size() {
        let mut ring = Ring::new(DEPTH_ENTRIES);
        for context in 1..=3 {
            assert!(ring.has_room());
            push_context(&mut ring, context);
        }
        assert!(!ring.has_room());
        assert_eq!(pop_contexts(&mut ring), [1, 2, 3]);
        assert!(ring.has_room() && ring.unread_entries() == 0);
    }

    #[test]
    fn overrun_ring_keeps_entries_and_refuses_new_ones() {
        let mut ring = Ring::new(DEPTH_ENTRIES);
        for context in 1..=3 {
            push_context(&mut ring, context);
        }
        assert_eq!(ring.unread_entries(), DEPTH_ENTRIES);
        ring.mark_overrun();
        assert!(ring.is_overrun() && !ring.has_room());
        assert_eq!(pop_contexts(&mut ring), [1, 2, 3]);
        assert!(ring.is_overrun() && !ring.has_room());
        assert!(ring.unread_entries() > 0, "that it was overrun is to be read for ever");
    }
}
