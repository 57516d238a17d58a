//! The entries of a completion queue.

use std::ops::{Deref, DerefMut};
use std::{fmt, mem};

use homespun_engine::buffer::Buffer;
use homespun_engine::completion::EndedOperation;
use homespun_engine::flags::CompletionFlags;
use smallvec::SmallVec;

use super::CqShared;
use super::completion::{Completion, CompletionError, CqFormat};
use crate::av::FabricAddress;
use crate::lock::LockGuard;
use crate::mutated;
use crate::tag::Tag;

/// The largest number of entries that a read removes before it unlocks the ring.
const READ_BATCH_ENTRIES: usize = 4;

/// The entries that a read removes before it unlocks the ring.
pub(super) type Batch = SmallVec<[(Completion, FabricAddress); READ_BATCH_ENTRIES]>;

/// How many places a ring has at first.
const INITIAL_PLACES: usize = 16;

/// The entries, never more than the queue's depth.
///
/// Entries are written and read in their places: to move a completion costs more than to make it.
pub(crate) struct Ring {
    /// As many places as were needed at once so far, rounded up to a power of two. They are used in turn.
    places: Vec<Place>,
    /// The place of the oldest entry.
    first: usize,
    /// The number of entries.
    count: usize,
    /// The largest number of entries: the queue's depth, or 0 once the queue was overrun.
    limit_entries: usize,
    /// The number of entries of failed operations.
    failed_entries: usize,
}

/// A place for an entry.
#[derive(Default)]
struct Place {
    /// In a place without an entry, and in the entry of a failed operation, the buffer is [`Buffer::None`].
    completion: Completion,
    source: FabricAddress,
    /// `Some` in the entry of a failed operation. This box then has its completion.
    failure: Option<Box<CompletionError>>,
}

/// Whether the operation of an entry has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Completed,
    Failed,
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
        Ring { places: Vec::new(), first: 0, count: 0, limit_entries: depth_entries, failed_entries: 0 }
    }

    /// Returns how the operation of the oldest entry has ended.
    #[inline]
    pub(super) fn front(&self) -> Option<EntryKind> {
        let place = self.places.get(self.first).filter(|_| self.count > 0)?;
        Some(if place.failure.is_some() { EntryKind::Failed } else { EntryKind::Completed })
    }

    /// Removes and returns the oldest entry, if its operation has succeeded.
    #[inline]
    pub(super) fn pop_one_completed(&mut self) -> Option<(Completion, FabricAddress)> {
        if self.front() != Some(EntryKind::Completed) {
            return None;
        }
        let place = &mut self.places[self.first];
        let entry = (mem::take(&mut place.completion), place.source);
        self.advance_first();
        Some(entry)
    }

    /// If the operation of the oldest entry has succeeded, shows the entry to `look` and removes it. Returns
    /// whether it has removed the entry.
    #[inline(always)]
    pub(super) fn drop_front_if_completed(&mut self, look: impl FnOnce(&Completion, FabricAddress)) -> bool {
        if self.front() != Some(EntryKind::Completed) {
            return false;
        }
        let place = &mut self.places[self.first];
        look(&place.completion, place.source);
        if !matches!(place.completion.buffer, Buffer::None) {
            place.completion.buffer = Buffer::None;
        }
        self.advance_first();
        true
    }

    /// Moves entries from the front to `batch`. Stops at the entry of a failed operation, at the end of the
    /// ring, and when `batch` has `max` entries or is full.
    #[inline]
    pub(super) fn pop_completed(&mut self, max: usize, batch: &mut Batch) {
        while batch.len() < max.min(READ_BATCH_ENTRIES)
            && let Some(entry) = self.pop_one_completed()
        {
            batch.push(entry);
        }
    }

    /// Removes and returns the oldest entry, if its operation has failed.
    pub(super) fn pop_failed(&mut self) -> Option<Box<CompletionError>> {
        if self.count == 0 {
            return None;
        }
        let failure = self.places[self.first].failure.take()?;
        self.failed_entries -= 1;
        self.advance_first();
        Some(failure)
    }

    /// Removes the oldest entry. Its buffer or failure must be gone from its place.
    #[inline(always)]
    fn advance_first(&mut self) {
        self.first = (self.first + 1) & (self.places.len() - 1);
        self.count -= 1;
    }

    /// Appends an entry, and returns its place.
    #[inline(always)]
    fn append_place(&mut self) -> &mut Place {
        debug_assert!(self.has_room());
        if self.count == self.places.len() {
            self.add_places();
        }
        let last = (self.first + self.count) & (self.places.len() - 1);
        self.count += 1;
        &mut self.places[last]
    }

    /// Doubles the number of places. All places must be in use.
    #[cold]
    fn add_places(&mut self) {
        self.places.rotate_left(self.first);
        self.first = 0;
        let count = (2 * self.places.len()).max(INITIAL_PLACES);
        self.places.resize_with(count, Place::default);
    }

    /// Returns the number of entries to read, or `usize::MAX` if the queue was overrun. An overrun queue
    /// must never look empty: the read after the last entry reports the overrun.
    #[inline]
    pub(super) fn unread_entries(&self) -> usize {
        if self.is_overrun() { usize::MAX } else { self.count }
    }

    /// Whether the ring has an entry of a failed operation, at any place.
    pub(super) fn has_failed(&self) -> bool {
        self.failed_entries > 0
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.count < self.limit_entries
            || mutated!("fi_cq/overrun-is-final") && self.is_overrun() && self.count == 0
    }

    /// Records that a completion was lost for lack of room. From now on the ring has no room, but the
    /// entries in it can still be read.
    #[cold]
    pub(crate) fn mark_overrun(&mut self) {
        self.limit_entries = 0;
        if mutated!("fi_cq/overrun-returns-entries") {
            self.count = 0;
        }
    }

    #[inline]
    pub(super) fn is_overrun(&self) -> bool {
        self.limit_entries == 0 && !mutated!("fi_cq/overrun-then-eoverrun")
    }

    /// Appends the completion of an operation, for a queue of this format. There must be room.
    #[inline(always)]
    pub(crate) fn push_completed(&mut self, ended: EndedOperation, format: CqFormat, source: FabricAddress) {
        let place = self.append_place();
        place.source = source;
        place.completion.fill(ended, format);
        if mutated!("fi_cq/error-hides-later-entries") && self.front() == Some(EntryKind::Failed) {
            self.move_last_to_front();
        }
    }

    /// Appends the completion of a send, for a queue of this format. There must be room.
    #[inline(always)]
    pub(super) fn push_send(
        &mut self,
        context: u64,
        flags: CompletionFlags,
        format: CqFormat,
        buffer: Buffer,
    ) {
        let Place { completion, source, .. } = self.append_place();
        *source = FabricAddress::UNSPECIFIED;
        completion.context = context;
        completion.flags = if format == CqFormat::Context { CompletionFlags::empty() } else { flags };
        (completion.len_bytes, completion.data, completion.tag) = (0, 0, Tag(0));
        // A place without an entry has no buffer to drop.
        if matches!(buffer, Buffer::None) {
            mem::forget(buffer);
        } else {
            completion.buffer = buffer;
        }
    }

    /// Appends an error. There must be room.
    pub(crate) fn push_failed(&mut self, error: CompletionError) {
        if mutated!("fi_cq/failures-are-apart") {
            let place = self.append_place();
            (place.source, place.completion) = (error.source, error.completion);
            return;
        }
        self.append_place().failure = Some(Box::new(error));
        self.failed_entries += 1;
        if mutated!("fi_cq-1.4/error-queue") {
            self.move_last_to_front();
        }
    }

    /// Makes the newest entry the oldest, for mutants.
    #[cold]
    fn move_last_to_front(&mut self) {
        let mask = self.places.len() - 1;
        let (last, front) = ((self.first + self.count - 1) & mask, self.first.wrapping_sub(1) & mask);
        self.places.swap(last, front);
        self.first = front;
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
        self.cq.note_unread(&self.ring);
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("entries", &self.count).field("is_overrun", &self.is_overrun()).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use homespun_engine::error::OperationError;

    use super::*;

    const DEPTH_ENTRIES: usize = 3;

    fn push_context(ring: &mut Ring, context: u64) {
        let ended = EndedOperation::of_transmit(context, CompletionFlags::empty(), Buffer::None);
        ring.push_completed(ended, CqFormat::Tagged, FabricAddress::UNSPECIFIED);
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
    fn ring_that_has_wrapped_grows_in_order() {
        let mut ring = Ring::new(100);
        (0..INITIAL_PLACES as u64).for_each(|context| push_context(&mut ring, context));
        assert_eq!(pop_contexts(&mut ring), [0, 1, 2, 3]);
        (16..60).for_each(|context| push_context(&mut ring, context));
        let mut read = Vec::new();
        while ring.unread_entries() > 0 {
            read.extend(pop_contexts(&mut ring));
        }
        assert!(read.into_iter().eq(4..60));
    }

    #[test]
    fn failure_keeps_its_place_when_the_ring_grows() {
        let mut ring = Ring::new(100);
        (0..15).for_each(|context| push_context(&mut ring, context));
        ring.push_failed(CompletionError {
            completion: Completion { context: 15, ..Completion::default() },
            error: OperationError::Cancelled,
            source: FabricAddress::UNSPECIFIED,
            peer: None,
        });
        (16..20).for_each(|context| push_context(&mut ring, context));
        assert!(ring.has_failed());
        let mut read = Vec::new();
        while let Some((completion, _)) = ring.pop_one_completed() {
            read.push(completion.context);
        }
        assert!(read.into_iter().eq(0..15), "the failure ends the successes before it");
        assert_eq!(ring.pop_failed().map(|failure| failure.completion.context), Some(15));
        assert!(!ring.has_failed());
        assert_eq!(pop_contexts(&mut ring), [16, 17, 18, 19]);
    }

    #[test]
    fn entry_that_was_shown_leaves_no_buffer_behind() {
        let mut ring = Ring::new(DEPTH_ENTRIES);
        let payload = Bytes::from(vec![1; 64]);
        let buffer = Buffer::Sent(payload.clone());
        let ended = EndedOperation::of_transmit(1, CompletionFlags::empty(), buffer);
        ring.push_completed(ended, CqFormat::Tagged, FabricAddress::UNSPECIFIED);
        assert!(!payload.is_unique());
        let is_shown = ring.drop_front_if_completed(|shown, _| {
            assert_eq!(shown.buffer, Buffer::Sent(payload.clone()));
        });
        assert!(is_shown && payload.is_unique());
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
