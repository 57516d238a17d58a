//! Direct access: the initiator reads and writes mapped regions without the target's help.
//!
//! When an initiator accesses a mappable region by frames, the target offers the region for mapping. The
//! initiator keeps the offer, and maps the region when it next posts an access to it. From then on, posting
//! an access copies to or from the region. The initiator still sends frames for an access that the target
//! must see, or that must wait for earlier operations. When the target has closed the region, the initiator
//! unmaps it and sends frames again.
//!
//! ```text
//!  initiator                          target
//!    Rma(write, key)  ------------->    finds the region, which can be mapped
//!                     <-------------  Answer, MappableRegion(key)
//!    posts again: maps it
//!    copies, as often as it likes
//!                                       closes the region: retires its memory
//!    sees that, forgets it
//!    Rma(write, key)  ------------->    knows no such key
//! ```
//!
//! If the target closes a region during a copy, the copy may still change the old pages. No region
//! uses these pages any more.
//!
//! A direct write ends when its bytes are stored. But the processor may let a later read overtake
//! the stores. Then two peers that each write and then read could both miss the other's write. With
//! frames this is impossible: a write ends only when the target has answered it. So a direct read
//! after a direct write first executes a memory fence, which makes the write visible to all
//! processors. A write whose completion level demands visibility at the target executes a memory
//! fence after its stores. So does a flush for visibility, which needs no frame while no access to the
//! peer is queued or unanswered.

use std::sync::atomic::{Ordering, fence};

use super::Engine;
use crate::completion::Sink;
use crate::flags::{MrAccess, Order};
use crate::limits::MAPPED_SWEEP_PASSES;
use crate::link::{Link, MappedRegion};
use crate::operation::{FlushKind, Level, RmaLocal};
use crate::peer_id::PeerId;
use crate::region::words;
use crate::remote_memory::RemoteMemory;
use crate::transport::{LinkId, RemotePayload, Transport};
use crate::wire::MappableRegion;

/// The result of an [attempt](Engine::try_access_at_once) to make an access without frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The access was made and has ended.
    Done,
    /// The access cannot be made directly: it must go to the peer by frames.
    Declined,
    /// No attempt was made. Earlier completions wait, completions keep the order of posting, the
    /// access is too long, or too many operations are outstanding.
    NotMade,
}

impl Engine {
    /// Records a region that the peer offers for mapping.
    pub(super) fn mappable_region_arrived(
        &mut self,
        id: LinkId,
        shown: MappableRegion,
        remote: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(remote) = RemotePayload::new(remote) else {
            return self.abort_breached_link(id, "describes its memory at too great a length", sink);
        };
        link.tx.mapped_regions_mut().add_offered_region(shown, remote);
        self.has_offered_regions = true;
    }

    /// Maps the peer's region with this key, if the peer has offered it. Returns whether it has mapped
    /// the region.
    #[cold]
    #[inline(never)]
    pub(super) fn map_region_if_offered(
        &mut self,
        to: PeerId,
        key: u64,
        transport: &mut impl Transport,
    ) -> bool {
        let Some(id) = self.peers.peer(to).transmit_link() else { return false };
        let Some(link) = self.links.get_mut(id) else { return false };
        let mapped = link.tx.mapped_regions_mut();
        let Some(offer) = mapped.take_offer(key) else { return false };
        // If the transport cannot map the memory (no address space, or the peer is gone), accesses go by
        // frames.
        let memory = transport.map_peer_memory(id, offer.remote(), offer.len_bytes());
        let memory = memory.filter(|memory| !memory.is_retired());
        let is_mapped = memory.is_some_and(|memory| mapped.add_mapped(&offer, memory));
        if is_mapped {
            self.passes_to_sweep = MAPPED_SWEEP_PASSES;
        }
        self.has_offered_regions = self.links.iter_mut().any(|link| link.tx.mapped_regions().has_offers());
        is_mapped
    }

    /// Tries to make an access directly in mapped memory of the peer. An access with a fence, with
    /// remote data or with the level commit is never made directly. An access that earlier
    /// operations hold back is not made directly either.
    ///
    /// After [`Attempt::Done`] the caller counts the access. If the access is signalled, the caller
    /// also puts its completion into the queue. If the queue is full, the caller calls
    /// [`report_end_at_post_time`](Self::report_end_at_post_time) instead. After any other result nothing
    /// has changed, and the caller posts the access.
    #[inline]
    pub fn try_access_at_once(
        &mut self,
        to: PeerId,
        local: &mut RmaLocal,
        memory: RemoteMemory,
        level: Level,
        fence: bool,
    ) -> Attempt {
        let is_made = local.len_bytes() as u64 <= self.config.message_max_bytes
            && self.initiator.may_report_at_post_time()
            && self.outstanding_transmits() < self.config.tx_depth_ops;
        if !is_made {
            Attempt::NotMade
        } else if self.try_direct_access(to, local, memory, level, fence) {
            Attempt::Done
        } else {
            Attempt::Declined
        }
    }

    /// Makes an access to mapped memory directly, if possible. Returns whether the access was made.
    /// If so, the access has ended.
    #[inline]
    pub(super) fn try_direct_access(
        &mut self,
        to: PeerId,
        local: &mut RmaLocal,
        memory: RemoteMemory,
        level: Level,
        is_fenced: bool,
    ) -> bool {
        let is_read = matches!(local, RmaLocal::Read(_));
        if is_read && self.has_unseen_stores {
            fence(Ordering::SeqCst);
            self.has_unseen_stores = false;
        }
        let is_seen = matches!(local, RmaLocal::Write { data: Some(_), .. }) || level == Level::Commit;
        let has_gone = !is_fenced && !is_seen && self.try_access_mapped_region(to, local, memory);
        if !has_gone {
            self.unmap_if_retired(to, memory.key);
        }
        if has_gone && !is_read {
            self.has_unseen_stores = !level.needs_visibility();
            if !self.has_unseen_stores {
                fence(Ordering::SeqCst);
            }
        }
        has_gone
    }

    /// Makes direct writes visible, if the range is in mapped memory and no access to the peer is queued or
    /// unanswered. Returns whether that is so. Then all earlier writes to the peer have been carried out:
    /// those by frames are answered, and the direct ones are stores of this thread. Messages do not matter,
    /// since a flush follows only writes.
    pub(super) fn try_flush_directly(
        &mut self,
        to: PeerId,
        kind: FlushKind,
        memory: RemoteMemory,
        len_bytes: u64,
    ) -> bool {
        let RemoteMemory { key, address } = memory;
        let is_mapped = kind == FlushKind::Visibility
            && self.mapped_region_if_no_access_waits(to, key).is_some_and(|(_, mapped)| {
                mapped.offset_if_allowed(address, len_bytes, MrAccess::REMOTE_WRITE).is_some()
            })
            && !self.has_unanswered_accesses_on_former_links(to);
        if is_mapped {
            fence(Ordering::SeqCst);
            self.has_unseen_stores = false;
        } else {
            self.unmap_if_retired(to, key);
        }
        is_mapped
    }

    /// Writes a few bytes to mapped memory, if possible at once. Returns whether the bytes were
    /// written.
    #[inline]
    pub(super) fn try_inject_write_directly(
        &mut self,
        to: PeerId,
        bytes: &[u8],
        memory: RemoteMemory,
    ) -> bool {
        let RemoteMemory { key, address } = memory;
        let Some(mapped) = self.directly_accessible_region(to, key, false) else { return false };
        let place = mapped.offset_if_allowed(address, bytes.len() as u64, MrAccess::REMOTE_WRITE);
        if let Some(place) = place {
            words::store_bytes(mapped.memory().words(), place, bytes);
            self.has_unseen_stores = true;
        }
        place.is_some()
    }

    #[inline(always)]
    fn try_access_mapped_region(&self, to: PeerId, local: &mut RmaLocal, memory: RemoteMemory) -> bool {
        let RemoteMemory { key, address } = memory;
        let is_read = matches!(local, RmaLocal::Read(_));
        let Some(mapped) = self.directly_accessible_region(to, key, is_read) else { return false };
        let words = mapped.memory().words();
        match local {
            RmaLocal::Write { source, .. } => {
                let len_bytes = source.len_bytes() as u64;
                let Some(mut place) = mapped.offset_if_allowed(address, len_bytes, MrAccess::REMOTE_WRITE)
                else {
                    return false;
                };
                if let Some(bytes) = source.contiguous() {
                    words::store_bytes(words, place, bytes);
                    return true;
                }
                for slice in source.slices(0) {
                    words::store_bytes(words, place, &slice);
                    place += slice.len();
                }
            }
            RmaLocal::Read(destination) => {
                let len_bytes = destination.len_bytes();
                let Some(mut place) =
                    mapped.offset_if_allowed(address, len_bytes as u64, MrAccess::REMOTE_READ)
                else {
                    return false;
                };
                if let Some(buffer) = destination.contiguous_mut() {
                    words::load_bytes(words, place, buffer);
                    return true;
                }
                for mut slice in destination.slices_mut(0, len_bytes) {
                    words::load_bytes(words, place, &mut slice);
                    place += slice.len();
                }
            }
        }
        true
    }

    /// Unmaps the peer's region with this key if the peer has ended the region.
    #[cold]
    fn unmap_if_retired(&mut self, peer: PeerId, key: u64) {
        if let Some(link) = self.peers.peer(peer).transmit_link().and_then(|link| self.links.get_mut(link)) {
            link.tx.mapped_regions_mut().unmap_if_retired(key);
        }
    }

    /// Counts a pass. Every [`MAPPED_SWEEP_PASSES`] passes, unmaps the regions that their targets
    /// have closed. Otherwise a region that this side no longer accesses would stay mapped.
    pub(super) fn count_pass_and_sweep_mapped(&mut self) {
        self.passes_to_sweep -= 1;
        if self.passes_to_sweep == 0 {
            self.unmap_retired_regions();
        }
    }

    #[cold]
    fn unmap_retired_regions(&mut self) {
        for link in self.links.iter_mut() {
            let regions = link.tx.mapped_regions_mut();
            regions.unmap_retired();
            if regions.has_mapped_regions() {
                self.passes_to_sweep = MAPPED_SWEEP_PASSES;
            }
        }
    }

    /// Returns the peer's mapped region with this key. Returns `None` if there is none, or if an
    /// access to the region must wait for earlier operations.
    #[inline(always)]
    fn directly_accessible_region(&self, to: PeerId, key: u64, is_read: bool) -> Option<&MappedRegion> {
        let (link, mapped) = self.mapped_region_if_no_access_waits(to, key)?;
        let order = if is_read { Order::RAS } else { Order::WAS };
        let may_overtake = !self.config.transmit_order.contains(order) || link.tx.all_messages_have_arrived();
        may_overtake.then_some(mapped)
    }

    /// Returns the peer's mapped region with this key, and its link. Returns `None` if there is none, if
    /// operations on the peer are queued, or if the peer has not answered all accesses on this link.
    #[inline(always)]
    fn mapped_region_if_no_access_waits(&self, to: PeerId, key: u64) -> Option<(&Link, &MappedRegion)> {
        let link = self.links.get(self.peers.peer(to).transmit_link()?)?;
        let mapped = link.tx.mapped_regions().find(key)?;
        let is_unhindered = self.initiator.has_none_queued(to) && link.tx.has_no_unanswered_accesses();
        is_unhindered.then_some((link, mapped))
    }
}
