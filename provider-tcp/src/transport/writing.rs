//! Writing to links: frames at once, and staged frames when the caller flushes or hands over.

use std::mem;

use homespun_engine::transport::LinkId;

use super::{TcpTransport, enlist_dirty, enlist_ready};
use crate::link::Link;
use crate::socket::Departure;
use crate::staging::SpareBuffers;

impl TcpTransport {
    /// Writes on a link, and lists the link for the flush. If the write has failed, also lists the link for
    /// a read.
    pub(super) fn write_and_enlist<T>(
        &mut self,
        id: LinkId,
        write: impl FnOnce(&mut Link, &mut SpareBuffers) -> T,
    ) -> Option<T> {
        let link = self.links.link_mut(id).filter(|link| link.can_take_frames())?;
        let result = write(link, &mut self.spare);
        if !link.outbound.can_write() {
            // Poll the kernel in the next pass, to learn soon when there is room.
            self.busy_link.force_kernel_poll();
        }
        enlist_dirty(&mut self.dirty, id, link);
        if link.outbound.failure().is_some() {
            // After a failed write, the link first reads the frames that the peer has already sent. Then it
            // ends.
            link.mark_hung_up();
            enlist_ready(&mut self.ready, id, link);
        }
        Some(result)
    }

    #[inline(never)]
    pub(super) fn flush_dirty_links(&mut self) {
        let mut dirty = mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            // The list may have a link twice, or the number of an ended link. So the link's own mark
            // decides.
            if self.links.link_mut(id).is_some_and(|link| mem::take(&mut link.in_dirty)) {
                self.flush_link(id);
            }
        }
        self.dirty = dirty;
    }

    /// Writes the staged frames of posts. The kernel may hold back those of a burst.
    #[inline(never)]
    pub(super) fn hand_over_dirty_links(&mut self) {
        let mut dirty = mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(link) = self.links.link_mut(id) else { continue };
            if !mem::take(&mut link.in_dirty) {
                continue;
            }
            if link.burst.is_empty() {
                self.bursting.push(id);
            }
            let staged_bytes = link.outbound.staged_bytes();
            let departure =
                link.burst.add_post(staged_bytes, || self.burst_clock.now(), &mut self.hold_policy);
            self.write_staged(id, departure);
        }
        self.dirty = dirty;
    }

    /// Makes the kernel send what it holds back. Runs in every pass: the application has looked for
    /// completions, and may wait for an answer.
    #[inline(never)]
    pub(super) fn end_bursts(&mut self) {
        for id in self.bursting.drain(..) {
            let Some(link) = self.links.link_mut(id) else { continue };
            link.burst.end(link.outbound.may_hold_back(), || self.burst_clock.now(), &mut self.hold_policy);
            link.push_held();
        }
    }

    pub(super) fn flush_link(&mut self, id: LinkId) {
        self.write_staged(id, Departure::Now);
    }

    fn write_staged(&mut self, id: LinkId, departure: Departure) {
        let Some(link) = self.links.link_mut(id) else { return };
        link.flush(departure, &mut self.spare);
        if link.outbound.failure().is_some() {
            if link.is_closing() {
                self.drop_link(id);
            } else {
                enlist_ready(&mut self.ready, id, link);
            }
        }
    }
}
