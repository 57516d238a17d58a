//! How connections are accepted, and the limits on those that say nothing.
//!
//! A stranger that connects and says nothing takes a descriptor only for the time in which its hello must
//! arrive. The number of connections without a hello is limited. Once an accepted connection has one of the
//! last descriptors of the process, the endpoint gives another of these only in exchange for a connection
//! without a hello. See docs/decisions/tcp-strangers.md.

use std::io::Write;
use std::mem;
use std::net::SocketAddr;
use std::time::Instant;

use homespun_engine::transport::{FrameHandler, LinkError, LinkId};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::hello::HELLO_BYTES;
use mio::net::TcpStream;
use socket2::SockRef;

use super::{TcpTransport, enlist_dirty, enlist_ready};
use crate::descriptors::DescriptorLimit;
use crate::foreign;
use crate::greeter::Greeter;
use crate::limits::ACCEPT_BATCH_CONNECTIONS;
use crate::link::{NO_ROOM, NOT_ACCEPTING, Origin, ReadStep};
use crate::listener::{Accepted, Listener};
use crate::socket;

impl TcpTransport {
    /// Accepts connections that wait at the listener. Returns how many frames and events it has reported.
    pub(super) fn accept_waiting_connections(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        if !self.listener.as_mut().is_some_and(Listener::count_pass_toward_accept) {
            return 0;
        }
        let limit = DescriptorLimit::current();
        let mut reported = self.read_ready_half_open(receiver);
        for _ in 0..ACCEPT_BATCH_CONNECTIONS {
            if self.accepts_only_by_displacing(limit)
                && !self.read_until_oldest_is_silent(&mut reported, receiver)
            {
                self.listener.as_mut().into_iter().for_each(Listener::pause);
                break;
            }
            match self.listener.as_mut().map_or(Accepted::Nothing, Listener::accept) {
                Accepted::Connection(stream, remote) => {
                    let is_in_reserve = limit.is_in_reserve(&stream);
                    reported += self.add_accepted_connection(stream, remote, is_in_reserve, receiver);
                    if is_in_reserve || self.half_open.len() > limit.half_open_max_links() {
                        reported += self.displace_oldest(receiver);
                    }
                }
                Accepted::Nothing => break,
                Accepted::Exhausted if self.read_until_oldest_is_silent(&mut reported, receiver) => {
                    reported += self.displace_oldest(receiver);
                }
                Accepted::Exhausted => {
                    self.listener.as_mut().into_iter().for_each(Listener::pause);
                    break;
                }
            }
        }
        reported
    }

    /// Reads the connections without a hello that have something to read, the oldest first. So the hellos of
    /// an endpoint and of its successor at the same address are read in the order of their connections. In
    /// the other order, the successor's link would contest the claim of its predecessor, and the successor
    /// would deny that claim.
    fn read_ready_half_open(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        if self.half_open.is_empty() {
            return 0;
        }
        let mut ready: Vec<(u64, LinkId)> = Vec::new();
        for &id in &self.ready {
            if let Some(link) = self.links.link_mut(id).filter(|link| link.is_half_open())
                && let Origin::Accepted { serial, .. } = link.origin
            {
                ready.push((serial, id));
            }
        }
        ready.sort_unstable();
        ready.into_iter().map(|(_, id)| self.read_link(id, receiver)).sum()
    }

    /// Whether the endpoint may accept a connection only in place of another on which the peer has not said
    /// hello.
    fn accepts_only_by_displacing(&self, limit: DescriptorLimit) -> bool {
        let is_reserve_next = || self.listener.as_ref().is_some_and(|own| !limit.has_spare(own.socket()));
        self.half_open.len() >= limit.half_open_max_links() || self.reserve_links > 0 && is_reserve_next()
    }

    /// Reads the connections without a hello, the oldest first, until it finds one that a new connection may
    /// displace: its grace is over and its hello has still not arrived. Returns whether there is one.
    fn read_until_oldest_is_silent(&mut self, reported: &mut u32, receiver: &mut impl FrameHandler) -> bool {
        while let Some(oldest) = self.half_open.oldest_displaceable(Instant::now()) {
            *reported += self.read_link_now(oldest, receiver);
            if self.half_open.oldest() == Some(oldest) {
                return true;
            }
        }
        false
    }

    /// Makes a link of an accepted connection, and reads it at once. Usually the peer's hello has already
    /// arrived, so that the link takes no place among the connections without a hello.
    fn add_accepted_connection(
        &mut self,
        stream: TcpStream,
        remote: SocketAddr,
        is_in_reserve: bool,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let serial = self.half_open.take_next_serial();
        let entered = socket::set_connection_options(&SockRef::from(&stream))
            .and_then(|()| self.create_registered_link(stream, Origin::Accepted { remote, serial }));
        let id = match entered {
            Ok(id) => id,
            Err(error) => {
                tracing::debug!(%remote, %error, "dropped: cannot register the connection");
                return 0;
            }
        };
        tracing::debug!(link = id.0, %remote, "accepted");
        if let Some(link) = self.links.link_mut(id) {
            link.is_in_reserve = is_in_reserve;
            self.reserve_links += usize::from(is_in_reserve);
        }
        self.half_open.insert(serial, id, Instant::now());
        self.read_link_now(id, receiver)
    }

    /// Drops the oldest connection without a hello in favour of a new one, if the grace of the oldest is
    /// over. Returns how many frames and events it has reported.
    fn displace_oldest(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        match self.half_open.pop_displaceable(Instant::now()) {
            Some(oldest) => self.drop_if_silent(oldest, "a new connection needs its place", receiver),
            None => 0,
        }
    }

    /// Drops connections whose time for a hello is over. Returns how many frames and events it has reported.
    pub(super) fn drop_expired_half_open(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        if !self.half_open.count_pass_toward_time_check() {
            return 0;
        }
        let now = Instant::now();
        let mut reported = 0;
        while let Some(id) = self.half_open.pop_expired(now) {
            reported += self.drop_if_silent(id, "no hello in time", receiver);
        }
        reported
    }

    /// Drops a connection if the peer has not said hello. Reads it first, since the hello may have arrived
    /// while the application made no passes. Returns how many frames and events it has reported.
    fn drop_if_silent(&mut self, id: LinkId, reason: &str, receiver: &mut impl FrameHandler) -> u32 {
        let reported = self.read_link_now(id, receiver);
        if self.links.link_mut(id).is_some_and(|link| link.is_half_open()) {
            tracing::debug!(link = id.0, reason, "dropped");
            self.drop_link(id);
        }
        reported
    }

    /// Reads a link that need not be in the list of ready ones.
    pub(super) fn read_link_now(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        if let Some(link) = self.links.link_mut(id) {
            link.in_ready = true;
        }
        self.read_link(id, receiver)
    }

    /// As [`read_link`](Self::read_link), for a link that does not carry frames yet, or that is being
    /// closed.
    #[cold]
    pub(super) fn read_before_frames(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        let Some(link) = self.links.link_mut(id).filter(|link| !link.is_held()) else { return 0 };
        let (origin, was_half_open) = (link.origin, link.is_half_open());
        let mut greeter = Greeter {
            id,
            origin,
            is_accepting: self.is_accepting,
            has_room: self.accepted_links < self.accepted_max_links,
            claims: &mut self.address_claims,
            local: &mut self.local_addresses,
            address_claim: None,
            given_token: None,
            questions: Vec::new(),
        };
        let step = link.read(id, &mut self.read_buffer, Some(&mut greeter), receiver);
        let questions = greeter.questions;
        if let Origin::Accepted { serial, .. } = origin
            && was_half_open
            && !link.is_half_open()
        {
            self.half_open.remove(serial);
            self.accepted_links += 1;
            // The acceptor sends its hello only now, since a peer that has received it takes the link to be
            // up on both sides. If this side dropped a half-open link after it had sent its hello, the peer
            // would see a broken link, and would end its other links to this side without reading them.
            link.stage_greeting(&self.hello, &mut self.spare);
            enlist_dirty(&mut self.dirty, id, link);
            // The kernel may have reported the end of the stream before this side has read the hello.
            if let Some(address) = link.address()
                && link.has_kernel_reported_hang_up()
            {
                self.address_claims.record_hang_up(id, address, link.determine_hang_up());
            }
        }
        match step {
            ReadStep::Ready(reported) | ReadStep::Idle(reported) => {
                if let ReadStep::Ready(_) = step {
                    enlist_ready(&mut self.ready, id, link);
                }
                reported
                    + if questions.is_empty() { 0 } else { self.answer_questions(id, &questions, receiver) }
            }
            ReadStep::Ended(error) => {
                match (&error, origin) {
                    (&NO_ROOM, _) if was_half_open => self.log_refusal(id, origin),
                    (&NOT_ACCEPTING, _) if was_half_open && !self.is_accepting => {
                        send_refusal(&link.stream, &self.hello);
                    }
                    (LinkError::Protocol(reason), Origin::Accepted { remote, .. }) if was_half_open => {
                        send_foreign_refusal(&link.stream, link.opening_bytes());
                        self.warn_of_foreign_protocol_once(remote, reason);
                    }
                    _ => {}
                }
                self.end_link(id, error, receiver)
            }
        }
    }

    /// Warns once that a process has connected which does not speak homespun's protocol.
    fn warn_of_foreign_protocol_once(&mut self, remote: SocketAddr, reason: &str) {
        if !mem::replace(&mut self.has_warned_of_foreign_protocol, true) {
            tracing::warn!(%remote, reason, "refused a connection: the process that made it does not speak \
                homespun's protocol; further ones are not reported");
        }
    }

    /// Logs that a peer was refused, because the endpoint has all the accepted links that it may have. Only
    /// the first refusal is a warning, so that hostile peers do not fill the log.
    pub(super) fn log_refusal(&mut self, id: LinkId, origin: Origin) {
        let limit = self.accepted_max_links;
        if mem::replace(&mut self.has_refused, true) {
            tracing::debug!(
                link = id.0,
                ?origin,
                limit,
                "refused: the endpoint has all the links that it accepts"
            );
        } else {
            tracing::warn!(
                link = id.0,
                ?origin,
                limit,
                "refused: the endpoint has all the links that it accepts (FI_HOMESPUN_TCP_ACCEPTED_LINKS)"
            );
        }
    }
}

/// Tells the peer of an accepted connection that this endpoint takes no new links.
fn send_refusal(mut stream: &TcpStream, own_hello: &[u8; HELLO_BYTES]) {
    let refused = ClaimRecord { status: ClaimStatus::Refused, token: 0 }.to_bytes();
    if let Err(error) = stream.write_all(&[own_hello.as_slice(), &refused].concat()) {
        tracing::debug!(%error, "the peer does not learn that it was refused");
    }
}

/// Refuses the connection of a stranger in the stranger's own protocol, if that can be seen from the
/// beginning of its stream, `received`.
fn send_foreign_refusal(mut stream: &TcpStream, received: &[u8]) {
    if let Some(refusal) = foreign::refusal_for(received)
        && let Err(error) = stream.write(refusal)
    {
        tracing::debug!(%error, "the stranger does not learn that it was refused");
    }
}
