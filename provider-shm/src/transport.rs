//! The transport: all links of one endpoint.

mod beside_tcp;
mod connecting;
mod cores;
mod lane;
mod pace;
mod policy;
mod pulling;
mod shortage;

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::fork::ForkGeneration;
use homespun_engine::link_table::LinkTable;
use homespun_engine::spare_descriptor::SpareDescriptor;
use homespun_engine::transport::{
    Armed, Close, Denial, FrameHandler, Full, Glance, LinkCaps, LinkError, LinkEvent, LinkId, Pull,
    RemotePayload, Sent, SharedMemory, Transport,
};
use homespun_engine::wire::hello::Hello;
use homespun_engine::wire::{Header, Message};

use crate::clock::Clock;
use crate::limits::{
    BUSY_POLLS_PER_KERNEL_POLL, COLD_AFTER_EMPTY_POLLS, GAP_MAX_POLLS, IDLE_POLLS_PER_KERNEL_POLL,
    PULL_MIN_BYTES, REGION_SWEEP_KERNEL_POLLS, RETRY_MS, RING_TURN_FRAMES, ROOM_LOOK_MAX_LINKS,
};
use crate::link::{Link, Origin, Outgoing, Slot};
use crate::listener::Listener;
use crate::name::NameKind;
use crate::poller::{EventSource, Poller};
use crate::ring::{INLINE_MAX_BYTES, RingEnd, Staging};
use crate::shareable;
use crate::transport::lane::Glances;
use crate::transport::pace::Pace;
use crate::transport::policy::{PolicyRefusal, forbidding_error};
use crate::transport::shortage::Shortage;

/// A transport over shared memory: the control sockets and rings of one endpoint.
/// [`ShmProvider`](crate::ShmProvider) opens it.
///
/// Dropping the transport ends all links at once. To end a link in order, call [`close`](Transport::close)
/// with [`Close::Drain`].
///
/// In a forked child, all links of the transport are down. The child neither reads nor changes anything of
/// its parent's endpoint.
#[derive(Debug)]
pub struct ShmTransport {
    generation: ForkGeneration,
    address: Address,
    hello: Hello,
    names: NameKind,
    poller: Poller,
    listener: Option<Listener>,
    links: LinkTable<Slot>,
    staging: Staging,
    /// The hot links: every poll reads their rings. The peers of the other links ring the doorbell after a
    /// send.
    hot: Vec<LinkId>,
    /// The index of the hot link that the next pass polls first.
    turn: usize,
    /// The index of the hot link whose peer's core was looked at last.
    core_turn: usize,
    /// The link whose peer's core was looked at last while all links were cold.
    cold_core_turn: LinkId,
    /// Links whose control socket may be readable, or whose end the next pass must report.
    control_ready: Vec<LinkId>,
    /// Links on which this side has sent since the last flush. Their peers may need a wakeup.
    dirty: Vec<LinkId>,
    /// Links that had no room for a frame.
    full: Vec<LinkId>,
    /// The index of the full link that the next pass examines first.
    full_turn: usize,
    /// Links that `arm` has found to have room again. The next pass reports them.
    writable: Vec<LinkId>,
    /// Links whose connect must be tried again: the peer's backlog was full, or too many descriptors were in
    /// flight.
    waiting: Vec<LinkId>,
    /// Accepted links without the peer's greeting, in the order in which they were accepted.
    half_open: BTreeMap<u64, LinkId>,
    shortage: Shortage,
    spare_descriptor: Arc<SpareDescriptor>,
    accepted_count: u64,
    /// How many of this side's rings have a [large](crate::segment::DataArea::LARGE) data area.
    large_rings: usize,
    /// How many polls in a row, passes and glances, have found neither a frame nor an event.
    idle_polls: u32,
    /// How many polls have gone by since the last poll of the kernel.
    polls_since_kernel_poll: u32,
    /// How many polls the present pass stands for: itself and the glances before it.
    polls_of_pass: u32,
    glances: Glances,
    pace: Pace,
    /// Links whose connect found no endpoint beside TCP, with the address of the connect, until
    /// [`Self::take_absent_link`] returns them.
    absent: Vec<(LinkId, Address)>,
    /// How much memory of peers is mapped at most, to copy payload from it.
    mapped_max_bytes: u64,
    /// Links with mapped regions of the peer.
    mapped: Vec<LinkId>,
    /// How many polls of the kernel come before the next look for mapped regions that have ended.
    polls_to_sweep: u32,
    refusal: PolicyRefusal,
    /// Holds the name of an endpoint whose process may not create memory files.
    refusing: Option<Listener>,
    /// Whether a poll of the kernel has found events of the companion, that is, of the other transport that
    /// [`Self::watch_companion`] adds.
    has_companion_event: bool,
    clock: Clock,
}

impl ShmTransport {
    pub(crate) fn open(bind: Address, instance: u64, backlog_connections: u16) -> io::Result<ShmTransport> {
        let (listener, address) = Listener::bind(bind, instance, backlog_connections)?;
        let hello = Hello { address, instance };
        let Some(error) = forbidding_error() else {
            tracing::debug!(%bind, %address, "listening");
            return ShmTransport::with_listener(Some(listener), NameKind::Alone, hello);
        };
        // A peer whose link came up would lose messages: this side could never take them.
        listener.refuse_connections();
        let mut transport = ShmTransport::with_listener(None, NameKind::Alone, hello)?;
        transport.refusing = Some(listener);
        transport.note_forbidden_memory_files(&error);
        Ok(transport)
    }

    fn with_listener(listener: Option<Listener>, names: NameKind, hello: Hello) -> io::Result<ShmTransport> {
        let generation = ForkGeneration::current();
        let poller = Poller::new()?;
        for socket in listener.iter().flat_map(Listener::sockets) {
            poller.add(socket, EventSource::Listener)?;
        }
        Ok(ShmTransport {
            generation,
            address: hello.address,
            hello,
            names,
            poller,
            listener,
            links: LinkTable::default(),
            staging: Staging::new(),
            hot: Vec::new(),
            turn: 0,
            core_turn: 0,
            cold_core_turn: LinkId(0),
            control_ready: Vec::new(),
            dirty: Vec::new(),
            full: Vec::new(),
            full_turn: 0,
            writable: Vec::new(),
            waiting: Vec::new(),
            half_open: BTreeMap::new(),
            shortage: Shortage::default(),
            spare_descriptor: SpareDescriptor::of_this_process()?,
            accepted_count: 0,
            large_rings: 0,
            idle_polls: 0,
            polls_since_kernel_poll: 0,
            polls_of_pass: 1,
            glances: Glances::default(),
            pace: Pace::new(Clock::system()),
            absent: Vec::new(),
            mapped_max_bytes: shareable::host_memory_bytes(),
            mapped: Vec::new(),
            polls_to_sweep: REGION_SWEEP_KERNEL_POLLS,
            refusal: PolicyRefusal::None,
            refusing: None,
            has_companion_event: false,
            clock: Clock::system(),
        })
    }
}

impl Transport for ShmTransport {
    fn address(&self) -> Address {
        self.address
    }

    fn caps(&self, link: LinkId) -> LinkCaps {
        let is_reachable = match self.links.get(link) {
            Some(Slot::Made(link)) => link.control.peer_credentials().pid != 0,
            // The peer's process is not known yet. Say that pulls work: a link may lose capabilities but
            // never gains any.
            Some(Slot::Waiting(_)) => true,
            Some(Slot::Failed(_) | Slot::Absent) | None => false,
        };
        LinkCaps {
            inline_max_bytes: INLINE_MAX_BYTES,
            pull_min_bytes: if is_reachable { PULL_MIN_BYTES } else { usize::MAX },
        }
    }

    fn prefers_pull(&self, link: LinkId, payload: &[IoSlice<'_>]) -> bool {
        self.is_pull_preferred(link, payload)
    }

    fn connect(&mut self, to: Address) -> LinkId {
        let slot = if self.generation.is_in_forked_child() {
            Slot::Failed(FORKED_CHILD)
        } else if to.format() != self.address.format() {
            Slot::Failed(LinkError::System(Errno::EAFNOSUPPORT))
        } else {
            Slot::Waiting(to)
        };
        let id = self.links.insert(slot);
        self.glances.end();
        tracing::debug!(link = id.0, %to, "connecting");
        self.try_connect(id);
        id
    }

    #[inline]
    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        if let Header::Clear { .. } = header {
            self.record_payload_asked(link);
        }
        self.write_and_enlist(link, |outgoing| outgoing.ring.send_inline(header, payload), Result::is_ok)
            .unwrap_or(Err(Full))
    }

    #[inline(always)]
    fn send_at_once(&mut self, link: LinkId, message: &Message, payload: &[u8]) -> bool {
        self.write_message(link, message, payload)
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        self.write_and_enlist(link, |outgoing| outgoing.ring.send(header, payload), is_whole)
            .unwrap_or(Sent::Full)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.write_and_enlist(link, |outgoing| outgoing.ring.resume(rest), is_whole).unwrap_or(Sent::Full)
    }

    fn expose(&mut self, link: LinkId, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        self.describe_exposed(link, payload)
    }

    fn pull(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        self.pull_exposed(link, from, offset_bytes, into)
    }

    fn map_peer_memory(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        len_bytes: u64,
    ) -> Option<Arc<dyn SharedMemory>> {
        shareable::map(self.link_mut(link)?.control.peer_credentials().pid, from, len_bytes)
    }

    #[inline]
    fn flush(&mut self) {
        for place in 0..self.dirty.len() {
            let id = self.dirty[place];
            if let Some(outgoing) = self.link_mut(id).and_then(|link| link.outgoing.as_mut()) {
                outgoing.in_dirty = false;
                if outgoing.ring.take_wake_request() {
                    outgoing.ring_doorbell();
                }
            }
        }
        self.dirty.clear();
    }

    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        let glances = mem::take(&mut self.glances);
        self.polls_of_pass = glances.count() + 1;
        self.polls_since_kernel_poll += self.polls_of_pass;
        self.idle_polls = self.idle_polls.saturating_add(glances.idle_in_a_row());
        let polls_max = match self.idle_polls {
            GAP_MAX_POLLS.. => IDLE_POLLS_PER_KERNEL_POLL,
            _ => BUSY_POLLS_PER_KERNEL_POLL,
        };
        let is_due = self.polls_since_kernel_poll >= polls_max;
        // In a forked child, the poll finds that all links have ended.
        let must_poll = self.hot.is_empty() || self.generation.is_in_forked_child();
        if is_due || must_poll || !self.control_ready.is_empty() {
            self.poll_kernel();
        }
        let mut reported = self.read_ready(budget_frames, receiver);
        let is_idle = reported == 0;
        self.idle_polls = if is_idle { self.idle_polls.saturating_add(1) } else { 0 };
        let idle_polls = glances.idle() + u32::from(is_idle);
        if self.pace.count_idle_polls(idle_polls, self.idle_polls) && is_idle {
            reported = self.poll_kernel_and_read_again(budget_frames, receiver);
        }
        let listed = self.control_ready.len() | self.writable.len() | self.full.len();
        self.glances = Glances::after_pass(if listed == 0 { self.pace.glances_max() } else { 0 });
        reported
    }

    #[inline(always)]
    fn glance(&mut self) -> Glance {
        self.look_at_rings()
    }

    #[inline(always)]
    fn receive_at_once(&mut self, link: LinkId, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        self.offer_messages(link, budget_frames, receiver)
    }

    fn reports_writable_links(&self) -> bool {
        true
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        // A forked child has no descriptor: the fork handler has closed its copy.
        (!self.generation.is_in_forked_child()).then(|| self.poller.as_fd())
    }

    fn arm(&mut self) -> Armed {
        let must_report = !self.control_ready.is_empty() || !self.writable.is_empty();
        if self.generation.is_in_forked_child() || must_report {
            return Armed::Ready;
        }
        while let Some(&id) = self.hot.last() {
            let Some(link) = self.link_mut(id) else {
                self.hot.pop();
                continue;
            };
            if link.has_hung_up || !link.try_stop_polling_ring() {
                return Armed::Ready;
            }
            self.hot.pop();
        }
        self.glances.end();
        // Poll the kernel first: the poll may connect a waiting link, which may then have room.
        self.poll_kernel();
        let full = mem::take(&mut self.full);
        for id in full {
            if let Some(outgoing) = self.link_mut(id).and_then(|link| link.outgoing.as_mut()) {
                if outgoing.ring.request_room_if_full() {
                    self.full.push(id);
                } else {
                    outgoing.in_full = false;
                    self.writable.push(id);
                }
            }
        }
        let has_connections = self.listener.as_ref().is_some_and(Listener::can_accept);
        let must_report = !self.control_ready.is_empty() || !self.writable.is_empty();
        if has_connections || must_report || !self.hot.is_empty() {
            return Armed::Ready;
        }
        let must_retry = !self.waiting.is_empty() || self.awaits_descriptors();
        Armed::Asleep { look_again_after: must_retry.then_some(Duration::from_millis(RETRY_MS)) }
    }

    fn publish_core_and_find_peer(&mut self, core: u32) -> bool {
        self.publish_core_to_active_peers(core)
    }

    /// Does not wait for the peer. The ring holds all frames that the transport has taken, and the peer can
    /// read the ring even after this side has ended the link.
    fn close(&mut self, link: LinkId, how: Close) {
        tracing::debug!(link = link.0, ?how, "closing");
        if how == Close::Drain
            && let Some(outgoing) = self.link_mut(link).and_then(|link| link.outgoing.as_mut())
            && !outgoing.ring.is_mid_frame()
        {
            outgoing.ring.finish();
        }
        self.drop_link(link);
        // Remove the link from the lists, since the next link may get the same number.
        let lists = [&mut self.hot, &mut self.dirty, &mut self.full, &mut self.writable, &mut self.waiting];
        for list in lists {
            list.retain(|id| *id != link);
        }
        self.absent.retain(|(id, _)| *id != link);
    }

    fn stop_accepting(&mut self) {
        self.listener = None;
        while let Some((_, id)) = self.half_open.pop_first() {
            self.drop_link(id);
        }
    }

    fn draining_count(&self) -> usize {
        0
    }
}

impl ShmTransport {
    /// The link with this number, if it is connected ([`Slot::Made`]). `None` in a forked child, which does
    /// not inherit the rings.
    #[inline]
    fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        if self.generation.is_in_forked_child() {
            return None;
        }
        match self.links.get_mut(id)? {
            Slot::Made(link) => Some(link),
            Slot::Waiting(_) | Slot::Failed(_) | Slot::Absent => None,
        }
    }

    #[cold]
    fn record_payload_asked(&mut self, link: LinkId) {
        if let Some(incoming) = self.link_mut(link).and_then(|link| link.incoming.as_mut()) {
            incoming.ring.ways_mut().payload_asked();
        }
    }

    /// Writes to a link, and adds the link to `dirty`. If the link has not taken everything, also adds the
    /// link to `full`. Returns `None` if the link is not connected or has hung up.
    #[inline]
    fn write_and_enlist<T>(
        &mut self,
        id: LinkId,
        write: impl FnOnce(&mut Outgoing) -> T,
        is_whole: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let link = self.link_mut(id)?;
        if link.has_hung_up {
            return None;
        }
        let outgoing = link.outgoing.as_mut()?;
        let written = write(outgoing);
        outgoing.has_sent = true;
        let becomes_dirty = !mem::replace(&mut outgoing.in_dirty, true);
        let becomes_full = !is_whole(&written) && !mem::replace(&mut outgoing.in_full, true);
        if outgoing.ring.is_broken() {
            link.fault = Some("claims to have read lines that were not written");
            self.mark_hung_up(id);
        }
        if becomes_dirty {
            self.dirty.push(id);
        }
        if becomes_full {
            self.full.push(id);
            self.glances.end();
        }
        Some(written)
    }

    /// Reports links that have room again, and reads the control sockets that are ready and the hot rings.
    #[inline]
    fn read_ready(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        let mut reported = 0;
        if !self.full.is_empty() || !self.writable.is_empty() {
            reported += self.report_writable(receiver);
        }
        if !self.control_ready.is_empty() {
            reported += self.read_control_sockets_and_report_failures(receiver);
        }
        reported + self.read_rings(budget_frames, receiver)
    }

    /// Finishes an idle pass if idle passes are slow. It would take long until a later pass finds a doorbell.
    #[cold]
    #[inline(never)]
    fn poll_kernel_and_read_again(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        self.poll_kernel();
        let reported = self.read_ready(budget_frames, receiver);
        if reported > 0 {
            self.idle_polls = 0;
        }
        reported
    }

    /// Examines some of the links that had no room for a frame, and reports those that have room again.
    /// Returns their number.
    #[inline(never)]
    fn report_writable(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        let mut reported = self.writable.len() as u32;
        self.writable.drain(..).for_each(|id| receiver.link_writable(id));
        for _ in 0..self.full.len().min(ROOM_LOOK_MAX_LINKS) {
            if self.full_turn >= self.full.len() {
                self.full_turn = 0;
            }
            let Some(&id) = self.full.get(self.full_turn) else { break };
            if let Some(outgoing) = self.link_mut(id).and_then(|link| link.outgoing.as_mut()) {
                if !outgoing.ring.has_room_for_refused() {
                    self.full_turn += 1;
                    continue;
                }
                outgoing.in_full = false;
                receiver.link_writable(id);
                reported += 1;
            }
            self.full.swap_remove(self.full_turn);
        }
        reported
    }

    /// Polls the kernel for events. Then accepts waiting connections, and retries the connects in `waiting`.
    fn poll_kernel(&mut self) {
        self.polls_since_kernel_poll = 0;
        self.pace.kernel_polled();
        if self.generation.is_in_forked_child() {
            self.control_ready = self.links.ids().collect();
            return;
        }
        let ShmTransport { poller, links, listener, hot, control_ready, has_companion_event, .. } = self;
        for source in poller.poll() {
            match source {
                EventSource::Listener => {
                    if let Some(listener) = listener {
                        listener.mark_pending();
                    }
                }
                EventSource::Companion => *has_companion_event = true,
                EventSource::Control(id) => control_ready.push(id),
                EventSource::Doorbell(id) | EventSource::Process(id) => {
                    let Some(Slot::Made(link)) = links.get_mut(id) else { continue };
                    link.has_hung_up |= matches!(source, EventSource::Process(_));
                    start_polling_ring(hot, id, link);
                }
            }
        }
        self.retry_shortage_if_due();
        if !self.mapped.is_empty() {
            self.count_poll_and_sweep_regions();
        }
        self.accept_waiting();
        for id in mem::take(&mut self.waiting) {
            self.try_connect(id);
            // While the link was connecting, sends got `Full`. Add the link to `full`: then this pass, or
            // `arm`, finds room.
            if let Some(Slot::Made(link)) = self.links.get_mut(id)
                && let Some(outgoing) = &mut link.outgoing
                && !mem::replace(&mut outgoing.in_full, true)
            {
                self.full.push(id);
            }
        }
    }

    /// Reads frames from the hot rings in turn.
    #[inline]
    fn read_rings(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        if self.generation.is_in_forked_child() {
            return 0;
        }
        let count = self.hot.len();
        let (mut reported, mut must_prune_hot) = (0_u32, false);
        if self.turn >= count {
            self.turn = 0;
        }
        for step in 0..count {
            let at = self.turn + step;
            let id = self.hot[if at < count { at } else { at - count }];
            let Some(Slot::Made(link)) = self.links.get_mut(id) else {
                must_prune_hot = true;
                continue;
            };
            let Some(incoming) = &mut link.incoming else { continue };
            let left_frames = budget_frames.saturating_sub(reported).min(RING_TURN_FRAMES);
            if left_frames == 0 {
                self.turn = at % count;
                break;
            }
            match incoming.ring.receive_staged(&mut self.staging, id, left_frames, receiver) {
                Ok(0) if link.has_hung_up => {
                    must_prune_hot = true;
                    let error = match (link.fault, incoming.ring.ring_end()) {
                        (Some(reason), _) => LinkError::Protocol(reason),
                        (None, RingEnd::Finished) => LinkError::Closed,
                        (None, RingEnd::Open | RingEnd::Cut) => LinkError::System(Errno::ECONNRESET),
                    };
                    reported += self.end_and_report_link(id, error, receiver);
                }
                Ok(0) => {
                    incoming.empty_polls = incoming.empty_polls.saturating_add(self.polls_of_pass);
                    if incoming.empty_polls.saturating_mul(count as u32) >= COLD_AFTER_EMPTY_POLLS {
                        must_prune_hot |= link.try_stop_polling_ring();
                    }
                }
                Ok(count) => {
                    incoming.empty_polls = 0;
                    reported += count;
                    link.note_messages_read();
                }
                Err(reason) => {
                    must_prune_hot = true;
                    reported += self.end_and_report_link(id, reason.into(), receiver);
                }
            }
        }
        if must_prune_hot {
            let links = &self.links;
            self.hot.retain(|id| match links.get(*id) {
                Some(Slot::Made(link)) => link.incoming.as_ref().is_some_and(|incoming| incoming.is_hot),
                _ => false,
            });
        }
        reported
    }

    /// Ends a link and reports the end. Reports nothing if the peer connected and the link was never
    /// reported as up. Returns the number of reports.
    fn end_and_report_link(&mut self, id: LinkId, error: LinkError, receiver: &mut impl FrameHandler) -> u32 {
        let is_known = match self.links.get(id) {
            Some(Slot::Made(link)) => link.origin.is_connector() || link.outgoing.is_some(),
            Some(Slot::Waiting(_) | Slot::Failed(_)) => true,
            Some(Slot::Absent) | None => return 0,
        };
        tracing::debug!(link = id.0, %error, is_known, "down");
        self.drop_link(id);
        self.full.retain(|full| *full != id);
        self.writable.retain(|writable| *writable != id);
        if is_known {
            receiver.link_event(id, LinkEvent::Down(error));
        }
        u32::from(is_known)
    }

    /// Ends a link, and frees its number and its cookie. Without the cookie, the peer discards later copies
    /// of payload that was exposed on the link.
    fn drop_link(&mut self, id: LinkId) {
        let Some(Slot::Made(link)) = self.links.remove(id) else { return };
        self.mapped.retain(|mapped| *mapped != id);
        self.shortage.forget_link(id);
        if let Origin::Accepted(serial) = link.origin {
            self.half_open.remove(&serial);
        }
        if link.outgoing.as_ref().is_some_and(Outgoing::is_ring_large) {
            self.large_rings -= 1;
        }
        if self.generation.is_in_forked_child() {
            return;
        }
        for descriptor in link.watched_fds() {
            self.poller.remove(descriptor);
        }
        link.control.hang_up();
        self.shortage.retry_soon();
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        if self.generation.is_in_forked_child() {
            return;
        }
        // Before the listener's name is free: a peer that meets the next endpoint of this name must find that
        // these links have ended.
        for id in self.links.ids() {
            if let Some(Slot::Made(link)) = self.links.get(id) {
                link.control.hang_up();
            }
        }
    }
}

/// The error with which all links end in a forked child.
const FORKED_CHILD: LinkError = LinkError::Denied(Denial::ForkedChild);

/// Makes a link hot: from now on every poll reads its ring.
fn start_polling_ring(hot: &mut Vec<LinkId>, id: LinkId, link: &mut Link) {
    if let Some(incoming) = &mut link.incoming {
        incoming.empty_polls = 0;
        if !mem::replace(&mut incoming.is_hot, true) {
            incoming.ring.cancel_wake_request();
            hot.push(id);
        }
    }
}

fn is_whole(sent: &Sent) -> bool {
    *sent == Sent::Whole
}

#[cfg(all(test, not(loom)))]
mod tests;
