//! Payload that a peer copies from its sender's memory.

use std::io::{IoSlice, IoSliceMut};

use homespun_engine::transport::{LinkId, Pull, RemotePayload};

use super::{ShmTransport, Slot};
use crate::exposed::{self, Exposed, RegionName};
use crate::limits::REGION_SWEEP_KERNEL_POLLS;
use crate::peer_regions::RegionCopy;

impl ShmTransport {
    /// Whether the peer should pull this payload. Payload in memory that the peer can map is always pulled:
    /// the peer copies it once, without a system call.
    pub(super) fn is_pull_preferred(&self, link: LinkId, payload: &[IoSlice<'_>]) -> bool {
        let ring = match self.links.get(link) {
            Some(Slot::Made(link)) if !self.generation.is_in_forked_child() => {
                link.outgoing.as_ref().map(|outgoing| &outgoing.ring)
            }
            _ => None,
        };
        let len_bytes = payload.iter().map(|slice| slice.len() as u64).sum();
        ring.is_some_and(|ring| {
            ring.is_pulled(len_bytes)
                || ring.is_mapped_memory_pulled() && exposed::describe_in_region(payload).is_some()
        })
    }

    /// Describes payload to the peer. The payload stays exposed until the link ends, which drops the ring and
    /// the cookie in `outgoing`.
    pub(super) fn describe_exposed(
        &mut self,
        link: LinkId,
        payload: &[IoSlice<'_>],
    ) -> Option<RemotePayload> {
        let outgoing = self.link_mut(link)?.outgoing.as_ref()?;
        let in_region =
            if outgoing.ring.is_mapped_memory_pulled() { exposed::describe_in_region(payload) } else { None };
        in_region.or_else(|| exposed::describe_addresses(payload))
    }

    /// Copies payload that the peer has exposed: from a mapped region if possible, or by a system call.
    pub(super) fn pull_exposed(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        let pulled = match Exposed::parse(from) {
            Some(exposed) => self
                .pull_from_region(link, &exposed, offset_bytes, into)
                .unwrap_or_else(|| self.pull_from_process(link, &exposed, offset_bytes, into)),
            None => Pull::Fault,
        };
        if pulled == Pull::Gone {
            self.mark_hung_up(link);
        }
        pulled
    }

    /// Copies payload from a mapped region. Returns `None` if the payload is in no region that this side can
    /// map.
    fn pull_from_region(
        &mut self,
        link: LinkId,
        exposed: &Exposed,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Option<Pull> {
        let name = exposed.region.as_ref()?;
        let incoming = self.link_mut(link)?.incoming.as_mut()?;
        if !incoming.peer_regions.contains(name) && !self.try_map_region(link, name) {
            return None;
        }
        let wanted_bytes = into.iter().map(|slice| slice.len() as u64).sum();
        let incoming = self.link_mut(link)?.incoming.as_mut()?;
        let Some(slices) = exposed.slices_of_range(offset_bytes, wanted_bytes) else {
            return Some(Pull::Fault);
        };
        let ways = incoming.ring.ways_mut();
        let writes_back = |len_bytes| ways.prefers_write_back(len_bytes);
        match incoming.peer_regions.copy(name, &slices, into, writes_back) {
            // The peer may have used the memory again, or for something else, while this side has copied.
            RegionCopy::Done if incoming.ring.has_exposure_ended() => Some(Pull::Gone),
            RegionCopy::Done => Some(Pull::Done),
            RegionCopy::OutOfRange => Some(Pull::Fault),
            RegionCopy::NotMapped => None,
        }
    }

    /// Maps a region of the peer. Returns whether it is mapped. If this is not possible at all, the peer is
    /// told.
    #[cold]
    fn try_map_region(&mut self, link: LinkId, name: &RegionName) -> bool {
        let incoming = self.link_mut(link).and_then(|made| made.incoming.as_mut());
        if !incoming.is_some_and(|incoming| incoming.ring.ways_mut().can_map()) {
            return false;
        }
        // The regions that have ended since the last sweep must not count.
        self.unmap_ended_regions();
        let mapped_bytes = self.mapped.iter().filter_map(|id| match self.links.get(*id) {
            Some(Slot::Made(link)) => Some(link.incoming.as_ref()?.peer_regions.mapped_bytes()),
            _ => None,
        });
        // A faulty peer must not use up the address space of this process. Payload of a region that is not
        // mapped is copied by the system, or sent.
        let max_bytes = self.mapped_max_bytes.saturating_sub(mapped_bytes.sum());
        let Some(made) = self.link_mut(link) else { return false };
        let pid = made.control.peer_credentials().pid;
        let Some(incoming) = &mut made.incoming else { return false };
        let is_mapped = incoming.peer_regions.map(pid, name, max_bytes);
        if incoming.peer_regions.has_given_up() {
            incoming.ring.ways_mut().mapping_failed();
            incoming.ring.publish_pulled_classes_if_changed();
        }
        if is_mapped && !self.mapped.contains(&link) {
            self.mapped.push(link);
        }
        is_mapped
    }

    /// Copies payload by a system call.
    fn pull_from_process(
        &mut self,
        link: LinkId,
        exposed: &Exposed,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        let Some(incoming) = self.link_mut(link).and_then(|link| link.incoming.as_mut()) else {
            return Pull::Gone;
        };
        let peer_memory = incoming.peer_memory;
        let step_bytes = into.iter().map(|slice| slice.len() as u64).sum();
        // Only the first step is timed. The length of a later one says nothing about the payload.
        let len_bytes = if offset_bytes == 0 { step_bytes } else { 0 };
        let ways = incoming.ring.ways_mut();
        if peer_memory.pid != 0 && !ways.can_pull() {
            return Pull::Declined;
        }
        let is_done = |pulled: &Pull| *pulled == Pull::Done;
        let pulled = ways.time_pull(len_bytes, is_done, || peer_memory.pull(exposed, offset_bytes, into));
        if matches!(pulled, Pull::Refused | Pull::Declined) {
            ways.pull_refused();
        }
        incoming.ring.publish_pulled_classes_if_changed();
        pulled
    }

    /// Counts a poll of the kernel. Once in a while, unmaps the regions that their owners have ended.
    #[cold]
    pub(super) fn count_poll_and_sweep_regions(&mut self) {
        self.polls_to_sweep -= 1;
        if self.polls_to_sweep > 0 {
            return;
        }
        self.polls_to_sweep = REGION_SWEEP_KERNEL_POLLS;
        self.unmap_ended_regions();
    }

    /// Unmaps the regions that their owners have ended.
    fn unmap_ended_regions(&mut self) {
        let links = &mut self.links;
        self.mapped.retain(|id| match links.get_mut(*id) {
            Some(Slot::Made(link)) => link.incoming.as_mut().is_some_and(|incoming| {
                incoming.peer_regions.unmap_retired();
                !incoming.peer_regions.is_empty()
            }),
            _ => false,
        });
    }
}
