//! The transport: all links of one endpoint.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, Write};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::transport::{
    Armed, Close, FrameHandler, Full, LinkCaps, LinkError, LinkEvent, LinkId, Sent, Transport,
};
use homespun_engine::wire::Header;
use homespun_engine::wire::hello::{HELLO_BYTES, Hello};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;

use crate::busy_link::BusyLink;
use crate::foreign;
use crate::interface_selector::InterfaceSelector;
use crate::limits::{
    ACCEPT_BATCH_CONNECTIONS, EVENTS_MAX, HALF_OPEN_MAX_LINKS, INLINE_MAX_BYTES, READ_BUFFER_BYTES, RETRY_MS,
};
use crate::link::{Link, Origin, ReadStep};
use crate::links::{Links, Slot};
use crate::listener::Listener;
use crate::local;
use crate::socket::{self, KernelBuffers};
use crate::staging::SpareBuffers;

/// The token of the listener. The token of a link is its number, which is always smaller.
const LISTENER: Token = Token(usize::MAX);

/// One endpoint's sockets: its listener and its links. Opened by [`TcpProvider`](crate::TcpProvider).
///
/// Dropping the transport closes all its sockets at once. To end a link in order, call
/// [`close`](Transport::close) with [`Close::Drain`].
#[derive(Debug)]
pub struct TcpTransport {
    poll: Poll,
    events: Events,
    listener: Option<Listener>,
    links: Links,
    /// Links that may have something to read. A link stays in the list until a read finds the socket empty.
    ready: VecDeque<LinkId>,
    /// Links with staged bytes that may be writable.
    dirty: Vec<LinkId>,
    /// A blocked link may have become writable since the transport was last armed.
    has_new_room: bool,
    /// Accepted links whose hello has not arrived, in the order in which they were accepted.
    half_open: BTreeMap<u64, LinkId>,
    accepted_count: u64,
    /// A warning of a connection in another protocol was logged. There is one for each endpoint, since
    /// strangers cause them.
    has_warned_of_stranger: bool,
    /// Closed links that are still draining.
    draining: Vec<LinkId>,
    busy_link: BusyLink,
    spare: SpareBuffers,
    read_buffer: Box<[u8]>,
    address: Address,
    /// The source address of outgoing connections; `None` leaves the choice to the routing table.
    source: Option<SocketAddr>,
    hello: [u8; HELLO_BYTES],
    buffers: KernelBuffers,
}

impl TcpTransport {
    pub(crate) fn open(
        bind: Address,
        instance: u64,
        buffers: KernelBuffers,
        interfaces: Option<&InterfaceSelector>,
    ) -> io::Result<TcpTransport> {
        let poll = Poll::new()?;
        let socket = socket::listen(bind.socket_addr(), buffers)?;
        let bound = socket.local_addr()?;
        let address = local::reachable_address(bound, interfaces)?;
        let listener = Listener::new(socket, poll.registry(), LISTENER)?;
        tracing::debug!(%bound, %address, "listening");
        Ok(TcpTransport {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            listener: Some(listener),
            links: Links::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            has_new_room: false,
            half_open: BTreeMap::new(),
            accepted_count: 0,
            has_warned_of_stranger: false,
            draining: Vec::new(),
            busy_link: BusyLink::default(),
            spare: SpareBuffers::default(),
            read_buffer: vec![0; READ_BUFFER_BYTES].into(),
            address,
            source: bind.is_specific().then_some(bound),
            hello: Hello { address, instance }.to_bytes(),
            buffers,
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
        let made = if to.format() == self.address.format() {
            socket::start_connect(to.socket_addr(), self.source, self.buffers)
                .and_then(|stream| self.create_registered_link(stream, Origin::Connected(to)))
        } else {
            Err(rustix::io::Errno::AFNOSUPPORT.into())
        };
        let id = made.unwrap_or_else(|error| {
            let id = self.links.insert(Slot::Failed(socket::to_errno(&error)));
            self.ready.push_back(id);
            id
        });
        tracing::debug!(link = id.0, %to, "connecting");
        id
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        debug_assert!(payload.len() <= INLINE_MAX_BYTES, "more than inline_max_bytes");
        self.write_and_enlist(link, |link, spare| {
            link.outbound.stage_frame(&link.stream, header, &[IoSlice::new(payload)], spare)
        })
        .unwrap_or(Err(Full))
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        self.write_and_enlist(link, |link, spare| link.outbound.send(&link.stream, header, payload, spare))
            .unwrap_or(Sent::Full)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.write_and_enlist(link, |link, spare| link.outbound.resume(&link.stream, rest, spare))
            .unwrap_or(Sent::Full)
    }

    fn flush(&mut self) {
        let mut dirty = mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            // A number may be in the list twice, or may be that of a link that has ended. So the link's own
            // mark decides.
            if self.links.link_mut(id).is_some_and(|link| mem::take(&mut link.in_dirty)) {
                self.flush_link(id);
            }
        }
        self.dirty = dirty;
    }

    /// Every read counts against the budget, even if it completes no frame. A read that returns only part of
    /// a payload counts as one frame in the result. One read may return as many frames as fit into
    /// [`READ_BUFFER_BYTES`], and so exceed the budget.
    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        match self.busy_link.next_blind_read().and_then(|id| Some((id, self.links.link_mut(id)?))) {
            Some((id, link)) => enlist_ready(&mut self.ready, id, link),
            None => self.poll_kernel(),
        }
        self.advance_draining();
        self.accept_waiting();
        // Most passes end here, and so avoid the setup of the loop.
        if self.ready.is_empty() {
            return 0;
        }
        let (mut spent, mut reported) = (0_u32, 0_u32);
        while spent < budget_frames
            && let Some(id) = self.ready.pop_front()
        {
            let count = self.read_link(id, receiver);
            spent = spent.saturating_add(count.max(1));
            reported = reported.saturating_add(count);
        }
        reported
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.registry().as_fd())
    }

    fn arm(&mut self) -> Armed {
        // The last passes may have read blindly, without polling the kernel.
        self.poll_kernel();
        let has_connections = self.listener.as_ref().is_some_and(Listener::can_accept);
        let has_new_room = mem::take(&mut self.has_new_room);
        if has_connections || has_new_room || !self.ready.is_empty() || !self.dirty.is_empty() {
            return Armed::Ready;
        }
        let is_paused = self.listener.as_mut().is_some_and(Listener::end_pause_if_pending);
        let must_look = is_paused || !self.draining.is_empty();
        Armed::Asleep { look_again_after: must_look.then_some(Duration::from_millis(RETRY_MS)) }
    }

    fn close(&mut self, link: LinkId, how: Close) {
        tracing::debug!(link = link.0, ?how, "closing");
        match (how, self.links.link_mut(link)) {
            (Close::Drain, Some(made)) if made.is_closing() => {}
            (Close::Drain, Some(made)) if made.outbound.failure().is_none() => {
                made.start_draining();
                self.draining.push(link);
                // Read the rest, too: if unread bytes were left at the close, the kernel would send a reset
                // instead of an orderly end.
                enlist_ready(&mut self.ready, link, made);
                self.flush_link(link);
            }
            _ => self.drop_link(link),
        }
    }

    /// Also drops half-open connections, since they have not been reported as links.
    fn stop_accepting(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.close(self.poll.registry());
        }
        while let Some((_, id)) = self.half_open.pop_first() {
            self.drop_link(id);
        }
    }

    fn draining_count(&self) -> usize {
        self.draining.len()
    }
}

impl TcpTransport {
    /// Polls the kernel for events.
    fn poll_kernel(&mut self) {
        if let Err(error) = self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            tracing::trace!(%error, "no events in this pass");
            return;
        }
        // This loop only marks links, and ends none. The end of a link deregisters its socket first, so no
        // event can belong to an earlier link of the same number.
        for event in &self.events {
            if event.token() == LISTENER {
                if let Some(listener) = &mut self.listener {
                    listener.mark_pending();
                }
                continue;
            }
            let Ok(number) = u32::try_from(event.token().0) else { continue };
            let id = LinkId(number);
            let Some(link) = self.links.link_mut(id) else { continue };
            let has_ended = event.is_read_closed() || event.is_error();
            if has_ended {
                link.mark_hung_up();
            }
            if has_ended || event.is_readable() {
                enlist_ready(&mut self.ready, id, link);
            }
            if has_ended || event.is_writable() {
                self.has_new_room |= !link.outbound.can_write();
                link.handle_writable();
                enlist_dirty(&mut self.dirty, id, link);
                if link.outbound.failure().is_some() {
                    enlist_ready(&mut self.ready, id, link);
                }
            }
        }
    }

    /// Accepts connections that wait at the listener.
    fn accept_waiting(&mut self) {
        for _ in 0..ACCEPT_BATCH_CONNECTIONS {
            let Some((stream, remote)) = self.listener.as_mut().and_then(Listener::try_accept) else {
                return;
            };
            if self.half_open.len() >= HALF_OPEN_MAX_LINKS
                && let Some((_, oldest)) = self.half_open.pop_first()
            {
                tracing::debug!(link = oldest.0, "dropped: too many connections without a hello");
                self.drop_link(oldest);
            }
            let serial = self.accepted_count;
            self.accepted_count += 1;
            let entered = socket::set_connection_options(&SockRef::from(&stream))
                .and_then(|()| self.create_registered_link(stream, Origin::Accepted { remote, serial }));
            match entered {
                Ok(id) => {
                    tracing::debug!(link = id.0, %remote, "accepted");
                    self.half_open.insert(serial, id);
                    if let Some(link) = self.links.link_mut(id) {
                        // Usually the peer's hello has already arrived.
                        enlist_ready(&mut self.ready, id, link);
                    }
                }
                Err(error) => tracing::debug!(%remote, %error, "dropped: cannot register the connection"),
            }
        }
    }

    /// Creates a link for a connection and registers it with the kernel.
    fn create_registered_link(&mut self, stream: TcpStream, origin: Origin) -> io::Result<LinkId> {
        let mut link = Link::new(stream, origin);
        if let Origin::Connected(_) = origin {
            link.outbound.stage_hello(&self.hello, &mut self.spare);
        }
        let id = self.links.insert(Slot::Made(Box::new(link)));
        if let Some(link) = self.links.link_mut(id) {
            let both = Interest::READABLE | Interest::WRITABLE;
            let registered = self.poll.registry().register(&mut link.stream, Token(id.0 as usize), both);
            if let Err(error) = registered {
                self.links.remove(id);
                return Err(error);
            }
        }
        Ok(id)
    }

    /// Writes on a link and enlists it for the flush. If the write has failed, also enlists it for a read.
    fn write_and_enlist<T>(
        &mut self,
        id: LinkId,
        write: impl FnOnce(&mut Link, &mut SpareBuffers) -> T,
    ) -> Option<T> {
        let link = self.links.link_mut(id).filter(|link| !link.is_closing())?;
        let result = write(link, &mut self.spare);
        if !link.outbound.can_write() {
            // Poll the kernel in the next pass, to learn soon when there is room.
            self.busy_link.force_kernel_poll();
        }
        enlist_dirty(&mut self.dirty, id, link);
        if link.outbound.failure().is_some() {
            // The link first reads the frames that the peer has already sent, then ends.
            link.mark_hung_up();
            enlist_ready(&mut self.ready, id, link);
        }
        Some(result)
    }

    fn flush_link(&mut self, id: LinkId) {
        let Some(link) = self.links.link_mut(id) else { return };
        link.flush(&mut self.spare);
        if link.outbound.failure().is_some() {
            if link.is_closing() {
                self.drop_link(id);
            } else {
                enlist_ready(&mut self.ready, id, link);
            }
        }
    }

    /// Flushes draining links, and ends those whose data the peer's kernel has acknowledged. Does not wait
    /// for the end of the peer's stream, because closing an endpoint must not depend on the progress of its
    /// peer.
    fn advance_draining(&mut self) {
        for place in (0..self.draining.len()).rev() {
            let id = self.draining[place];
            self.flush_link(id);
            if self.links.link_mut(id).is_some_and(|link| link.has_peer_acknowledged_all()) {
                self.drop_link(id);
            }
        }
    }

    /// Reads one link once. Returns how many frames and events the read has reported.
    fn read_link(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        if let Some(&Slot::Failed(errno)) = self.links.slot(id) {
            self.links.remove(id);
            return report_down(id, LinkError::System(errno), receiver);
        }
        let Some(link) = self.links.link_mut(id) else { return 0 };
        if !mem::take(&mut link.in_ready) {
            return 0;
        }
        let step = link.read(id, &mut self.read_buffer, local::is_local, receiver);
        if let Origin::Accepted { serial, .. } = link.origin
            && !link.is_half_open()
            && self.half_open.remove(&serial).is_some()
        {
            // The acceptor sends its hello only now, since a peer that has received it takes the link to be
            // up on both sides. If this side dropped a half-open link after its hello, the peer would see a
            // broken link and give up its other links unread.
            link.outbound.stage_hello(&self.hello, &mut self.spare);
            enlist_dirty(&mut self.dirty, id, link);
        }
        if let ReadStep::Ready(1..) | ReadStep::Idle(1..) = step {
            self.busy_link.note_read(id);
        }
        match step {
            ReadStep::Ready(reported) => {
                enlist_ready(&mut self.ready, id, link);
                reported
            }
            ReadStep::Idle(reported) => reported,
            ReadStep::Ended(error) => {
                let is_known = !link.is_closing() && !link.is_half_open();
                if let (true, Origin::Accepted { remote, .. }, LinkError::Protocol(reason)) =
                    (link.is_half_open(), link.origin, &error)
                {
                    refuse_stranger(&link.stream, &self.read_buffer);
                    if !mem::replace(&mut self.has_warned_of_stranger, true) {
                        tracing::warn!(%remote, reason, "refused a connection: the process that made it does \
                            not speak homespun's protocol; further ones are not reported");
                    }
                }
                tracing::debug!(link = id.0, origin = ?link.origin, %error, is_known, "down");
                self.drop_link(id);
                if is_known { report_down(id, error, receiver) } else { 0 }
            }
        }
    }

    /// Ends a link and frees its number.
    fn drop_link(&mut self, id: LinkId) {
        let Some(Slot::Made(mut link)) = self.links.remove(id) else { return };
        if let Origin::Accepted { serial, .. } = link.origin {
            self.half_open.remove(&serial);
        }
        if link.is_closing() {
            self.draining.retain(|draining| *draining != id);
        }
        link.reset_on_close_if_incomplete();
        // Closing the socket would not suffice, since a forked child may hold a copy.
        if let Err(error) = self.poll.registry().deregister(&mut link.stream) {
            tracing::debug!(link = id.0, %error, "the connection was not registered");
        }
        if let Some(listener) = &mut self.listener {
            listener.end_pause();
        }
    }
}

/// Refuses the connection of a stranger, whose stream begins like `received`.
fn refuse_stranger(mut stream: &TcpStream, received: &[u8]) {
    if let Some(refusal) = foreign::refusal_for(received)
        && let Err(error) = stream.write(refusal)
    {
        tracing::debug!(%error, "the stranger does not learn that it was refused");
    }
}

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
