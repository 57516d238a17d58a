//! Chooses the link that a pass reads without polling the kernel first.

use homespun_engine::transport::LinkId;

use crate::limits::{BLIND_PASSES_MAX, BUSY_LINK_READS_MIN};

/// Tracks which link frames arrive on.
///
/// If two endpoints send in turn, each pass of an endpoint finds the same link ready. A poll of the kernel
/// before the read would only cost time. So after some reads in a row from one link, passes read that link
/// without a poll. Only every few passes poll the kernel.
#[derive(Debug, Default)]
pub(crate) struct BusyLink {
    link: Option<LinkId>,
    /// How many successful reads in a row were of this link.
    reads: u32,
    /// How many passes in a row have not polled the kernel.
    blind_passes: u32,
}

impl BusyLink {
    /// Notes that a read of this link returned frames or payload.
    pub(crate) fn note_read(&mut self, link: LinkId) {
        if self.link == Some(link) {
            self.reads = self.reads.saturating_add(1);
        } else {
            *self = BusyLink { link: Some(link), reads: 1, blind_passes: 0 };
        }
    }

    /// Makes the next pass poll the kernel, to learn soon of another event, such as room to write.
    pub(crate) fn force_kernel_poll(&mut self) {
        *self = BusyLink::default();
    }

    /// Counts a pass. Returns the link that the pass reads without a poll. `None` if the pass must poll the
    /// kernel.
    pub(crate) fn next_blind_read(&mut self) -> Option<LinkId> {
        if self.reads < BUSY_LINK_READS_MIN || self.blind_passes == BLIND_PASSES_MAX {
            self.blind_passes = 0;
            return None;
        }
        self.blind_passes += 1;
        self.link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternating_links_are_never_read_blindly() {
        let (one, other) = (LinkId(1), LinkId(2));
        let mut busy_link = BusyLink::default();
        for _ in 0..100 {
            assert_eq!(busy_link.next_blind_read(), None);
            busy_link.note_read(one);
            assert_eq!(busy_link.next_blind_read(), None);
            busy_link.note_read(other);
        }
    }

    #[test]
    fn kernel_poll_interrupts_blind_reads_after_the_maximum() {
        let mut busy_link = BusyLink::default();
        for _ in 0..BUSY_LINK_READS_MIN {
            assert_eq!(busy_link.next_blind_read(), None);
            busy_link.note_read(LinkId(1));
        }
        for _ in 0..10 {
            for _ in 0..BLIND_PASSES_MAX {
                assert_eq!(busy_link.next_blind_read(), Some(LinkId(1)));
            }
            assert_eq!(busy_link.next_blind_read(), None);
        }
        busy_link.force_kernel_poll();
        assert_eq!(busy_link.next_blind_read(), None);
    }
}
