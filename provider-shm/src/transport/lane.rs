//! The lanes over shared memory: a message that is whole in one write, and one that is whole in one read.

use homespun_engine::transport::{FrameHandler, Glance, LinkId};
use homespun_engine::wire::Message;

use super::ShmTransport;
use crate::limits::{GLANCES_MAX, PULL_MIN_BYTES};
use crate::link::{Link, Slot};
use crate::ring::INLINE_MAX_BYTES;

// So no message that `write_message` takes is one that the peer should pull.
const _: () = assert!(INLINE_MAX_BYTES < PULL_MIN_BYTES);

/// The glances since the last pass, and how many may still come before the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Glances {
    /// How many more in a row may find nothing. 0: the next poll must make a pass.
    left: u32,
    /// The value of `left` when the last one has found a frame, or after the last pass.
    left_before: u32,
    /// How many others have found nothing.
    idle: u32,
    /// How many have found a frame.
    busy: u32,
}

impl Glances {
    /// Begins anew, after a pass. So many glances may find nothing before the next pass.
    pub(super) fn after_pass(left: u32) -> Glances {
        Glances { left, left_before: left, idle: 0, busy: 0 }
    }

    /// How many there were.
    pub(super) fn count(self) -> u32 {
        self.idle() + self.busy
    }

    /// How many have found nothing.
    pub(super) fn idle(self) -> u32 {
        self.idle + self.idle_in_a_row()
    }

    /// How many have found nothing since the last one that has found a frame.
    pub(super) fn idle_in_a_row(self) -> u32 {
        self.left_before - self.left
    }

    /// Makes the next poll make a pass.
    #[inline]
    pub(super) fn end(&mut self) {
        self.idle += self.idle_in_a_row();
        (self.left, self.left_before) = (0, 0);
    }

    /// Counts a glance that has found a frame. So many further ones in a row may find nothing, unless there
    /// were as many as may come between two passes.
    #[inline(always)]
    fn count_busy(&mut self, left: u32) {
        self.busy += 1;
        self.idle += self.idle_in_a_row();
        self.left = if self.idle + self.busy < GLANCES_MAX { left } else { 0 };
        self.left_before = self.left;
    }
}

impl ShmTransport {
    /// Writes a message and wakes the peer if it sleeps, without the lists of links: only this link has sent.
    /// Returns false, and changes nothing, if the message is too long or the ring has no room, or if other
    /// links have sent.
    #[inline(always)]
    pub(super) fn write_message(&mut self, link: LinkId, message: &Message, payload: &[u8]) -> bool {
        if payload.len() > INLINE_MAX_BYTES || !self.dirty.is_empty() {
            return false;
        }
        let Some(link) = self.link_mut(link).filter(|link| !link.has_hung_up) else { return false };
        let Some(outgoing) = &mut link.outgoing else { return false };
        if outgoing.ring.send_message(message, payload).is_err() {
            return false;
        }
        outgoing.has_sent = true;
        if outgoing.ring.take_wake_request() {
            outgoing.ring_doorbell();
        }
        true
    }

    /// Looks at the next line of each hot ring.
    #[inline(always)]
    pub(super) fn look_at_rings(&mut self) -> Glance {
        if self.glances.left == 0 || self.hot.is_empty() || self.generation.is_in_forked_child() {
            return Glance::Pass;
        }
        let mut at = self.turn;
        for _ in 0..self.hot.len() {
            at = if at < self.hot.len() { at } else { 0 };
            let id = self.hot[at];
            match self.links.get(id) {
                Some(Slot::Made(link)) if link.incoming.is_some() => {
                    if link.has_frame() {
                        self.turn = at;
                        return Glance::Frame(id);
                    }
                }
                _ => return Glance::Pass,
            }
            at += 1;
        }
        self.glances.left -= 1;
        Glance::Nothing
    }

    /// Offers messages of a hot ring to the handler. Returns how many it has taken.
    #[inline(always)]
    pub(super) fn offer_messages(
        &mut self,
        id: LinkId,
        budget_frames: u32,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let Some(Slot::Made(link)) = self.links.get_mut(id) else { return 0 };
        let Some(incoming) = &mut link.incoming else { return 0 };
        let mut taken = 0;
        while taken < budget_frames && incoming.ring.offer_message(id, receiver) {
            taken += 1;
        }
        if taken == 0 {
            return 0;
        }
        incoming.empty_polls = 0;
        link.note_messages_read();
        self.glances.count_busy(self.pace.glances_max());
        self.idle_polls = 0;
        self.turn += 1;
        taken
    }
}

impl Link {
    /// Whether the peer's ring has a frame.
    #[inline(always)]
    fn has_frame(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.ring.is_empty())
    }
}
