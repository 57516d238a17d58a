//! The hand-over of a completion to the thread that reads the queue.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::completion::Completion;
use crate::av::FabricAddress;

/// A thread that reads a queue and drives its endpoints for that. What completes when the queue is empty is
/// handed over at once, without a detour through the ring.
pub(crate) struct Reader<'a> {
    /// The number of entries in the queue's ring; its address identifies the queue.
    unread: &'a AtomicUsize,
    /// The completion that was handed over. One is enough: most reads ask for one, and others find
    /// the rest in the ring.
    pub(super) taken: Option<(Completion, FabricAddress)>,
    wants_one: bool,
    /// Whether nothing is in the ring that would have to be read first, be it that the queue was
    /// overrun. Only what is behind the lock of the endpoint that is being driven counts: what
    /// another endpoint reports has no order with this one's.
    is_next: bool,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    pub(super) fn new(unread: &'a AtomicUsize, max: usize) -> Reader<'a> {
        Reader { unread, taken: None, wants_one: max > 0, is_next: false }
    }

    /// An endpoint's lock was taken, and with it all that it has reported before is known.
    #[inline(always)]
    pub(crate) fn refresh_is_next(&mut self) {
        self.is_next = self.unread.load(Ordering::Acquire) == 0;
    }

    /// Whether the next completion that is for the queue with these unread entries can be handed over.
    #[inline(always)]
    pub(crate) fn can_take_from(&self, unread: &AtomicUsize) -> bool {
        self.is_next && self.wants_one && ptr::eq(self.unread, unread)
    }

    #[inline(always)]
    pub(crate) fn hand_over(&mut self, completion: Completion, source: FabricAddress) {
        self.taken = Some((completion, source));
        self.wants_one = false;
    }

    /// Something went into that queue's ring, so that the rest has to queue behind it.
    #[inline]
    pub(crate) fn ring_written(&mut self, unread: &AtomicUsize) {
        self.is_next &= !ptr::eq(self.unread, unread);
    }
}
