//! The transport: two transports behind one address.

use std::io::{IoSlice, IoSliceMut};
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{
    Armed, Close, FrameHandler, Full, Glance, LinkCaps, LinkId, Pull, RemotePayload, Sent, SharedMemory,
    Transport,
};
use homespun_engine::wire::{Header, Message};
use homespun_shm::ShmTransport;
use homespun_tcp::TcpTransport;

use crate::carried_link::CarriedLink;
use crate::handler::{FarHandler, NearHandler};
use crate::moved_links::MovedLinks;
use crate::poll_plan::PollPlan;
use crate::proven_peers::{ProvenChange, ProvenPeers};

/// One endpoint's links, over shared memory and over TCP. [`AutoProvider`](crate::AutoProvider) opens it.
///
/// Dropping the transport ends all links at once. To end a link in order, call [`close`](Transport::close)
/// with [`Close::Drain`].
#[derive(Debug)]
pub struct AutoTransport {
    /// Dropped before `near`: when peers no longer find the name in shared memory, the TCP port is closed,
    /// too.
    far: TcpTransport,
    near: ShmTransport,
    moved: MovedLinks,
    proven: ProvenPeers,
    plan: PollPlan,
    /// Whether passes leave out TCP. This ends when the kernel reports an event of TCP, or when a call uses
    /// TCP.
    is_far_quiet: bool,
    /// Whether a call has used TCP since TCP was flushed last.
    is_far_used: bool,
}

impl AutoTransport {
    pub(crate) fn new(near: ShmTransport, far: TcpTransport) -> Result<AutoTransport, Errno> {
        if let Some(fd) = far.wake_fd() {
            let watched = near.watch_companion(fd);
            watched.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::new))?;
        }
        Ok(AutoTransport {
            far,
            near,
            moved: MovedLinks::default(),
            proven: ProvenPeers::default(),
            plan: PollPlan::default(),
            is_far_quiet: false,
            is_far_used: false,
        })
    }
}

impl Transport for AutoTransport {
    fn address(&self) -> Address {
        self.far.address()
    }

    fn caps(&self, link: LinkId) -> LinkCaps {
        match CarriedLink::from_link_id(link) {
            // Also right for a link that has moved to TCP: neither shared memory nor TCP pulls for it.
            CarriedLink::Near(near) => self.near.caps(near),
            CarriedLink::Far(far) => self.far.caps(far),
        }
    }

    fn prefers_pull(&self, link: LinkId, payload: &[IoSlice<'_>]) -> bool {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => self.near.prefers_pull(near, payload),
            CarriedLink::Far(far) => self.far.prefers_pull(far, payload),
        }
    }

    fn connect(&mut self, to: Address) -> LinkId {
        self.connect_near_or(TcpTransport::connect, to)
    }

    fn connect_again(&mut self, to: Address) -> LinkId {
        self.connect_near_or(TcpTransport::connect_again, to)
    }

    #[inline]
    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        let far = match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => match self.near.send_inline(near, header, payload) {
                Ok(()) => return Ok(()),
                Err(Full) => self.moved.far_id_of(near).ok_or(Full)?,
            },
            CarriedLink::Far(far) => far,
        };
        self.use_far().send_inline(far, header, payload)
    }

    #[inline]
    fn send_at_once(&mut self, link: LinkId, message: &Message, payload: &[u8]) -> bool {
        let is_sent = match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => self.near.send_at_once(near, message, payload),
            CarriedLink::Far(far) => self.use_far().send_at_once(far, message, payload),
        };
        if is_sent && self.is_far_used {
            self.hand_over();
        }
        is_sent
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => {
                match (self.near.send(near, header, payload), self.moved.far_id_of(near)) {
                    (Sent::Full, Some(far)) => self.use_far().send(far, header, payload),
                    (sent, _) => sent,
                }
            }
            CarriedLink::Far(far) => self.use_far().send(far, header, payload),
        }
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => match (self.near.resume(near, rest), self.moved.far_id_of(near)) {
                (Sent::Full, Some(far)) => self.use_far().resume(far, rest),
                (sent, _) => sent,
            },
            CarriedLink::Far(far) => self.use_far().resume(far, rest),
        }
    }

    fn expose(&mut self, link: LinkId, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => self.near.expose(near, payload),
            CarriedLink::Far(far) => self.far.expose(far, payload),
        }
    }

    fn pull(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) if self.moved.far_id_of(near).is_none() => {
                self.near.pull(near, from, offset_bytes, into)
            }
            // Nothing is exposed over TCP.
            _ => Pull::Refused,
        }
    }

    fn map_peer_memory(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        len_bytes: u64,
    ) -> Option<Arc<dyn SharedMemory>> {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => self.near.map_peer_memory(near, from, len_bytes),
            CarriedLink::Far(far) => self.far.map_peer_memory(far, from, len_bytes),
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.near.flush();
        if mem::take(&mut self.is_far_used) {
            self.far.flush();
        }
    }

    #[inline]
    fn hand_over(&mut self) {
        self.near.hand_over();
        if self.is_far_used {
            self.far.hand_over();
        }
    }

    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        if self.is_far_quiet && !self.far.are_links_inherited() {
            let handler = &mut NearHandler { receiver, proven: &mut self.proven };
            let reported = self.near.receive(budget_frames, handler);
            self.move_absent_links_if_any();
            if self.near.take_companion_event() {
                return reported
                    + self.receive_from_far(budget_frames.saturating_sub(reported).max(1), receiver);
            }
            return reported;
        }
        let mut reported = 0;
        if self.plan.count_pass_and_check_near_due(self.near.has_hot_rings()) {
            // Active far peers get half of the budget, however many frames near peers have sent.
            let for_far = if self.plan.is_far_active() { budget_frames / 2 } else { 0 };
            let handler = &mut NearHandler { receiver, proven: &mut self.proven };
            reported = self.near.receive(budget_frames - for_far, handler);
            self.move_absent_links_if_any();
        }
        let has_event = self.near.take_companion_event() || self.far.has_work_now();
        if has_event
            || self.plan.count_pass_and_check_far_due(self.near.has_hot_rings(), self.far.has_timed_work())
        {
            let left_frames = budget_frames.saturating_sub(reported).max(1);
            reported += self.receive_from_far(left_frames, receiver);
        }
        self.is_far_quiet =
            !self.plan.is_far_active() && !self.far.has_work_now() && !self.far.has_timed_work();
        reported
    }

    #[inline]
    fn glance(&mut self) -> Glance {
        if !self.is_far_quiet || self.far.are_links_inherited() {
            return Glance::Pass;
        }
        match self.near.glance() {
            Glance::Frame(near) => Glance::Frame(CarriedLink::Near(near).link_id()),
            glance => glance,
        }
    }

    #[inline]
    fn receive_at_once(&mut self, link: LinkId, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => {
                let handler = &mut NearHandler { receiver, proven: &mut self.proven };
                self.near.receive_at_once(near, budget_frames, handler)
            }
            CarriedLink::Far(_) => 0,
        }
    }

    fn reports_writable_links(&self) -> bool {
        true
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.near.wake_fd()
    }

    fn arm(&mut self) -> Armed {
        let near = self.near.arm();
        self.move_absent_links_if_any();
        if near == Armed::Ready {
            self.plan.force_near_poll_in_next_pass();
            return near;
        }
        match self.use_far().arm() {
            Armed::Asleep { look_again_after: Some(time) } => near.look_again_within(time),
            Armed::Asleep { look_again_after: None } => near,
            Armed::Ready => Armed::Ready,
        }
    }

    fn publish_core_and_find_peer(&mut self, core: u32) -> bool {
        let is_near_found = self.near.publish_core_and_find_peer(core);
        is_near_found || !self.is_far_quiet && self.far.publish_core_and_find_peer(core)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        match CarriedLink::from_link_id(link) {
            CarriedLink::Near(near) => {
                self.near.close(near, how);
                self.proven.remove_link(near);
                self.update_reserved_addresses();
                if let Some(far) = self.moved.remove_closed(near) {
                    self.use_far().close(far, how);
                }
            }
            CarriedLink::Far(far) => self.use_far().close(far, how),
        }
    }

    fn stop_accepting(&mut self) {
        // TCP stops first: otherwise a peer that no longer finds the name in shared memory might connect
        // over TCP.
        self.use_far().stop_accepting();
        self.near.stop_accepting();
    }

    fn draining_count(&self) -> usize {
        self.far.draining_count() + self.near.draining_count()
    }
}

impl AutoTransport {
    /// Connects over shared memory if the peer is near, and over TCP by `connect_far` if not.
    fn connect_near_or(
        &mut self,
        connect_far: impl FnOnce(&mut TcpTransport, Address) -> LinkId,
        to: Address,
    ) -> LinkId {
        let near = self.near.connect(to);
        let carried = if self.near.take_absent_link().is_none() {
            self.proven.add_link(near, to);
            self.update_reserved_addresses();
            CarriedLink::Near(near)
        } else {
            self.near.close(near, Close::Abort);
            CarriedLink::Far(connect_far(self.use_far(), to))
        };
        tracing::debug!(link = carried.link_id().0, %to, ?carried, "chosen");
        carried.link_id()
    }

    /// Moves links to TCP that waited at a full backlog and then found no near peer. Also tells TCP which
    /// peers have become proven or are no longer proven.
    #[inline(always)]
    fn move_absent_links_if_any(&mut self) {
        if self.near.has_absent_link() | self.proven.has_changes() {
            self.move_absent_links_to_tcp();
        }
    }

    #[cold]
    #[inline(never)]
    fn move_absent_links_to_tcp(&mut self) {
        while let Some((near, to)) = self.near.take_absent_link() {
            let far = self.use_far().connect(to);
            tracing::debug!(link = CarriedLink::Near(near).link_id().0, %to, ?far, "moved to TCP");
            self.moved.insert(near, far);
            self.proven.remove_link(near);
        }
        self.update_reserved_addresses();
    }

    /// TCP, for a call that may give it work.
    #[inline]
    fn use_far(&mut self) -> &mut TcpTransport {
        self.is_far_quiet = false;
        self.is_far_used = true;
        &mut self.far
    }

    /// Tells TCP which addresses belong to peers that shared memory has proven.
    #[cold]
    fn update_reserved_addresses(&mut self) {
        for change in self.proven.take_changes() {
            match change {
                ProvenChange::Added(address) => self.use_far().reserve_address(address),
                ProvenChange::Removed(address) => self.use_far().release_address(address),
            }
        }
    }

    #[inline(never)]
    fn receive_from_far(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        (self.is_far_quiet, self.is_far_used) = (false, true);
        let moved = &mut self.moved;
        let reported = self.far.receive(budget_frames, &mut FarHandler { receiver, moved });
        self.plan.record_far_poll(reported);
        while let Some(near) = self.moved.pop_ended() {
            self.near.close(near, Close::Abort);
        }
        reported
    }
}
