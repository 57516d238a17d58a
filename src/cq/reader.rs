//! Hands a completion over to the thread that reads the queue.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use homespun_engine::buffer::Buffer;
use homespun_engine::completion::{EndedOperation, Received};

use super::completion::{Completion, CqFormat};
use crate::av::FabricAddress;
use crate::tag::Tag;

/// The largest number of messages that are taken at once.
const AT_ONCE_MAX_FRAMES: usize = 64;

/// A thread that reads a queue, and so drives the queue's endpoints. If the queue is empty, the next
/// completion goes straight to this thread, not through the ring.
pub(crate) struct Reader<'a> {
    /// The number of unread entries in the queue's ring. The address of this number identifies the queue.
    unread: &'a AtomicUsize,
    /// The completion that went straight to the thread. At most one: most reads ask for one entry, and
    /// other reads find the rest in the ring.
    pub(super) taken: Option<(Completion, FabricAddress)>,
    wants_one: bool,
    max: usize,
    /// Whether the next completion may go straight to the thread: the ring has no entry that must be read
    /// first, and was not overrun. Determined for each endpoint after the endpoint was locked.
    is_next: bool,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    pub(super) fn new(unread: &'a AtomicUsize, max: usize) -> Reader<'a> {
        Reader { unread, taken: None, wants_one: max > 0, max, is_next: false }
    }

    /// Returns how many messages are taken at once for this thread: no more than the read asks for, but at
    /// least one, since a read of no entry drives progress, too.
    #[inline(always)]
    pub(crate) fn budget_frames(&self) -> u32 {
        self.max.clamp(1, AT_ONCE_MAX_FRAMES) as u32
    }

    /// Allows a hand-over if the ring has no entry and was not overrun. Call this after locking an
    /// endpoint: all earlier completions of the endpoint are in the ring by then.
    #[inline(always)]
    pub(crate) fn allow_hand_over_if_ring_empty(&mut self) {
        self.is_next = self.unread.load(Ordering::Acquire) == 0;
    }

    /// Whether the next completion can be handed over, provided that it is for the queue that `unread`
    /// identifies.
    #[inline(always)]
    pub(crate) fn can_hand_over_from(&self, unread: &AtomicUsize) -> bool {
        self.is_next && self.wants_one && ptr::eq(self.unread, unread)
    }

    #[inline(always)]
    pub(crate) fn hand_over_completion(
        &mut self,
        ended: EndedOperation,
        format: CqFormat,
        source: FabricAddress,
    ) {
        let (completion, _) = self.taken.insert((Completion::default(), source));
        completion.fill(ended, format);
        self.wants_one = false;
    }

    /// As [`hand_over_completion`](Self::hand_over_completion), for a receive that hands no buffer back.
    #[inline(always)]
    pub(crate) fn hand_over_receive(
        &mut self,
        received: Received,
        format: CqFormat,
        source: Option<FabricAddress>,
    ) {
        let Received { context, flags, len_bytes, data, tag, source: _ } = received;
        let completion = Completion { context, flags, len_bytes, data, tag: Tag(tag), buffer: Buffer::None };
        let (completion, _) = self.taken.insert((completion, source.unwrap_or(FabricAddress::UNSPECIFIED)));
        if format != CqFormat::Tagged {
            format.clear_excluded_fields(completion);
        }
        self.wants_one = false;
    }

    /// Forbids a hand-over if `unread` identifies the thread's queue. Call this when an entry goes into the
    /// ring of that queue: later completions must go into the ring, after the entry.
    #[inline]
    pub(crate) fn forbid_hand_over_from(&mut self, unread: &AtomicUsize) {
        self.is_next &= !ptr::eq(self.unread, unread);
    }
}
