//! The transport: all links of one endpoint.

mod accepting;
mod checking;
mod cores;
mod writing;

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::fork::CloseOnFork;
use homespun_engine::spare_descriptor::SpareDescriptor;
use homespun_engine::transport::{
    Armed, Close, Denial, FrameHandler, Full, LinkCaps, LinkError, LinkEvent, LinkId, Sent, Transport,
};
use homespun_engine::wire::Header;
use homespun_engine::wire::hello::{HELLO_BYTES, Hello};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::accepted_links::AcceptedLinks;
use crate::address_claims::{AddressClaims, HangUp};
use crate::burst::HoldPolicy;
use crate::busy_link::BusyLink;
use crate::check::Check;
use crate::clock::Clock;
use crate::descriptors::DescriptorLimit;
use crate::half_open::HalfOpenLinks;
use crate::limits::{
    ACCEPT_RETRY_MS, EVENTS_MAX, INLINE_MAX_BYTES, OTHER_VERSIONS_MAX_ADDRESSES, OWN_LINK_DESCRIPTORS,
    PASS_MAX_ENDS, READ_BUFFER_BYTES, RETRY_MS,
};
use crate::link::{Link, Origin, ReadStep};
use crate::links::{Links, Slot};
use crate::listener::Listener;
use crate::local_address_cache::LocalAddressCache;
use crate::provider::BoundTcp;
use crate::shortage::Shortage;
use crate::socket::{self, KernelBuffers};
use crate::staging::SpareBuffers;
use crate::transport::cores::PeerCores;

/// The listener's token in the poll. The token of a link is the link's number, which is always smaller.
const LISTENER: Token = Token(usize::MAX);

/// One endpoint's sockets: its listener and its links. [`TcpProvider`](crate::TcpProvider) opens it.
///
/// Dropping the transport closes all its sockets at once. To end a link in order, call
/// [`close`](Transport::close) with [`Close::Drain`].
///
/// In a forked child, all links of the transport are down. The child neither uses nor changes the sockets of
/// its parent.
#[derive(Debug)]
pub struct TcpTransport {
    poll: CloseOnFork<Poll>,
    events: Events,
    /// Takes new links while this side accepts them. Also takes the questions of peers about links of this
    /// side.
    listener: Option<Listener>,
    is_accepting: bool,
    links: Links,
    /// Links that may have something to read. A link stays in the list until a read finds its socket empty.
    ready: VecDeque<LinkId>,
    /// Links that have staged bytes and whose sockets may be writable.
    dirty: Vec<LinkId>,
    /// Links on which operations were posted since the last pass.
    bursting: Vec<LinkId>,
    hold_policy: HoldPolicy,
    burst_clock: Clock,
    /// Links that have become writable. The next pass reports them.
    writable: Vec<LinkId>,
    half_open: HalfOpenLinks,
    address_claims: AddressClaims,
    /// The connections that check claims. A check's token in the poll determines its index in this list.
    checks: Vec<Option<Box<Check>>>,
    accepted: AcceptedLinks,
    /// How many links this side has connected or is connecting.
    connected_links: usize,
    /// This endpoint has refused a peer, because it already had all allowed accepted links.
    has_refused: bool,
    /// How many accepted connections have one of the last descriptors, which are reserved for the process
    /// itself.
    reserve_links: usize,
    /// The lack of descriptors that keeps connections waiting.
    accept_shortage: Shortage,
    /// The lack of descriptors that keeps held links waiting.
    check_shortage: Shortage,
    spare_descriptor: Arc<SpareDescriptor>,
    /// The endpoint has warned of a link that gave its place to another one. It warns only once.
    has_warned_of_displaced: bool,
    /// Likewise, of a peer with too few descriptors.
    has_warned_of_refusal: bool,
    local_addresses: LocalAddressCache,
    /// The endpoint has warned of a connection in another protocol. It warns only once: otherwise strangers
    /// could fill the log.
    has_warned_of_foreign_protocol: bool,
    /// Likewise, of a peer that speaks another version of the protocol.
    has_warned_of_other_version: bool,
    /// Closed links that are still draining.
    draining: BTreeSet<LinkId>,
    /// How many more ends of links this pass may report. After that it reads no further links and checks.
    ends_left: u32,
    busy_link: BusyLink,
    peer_cores: PeerCores,
    spare: SpareBuffers,
    read_buffer: Box<[u8]>,
    address: Address,
    /// The source address of outgoing connections. If `None`, the routing table decides.
    source: Option<SocketAddr>,
    hello: [u8; HELLO_BYTES],
    buffers: KernelBuffers,
    /// How long a peer's host may leave the tries to connect unanswered. If `None`, the kernel decides.
    connect_timeout: Option<Duration>,
    /// The links of this pass that have ended before they came up: where they led, and since when this side
    /// has tried.
    cut_short: Vec<(Address, Instant)>,
    /// Addresses at which the last connect has found a peer of another version of the protocol. The next link
    /// to such an address takes no frames before the peer's hello: they would be lost.
    other_versions: BTreeSet<Address>,
}

/// What an endpoint allows the peers that connect to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcceptLimits {
    /// How many accepted links there may be on which the peer has said hello.
    pub(crate) max_links: usize,
    /// How long a link whose claim is unproven is safe from being displaced.
    pub(crate) unproven_grace: Duration,
    /// How long an accepted connection may take until the peer's hello has arrived.
    pub(crate) hello_timeout: Duration,
    /// How long a link with a contested claim is held.
    pub(crate) hold_timeout: Duration,
}

impl TcpTransport {
    pub(crate) fn listen(bound: BoundTcp, instance: u64) -> io::Result<TcpTransport> {
        let BoundTcp { socket, bound, address, buffers, accepting, connect_timeout } = bound;
        let poll = CloseOnFork::new(Poll::new()?);
        let listener = Listener::new(socket::listen(socket)?, poll.registry(), LISTENER)?;
        tracing::debug!(%bound, %address, "listening");
        Ok(TcpTransport {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            listener: Some(listener),
            is_accepting: true,
            links: Links::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            bursting: Vec::new(),
            hold_policy: HoldPolicy::default(),
            burst_clock: Clock::System,
            writable: Vec::new(),
            half_open: HalfOpenLinks::new(accepting.hello_timeout),
            address_claims: AddressClaims::new(accepting.hold_timeout),
            checks: Vec::new(),
            accepted: AcceptedLinks::new(accepting.max_links, accepting.unproven_grace),
            connected_links: 0,
            has_refused: false,
            reserve_links: 0,
            accept_shortage: Shortage::default(),
            check_shortage: Shortage::default(),
            spare_descriptor: SpareDescriptor::of_this_process()?,
            has_warned_of_displaced: false,
            has_warned_of_refusal: false,
            local_addresses: LocalAddressCache::default(),
            has_warned_of_foreign_protocol: false,
            has_warned_of_other_version: false,
            draining: BTreeSet::new(),
            ends_left: PASS_MAX_ENDS,
            busy_link: BusyLink::default(),
            peer_cores: PeerCores::default(),
            spare: SpareBuffers::default(),
            read_buffer: vec![0; READ_BUFFER_BYTES].into(),
            address,
            source: Address::from(bound).is_specific().then_some(bound),
            hello: Hello { address, instance }.to_bytes(),
            buffers,
            connect_timeout,
            cut_short: Vec::new(),
            other_versions: BTreeSet::new(),
        })
    }
}

impl Transport for TcpTransport {
    fn address(&self) -> Address {
        self.address
    }

    fn caps(&self, _link: LinkId) -> LinkCaps {
        LinkCaps { inline_max_bytes: INLINE_MAX_BYTES, pull_min_bytes: usize::MAX }
    }

    fn connect(&mut self, to: Address) -> LinkId {
        self.connect_since(None, to)
    }

    fn connect_again(&mut self, to: Address) -> LinkId {
        let begin = self.cut_short.iter().find(|(address, _)| *address == to).map(|(_, begin)| *begin);
        self.connect_since(begin, to)
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        debug_assert!(payload.len() <= INLINE_MAX_BYTES, "more than inline_max_bytes");
        self.write_and_enlist(link, |link, spare| {
            link.outbound.stage_frame(&*link.stream, header, &[IoSlice::new(payload)], spare)
        })
        .unwrap_or(Err(Full))
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        self.write_and_enlist(link, |link, spare| link.outbound.send(&*link.stream, header, payload, spare))
            .unwrap_or(Sent::Full)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.write_and_enlist(link, |link, spare| link.outbound.resume(&*link.stream, rest, spare))
            .unwrap_or(Sent::Full)
    }

    // Inlined, so that a pass in which nothing was sent costs two comparisons.
    #[inline]
    fn flush(&mut self) {
        if !self.dirty.is_empty() {
            self.flush_dirty_links();
        }
        if !self.bursting.is_empty() {
            self.end_bursts();
        }
    }

    #[inline]
    fn hand_over(&mut self) {
        if !self.dirty.is_empty() {
            self.hand_over_dirty_links();
        }
    }

    /// Every read counts against the budget, even if it completes no frame. In the result, a read that
    /// returns only a part of a payload counts as one frame. One read may return as many frames as fit into
    /// [`READ_BUFFER_BYTES`], and so exceed the budget. The first read of an accepted connection does not
    /// count, so new connections do not delay the reads of links.
    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        self.ends_left = PASS_MAX_ENDS;
        self.cut_short.clear();
        if self.links.are_inherited() {
            return self.end_inherited_links(receiver);
        }
        if !self.bursting.is_empty() {
            self.end_bursts();
        }
        match self.busy_link.next_blind_read().and_then(|id| Some((id, self.links.link_mut(id)?))) {
            Some((id, link)) => enlist_ready(&mut self.ready, id, link),
            None => self.poll_kernel(),
        }
        let mut reported = self.writable.len() as u32;
        self.writable.drain(..).for_each(|id| receiver.link_writable(id));
        self.advance_draining();
        reported += self.accept_waiting_connections(receiver);
        if !self.half_open.is_empty() {
            reported += self.drop_expired_half_open(receiver);
        }
        if self.address_claims.is_busy() {
            reported += self.advance_claim_checks(receiver);
        }
        // Most passes end here, and so avoid the setup of the loop.
        if self.ready.is_empty() {
            return reported;
        }
        let mut spent = 0_u32;
        while spent < budget_frames
            && self.ends_left > 0
            && let Some(id) = self.ready.pop_front()
        {
            let count = self.read_link(id, receiver);
            spent = spent.saturating_add(count.max(1));
            reported = reported.saturating_add(count);
        }
        reported
    }

    /// A link refuses frames while it is connecting, while the kernel's buffer is full, and while the
    /// acceptor holds it. The kernel reports the end of the first two. At the end of the last, the link
    /// comes up.
    fn reports_writable_links(&self) -> bool {
        true
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        // A forked child has no descriptor: the fork handler has closed its copy.
        (!self.links.are_inherited()).then(|| self.poll.registry().as_fd())
    }

    fn arm(&mut self) -> Armed {
        if self.links.are_inherited() {
            return Armed::Ready;
        }
        if !self.bursting.is_empty() {
            self.end_bursts();
        }
        // The last passes may have read blindly, without polling the kernel.
        self.poll_kernel();
        let has_connections = self.listener.as_ref().is_some_and(Listener::can_accept);
        let has_output = !self.writable.is_empty() || !self.dirty.is_empty();
        if has_connections || has_output || !self.ready.is_empty() || self.has_check_work() {
            return Armed::Ready;
        }
        let is_paused = self.listener.as_mut().is_some_and(Listener::end_pause_if_pending);
        let retry_ms = [(is_paused, ACCEPT_RETRY_MS), (!self.draining.is_empty(), RETRY_MS)];
        let retries = retry_ms.into_iter().filter(|(is_due, _)| *is_due);
        let retries = retries.map(|(_, ms)| Duration::from_millis(ms));
        let times = retries
            .chain(self.half_open.prepare_sleep_and_get_time_limit())
            .chain(self.prepare_claim_checks_for_sleep());
        Armed::Asleep { look_again_after: times.min() }
    }

    fn publish_core_and_find_peer(&mut self, core: u32) -> bool {
        self.look_for_peer_on_core(core)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        tracing::debug!(link = link.0, ?how, "closing");
        match (how, self.links.link_mut(link)) {
            (Close::Drain, Some(made)) if made.is_closing() => {}
            (Close::Drain, Some(made)) if made.outbound.failure().is_none() => {
                made.start_draining();
                self.draining.insert(link);
                self.accepted.protect(link);
                // The caller no longer uses the link, so the link contests no claim any more.
                if let Some(address) = made.address() {
                    self.address_claims.record_hang_up(link, address, HangUp::EndOfStream);
                }
                // Read the rest, too: if unread bytes were left at the close, the kernel would send a reset
                // instead of an orderly end.
                enlist_ready(&mut self.ready, link, made);
                self.flush_link(link);
            }
            _ => self.drop_link(link),
        }
    }

    /// Also drops held links, which the caller does not know. Keeps the listener while this side has links
    /// that it has connected: peers may hold these links and ask about them.
    fn stop_accepting(&mut self) {
        self.is_accepting = false;
        self.drop_held_links();
        self.close_listener_if_unneeded();
    }

    fn draining_count(&self) -> usize {
        self.draining.len()
    }
}

impl TcpTransport {
    /// Whether the next pass has something to do that no event of the kernel announces: to read a link, to
    /// report that a link has become writable, to accept a connection, to check a claim, or, in a forked
    /// child, to report the end of the links.
    #[inline]
    pub fn has_work_now(&self) -> bool {
        let has_connections = self.listener.as_ref().is_some_and(Listener::can_accept);
        let has_check_work = self.address_claims.is_busy() && self.has_check_work();
        let has_links = !self.ready.is_empty() || !self.writable.is_empty();
        self.links.are_inherited() || has_connections || has_links || has_check_work
    }

    /// Whether this process is a forked child, whose links are its parent's.
    #[inline]
    pub fn are_links_inherited(&self) -> bool {
        self.links.are_inherited()
    }

    /// Whether later passes have something to do that no event of the kernel announces: to end a link that
    /// has [drained](Transport::draining_count), to accept a connection after a pause, to drop connections
    /// without a hello, or to check claims.
    #[inline]
    pub fn has_timed_work(&self) -> bool {
        let is_paused = self.listener.as_ref().is_some_and(Listener::may_have_connections);
        let has_links = !self.draining.is_empty() || !self.half_open.is_empty();
        is_paused || has_links || self.address_claims.is_busy()
    }

    /// Polls the kernel for events.
    fn poll_kernel(&mut self) {
        if let Err(error) = self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            tracing::trace!(%error, "no events in this pass");
            return;
        }
        // This loop only marks links, and ends none. A link that ends deregisters its socket before its
        // number is reused, so every event belongs to the current link of its number.
        for event in &self.events {
            if event.token() == LISTENER {
                if let Some(listener) = &mut self.listener {
                    listener.mark_pending();
                }
                continue;
            }
            if let Some(place) = checking::check_of_poll_token(event.token()) {
                if let Some(Some(check)) = self.checks.get_mut(place) {
                    check.is_ready = true;
                }
                continue;
            }
            let Ok(number) = u32::try_from(event.token().0) else { continue };
            let id = LinkId(number);
            let Some(link) = self.links.link_mut(id) else { continue };
            let has_ended = event.is_read_closed() || event.is_error();
            if has_ended {
                link.mark_hung_up();
                if let Some(address) = link.address() {
                    self.address_claims.record_hang_up(id, address, link.determine_hang_up());
                }
            }
            if has_ended || event.is_readable() {
                enlist_ready(&mut self.ready, id, link);
            }
            if has_ended || event.is_writable() {
                if !link.outbound.can_write() {
                    self.writable.push(id);
                }
                if let Some(to) = link.handle_writable() {
                    self.address_claims.record_connection_made(id, to);
                }
                enlist_dirty(&mut self.dirty, id, link);
                if link.outbound.failure().is_some() {
                    enlist_ready(&mut self.ready, id, link);
                }
            }
        }
    }

    /// Starts to connect to a peer. This side has tried to reach it since `begin`, or tries now for the first
    /// time.
    fn connect_since(&mut self, begin: Option<Instant>, to: Address) -> LinkId {
        let now = Instant::now();
        let begin = begin.unwrap_or(now);
        let timeout =
            self.connect_timeout.map(|max| max.saturating_sub(now.saturating_duration_since(begin)));
        let made = if self.links.are_inherited() {
            Err(FORKED_CHILD)
        } else if to.format() != self.address.format() {
            Err(LinkError::System(Errno::EAFNOSUPPORT))
        } else if self.is_beyond_loopback(to) {
            Err(LinkError::LoopbackOnly { own: Box::new(self.address), peer: Box::new(to) })
        } else if to == self.address && !DescriptorLimit::current().has_spare(OWN_LINK_DESCRIPTORS) {
            Err(LinkError::System(Errno::EMFILE))
        } else if timeout.is_some_and(|left| left.as_millis() == 0) {
            // To the kernel, which counts milliseconds, 0 means its own limit.
            Err(LinkError::System(Errno::ETIMEDOUT))
        } else {
            socket::start_connect(to.socket_addr(), self.source, self.buffers, timeout)
                .and_then(|stream| self.create_registered_link(stream, Origin::Connected(to)))
                .map_err(|error| LinkError::System(socket::to_errno(&error)))
        };
        let id = match made {
            Ok(id) => {
                self.connected_links += 1;
                self.address_claims.add_connecting(id, to, now);
                if let Some(link) = self.links.link_mut(id) {
                    link.connect_began = Some(begin);
                    if self.other_versions.remove(&to) {
                        link.hold_frames_until_greeting();
                    }
                }
                id
            }
            Err(error) => {
                let id = self.links.insert(Slot::Failed(error));
                self.ready.push_back(id);
                id
            }
        };
        tracing::debug!(link = id.0, %to, "connecting");
        id
    }

    /// Whether the endpoint is at a loopback address, and the peer on another host. The kernel's answer would
    /// depend on the address family and the routes: EINVAL, ENETUNREACH, or silence.
    fn is_beyond_loopback(&self, to: Address) -> bool {
        self.source.is_some_and(|source| source.ip().is_loopback())
            && !to.ip().is_loopback()
            && !socket::is_address_of_this_host(to.ip())
    }

    /// Creates a link for a connection and registers it with the kernel.
    fn create_registered_link(&mut self, stream: TcpStream, origin: Origin) -> io::Result<LinkId> {
        let mut link = Link::new(stream, origin);
        if let Origin::Connected(_) = origin {
            link.outbound.stage_bytes(&self.hello, &mut self.spare);
        }
        let id = self.links.insert(Slot::Made(Box::new(link)));
        if let Some(link) = self.links.link_mut(id) {
            let both = Interest::READABLE | Interest::WRITABLE;
            let registered = self.poll.registry().register(&mut *link.stream, Token(id.0 as usize), both);
            if let Err(error) = registered {
                self.links.remove(id);
                return Err(error);
            }
        }
        Ok(id)
    }

    /// Flushes draining links, and ends links whose data the peer's kernel has acknowledged. Does not wait
    /// for the end of the peer's stream: to close an endpoint must not depend on the peer's progress.
    fn advance_draining(&mut self) {
        let mut next = self.draining.first().copied();
        while let Some(id) = next {
            next = self.draining.range((Excluded(id), Unbounded)).next().copied();
            self.flush_link(id);
            if self.links.link_mut(id).is_some_and(|link| link.has_peer_acknowledged_all()) {
                self.drop_link(id);
            }
        }
    }

    /// Reads one link once. Returns how many frames and events it has reported.
    fn read_link(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        if let Some(Slot::Failed(error)) = self.links.slot(id) {
            let error = error.clone();
            self.links.remove(id);
            return report_down(id, error, receiver);
        }
        let Some(link) = self.links.link_mut(id) else { return 0 };
        if !mem::take(&mut link.in_ready) {
            return 0;
        }
        if !link.carries_frames() {
            return self.read_before_frames(id, receiver);
        }
        let is_core_due = self.peer_cores.is_read_due && !link.is_within_payload();
        let step = link.read(id, &mut self.read_buffer, None, receiver);
        if let ReadStep::Ready(1..) | ReadStep::Idle(1..) = step {
            self.busy_link.note_read(id);
        }
        match step {
            ReadStep::Ready(reported) => {
                enlist_ready(&mut self.ready, id, link);
                reported
            }
            ReadStep::Idle(reported) => {
                if reported > 0 && is_core_due {
                    self.read_peer_core(id);
                }
                reported
            }
            ReadStep::Ended(error) => self.end_link(id, error, receiver),
        }
    }

    /// Ends a link whose stream has ended or broken. Returns how many events it has reported.
    fn end_link(&mut self, id: LinkId, error: LinkError, receiver: &mut impl FrameHandler) -> u32 {
        let Some(link) = self.links.link_mut(id) else { return 0 };
        let (origin, is_known_to_engine) = (link.origin, link.is_known_to_engine());
        if let (Origin::Connected(to), Some(begin), false) =
            (origin, link.connect_began, link.carries_frames())
        {
            self.cut_short.push((to, begin));
            if matches!(error, LinkError::OtherVersion { .. })
                && self.other_versions.len() < OTHER_VERSIONS_MAX_ADDRESSES
            {
                self.other_versions.insert(to);
            }
        }
        tracing::debug!(link = id.0, ?origin, %error, is_known_to_engine, "down");
        self.drop_link(id);
        if !is_known_to_engine {
            return 0;
        }
        self.count_and_report_end(id, error, receiver)
    }

    /// Reports the end of a link, and counts it among those of this pass.
    fn count_and_report_end(
        &mut self,
        id: LinkId,
        error: LinkError,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        self.ends_left = self.ends_left.saturating_sub(1);
        report_down(id, error, receiver)
    }

    /// Ends all links in a forked child, to which none of them belongs.
    fn end_inherited_links(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        let inherited: Vec<LinkId> = self.links.ids().collect();
        let mut reported = 0;
        for id in inherited {
            let is_known_to_engine = match self.links.slot(id) {
                Some(Slot::Made(link)) => link.is_known_to_engine(),
                Some(Slot::Failed(_)) => true,
                None => false,
            };
            self.drop_link(id);
            if is_known_to_engine {
                reported += report_down(id, FORKED_CHILD, receiver);
            }
        }
        reported
    }

    /// Closes the listener and the connections without a hello, unless they are still needed: this side
    /// accepts links, or has links that it has connected and that peers may ask about.
    fn close_listener_if_unneeded(&mut self) {
        if self.is_accepting || self.connected_links > 0 && !self.links.are_inherited() {
            return;
        }
        if let Some(listener) = self.listener.take()
            && !self.links.are_inherited()
        {
            listener.close(self.poll.registry());
        }
        while let Some(id) = self.half_open.pop_oldest() {
            self.drop_link(id);
        }
    }

    /// Ends a link and frees its number.
    fn drop_link(&mut self, id: LinkId) {
        let Some(Slot::Made(mut link)) = self.links.remove(id) else { return };
        if let Origin::Accepted { serial, .. } = link.origin {
            self.half_open.remove(serial);
            self.accepted.remove(id);
            self.reserve_links -= usize::from(link.is_in_reserve);
        }
        if link.is_closing() {
            self.draining.remove(&id);
        }
        link.given_token.into_iter().for_each(|token| self.address_claims.retire_token(token));
        link.address().into_iter().for_each(|address| self.address_claims.remove_link(id, address));
        if self.links.are_inherited() {
            return;
        }
        link.reset_on_close_if_incomplete();
        // Closing the socket would not deregister it if a forked child holds a copy.
        if let Err(error) = self.poll.registry().deregister(&mut *link.stream) {
            tracing::debug!(link = id.0, %error, "the connection was not registered");
        }
        if let Some(listener) = &mut self.listener {
            listener.end_pause();
        }
        if let Origin::Connected(_) = link.origin {
            self.connected_links -= 1;
            self.close_listener_if_unneeded();
        }
    }
}

/// What tests see and set.
#[cfg(test)]
impl TcpTransport {
    /// Stops the clock by which bursts are timed. From now on, all posts between two passes belong to one
    /// burst.
    pub(crate) fn stop_burst_clock(&mut self) {
        self.burst_clock = Clock::Stopped(self.burst_clock.now());
    }

    /// Whether the kernel was asked to hold frames of this link back, and was not asked to push them since.
    pub(crate) fn holds_back(&mut self, link: LinkId) -> bool {
        self.links.link_mut(link).is_some_and(|link| link.outbound.may_hold_back())
    }
}

/// The error with which all links end in a forked child.
const FORKED_CHILD: LinkError = LinkError::Denied(Denial::ForkedChild);

fn report_down(id: LinkId, error: LinkError, receiver: &mut impl FrameHandler) -> u32 {
    receiver.link_event(id, LinkEvent::Down(error));
    1
}

fn enlist_ready(ready: &mut VecDeque<LinkId>, id: LinkId, link: &mut Link) {
    if !mem::replace(&mut link.in_ready, true) {
        ready.push_back(id);
    }
}

fn enlist_dirty(dirty: &mut Vec<LinkId>, id: LinkId, link: &mut Link) {
    if link.needs_flush() && !mem::replace(&mut link.in_dirty, true) {
        dirty.push(id);
    }
}

#[cfg(test)]
mod tests;
