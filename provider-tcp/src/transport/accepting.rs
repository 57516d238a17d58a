//! How the transport accepts connections, and limits connections that say nothing.
//!
//! A stranger that connects and says nothing takes a descriptor only for the time in which its hello must
//! arrive. The number of connections without a hello is limited. Once an accepted connection has one of the
//! last descriptors of the process, the endpoint gives another of these only in exchange for a connection
//! without a hello, or for a link whose claim is unproven. See docs/decisions/tcp-strangers.md.

use std::io::{Read, Write};
use std::mem;
use std::net::SocketAddr;
use std::time::Instant;

use homespun_engine::source_host::SourceHost;
use homespun_engine::transport::{FrameHandler, LinkError, LinkId};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus, LACKS_DESCRIPTORS};
use mio::net::TcpStream;

use super::{TcpTransport, enlist_dirty, enlist_ready};
use crate::accepted_links::{DisplaceableLink, Room};
use crate::descriptors::DescriptorLimit;
use crate::foreign;
use crate::greeter::Greeter;
use crate::limits::{ACCEPT_BATCH_CONNECTIONS, CHECKS_MIN_ENDS, READS_MIN_ENDS};
use crate::link::{LACKED_DESCRIPTORS, NO_ROOM, NOT_ACCEPTING, Origin, ReadStep};
use crate::listener::{Accepted, Listener};
use crate::{socket, sys};

/// The error of a link that has given its place to another one, because the claimed address had not
/// confirmed the link.
pub(super) const DISPLACED: LinkError = NO_ROOM;

/// The place of a connection that is to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    /// Too many connections lack a hello. If the new one lacks it, too, the oldest of them is dropped.
    AmongHalfOpen,
    /// No descriptors are left but those that are reserved. Another connection is dropped: the oldest
    /// without a hello, or else this link.
    InReserve(Option<DisplaceableLink>),
    None,
}

impl TcpTransport {
    /// Accepts connections that wait at the listener. Returns how many frames and events it has reported.
    pub(super) fn accept_waiting_connections(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        let mut reported = if self.half_open.is_empty() { 0 } else { self.read_ready_half_open(receiver) };
        if !self.listener.as_mut().is_some_and(Listener::count_pass_toward_accept) {
            return reported;
        }
        let limit = DescriptorLimit::current();
        self.accepted.limit_by_descriptors(limit.accepted_max_links());
        let mut has_displaced_when_exhausted = false;
        for _ in 0..ACCEPT_BATCH_CONNECTIONS {
            // The end of a link can cost the engine milliseconds. The other connections wait for a later
            // pass.
            if !self.may_end_links() {
                break;
            }
            let place = self.find_place(limit, &mut reported, receiver);
            if place == Place::None {
                if self.may_end_links() && !self.refuse_if_shortage_lasts() {
                    self.listener.as_mut().into_iter().for_each(Listener::pause);
                    break;
                }
                continue;
            }
            match self.listener.as_mut().map_or(Accepted::Nothing, Listener::accept) {
                Accepted::Connection(stream, remote) => {
                    self.accept_shortage.end();
                    reported += self.add_connection_in_place(stream, remote, place, limit, receiver);
                }
                Accepted::Nothing => {
                    self.accept_shortage.end();
                    break;
                }
                Accepted::Exhausted { is_process_limit } => {
                    if self.read_until_oldest_is_silent(&mut reported, receiver) {
                        self.displace_oldest_silent(&mut reported, receiver);
                    } else if is_process_limit
                        && let Some(found) = self.oldest_displaceable_link()
                        && !mem::replace(&mut has_displaced_when_exhausted, true)
                    {
                        reported += self.displace(found.id, receiver);
                    } else if !self.refuse_if_shortage_lasts() {
                        self.listener.as_mut().into_iter().for_each(Listener::pause);
                        break;
                    }
                }
            }
        }
        self.ends_left = self.ends_left.max(CHECKS_MIN_ENDS + READS_MIN_ENDS);
        reported
    }

    /// Notes that connections wait for descriptors. If they have waited too long, tells one of them so.
    /// Returns whether others may follow.
    fn refuse_if_shortage_lasts(&mut self) -> bool {
        let Some(listener) = self.listener.as_mut().filter(|listener| listener.has_connection()) else {
            self.accept_shortage.end();
            return false;
        };
        if !self.accept_shortage.note_wait() {
            return false;
        }
        self.spare_descriptor.lend(|| {
            let Accepted::Connection(mut stream, remote) = listener.accept() else { return false };
            tracing::debug!(%remote, "refused: too few descriptors");
            // If the hello were left unread, the kernel would reset the connection.
            if let Err(error) = stream.read(&mut self.read_buffer) {
                tracing::trace!(%error, "the connection brings nothing");
            }
            let refused = ClaimRecord { status: ClaimStatus::Refused, token: LACKS_DESCRIPTORS };
            send_last_words(&stream, &[self.hello.as_slice(), &refused.to_bytes()].concat());
            true
        })
    }

    /// Ends a link in favour of another one, for want of descriptors. Returns how many events it has
    /// reported.
    pub(super) fn displace(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        if !mem::replace(&mut self.has_warned_of_displaced, true) {
            tracing::warn!(
                link = id.0,
                "too few descriptors (RLIMIT_NOFILE): a link of a peer has ended for another one; further \
                 ones are not reported"
            );
        }
        self.refuse_if_held(id);
        self.end_link(id, DISPLACED, receiver)
    }

    /// Tells the peer of a held link that there are too few descriptors.
    pub(super) fn refuse_if_held(&mut self, id: LinkId) {
        if let Some(link) = self.links.link_mut(id).filter(|link| link.is_held()) {
            let refused = ClaimRecord { status: ClaimStatus::Refused, token: LACKS_DESCRIPTORS };
            link.outbound.stage_bytes(&refused.to_bytes(), &mut self.spare);
            self.flush_link(id);
        }
    }

    /// Finds a place for another connection.
    fn find_place(
        &mut self,
        limit: DescriptorLimit,
        reported: &mut u32,
        receiver: &mut impl FrameHandler,
    ) -> Place {
        let are_half_open_full = self.half_open.len() >= limit.half_open_max_links();
        let is_reserve_used = self.reserve_links > 0 && !limit.has_spare(self.reserve_links);
        if !are_half_open_full && !is_reserve_used {
            return Place::Free;
        }
        if self.read_until_oldest_is_silent(reported, receiver) {
            return if is_reserve_used { Place::InReserve(None) } else { Place::AmongHalfOpen };
        }
        let found = self.oldest_displaceable_link().filter(|_| !are_half_open_full);
        found.map_or(Place::None, |found| Place::InReserve(Some(found)))
    }

    /// The link that a new one may displace. While this side accepts no links, a new connection can only
    /// bring questions, and displaces no link.
    fn oldest_displaceable_link(&self) -> Option<DisplaceableLink> {
        self.accepted.oldest_displaceable(Instant::now()).filter(|_| self.is_accepting)
    }

    /// Adds an accepted connection. If it takes a place that is not free, and no other connection has ended
    /// meanwhile, drops a connection without a hello or ends a link whose claim is unproven. Returns how
    /// many frames and events it has reported.
    fn add_connection_in_place(
        &mut self,
        stream: TcpStream,
        remote: SocketAddr,
        place: Place,
        limit: DescriptorLimit,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let count_before = self.accepted_connection_count();
        let is_in_reserve = limit.is_in_reserve(&stream);
        let mut reported = self.add_accepted_connection(stream, remote, is_in_reserve, receiver);
        let needs_descriptor = (is_in_reserve || matches!(place, Place::InReserve(_)))
            && self.accepted_connection_count() > count_before;
        let are_half_open_too_many = self.half_open.len() > limit.half_open_max_links();
        let has_displaced = (needs_descriptor || are_half_open_too_many)
            && self.displace_oldest_silent(&mut reported, receiver);
        if needs_descriptor && !has_displaced {
            // The host of the new link may now be the one with the most unproven links, all of them young.
            let found = self.oldest_displaceable_link().or(match place {
                Place::InReserve(found) => found.filter(|found| self.accepted.is_unproven(*found)),
                _ => None,
            });
            reported += found.map_or(0, |found| self.displace(found.id, receiver));
        }
        reported
    }

    /// Reads the connections without a hello that have something to read, the oldest first. A hello may
    /// displace a link, so this ends when the pass may end no further link.
    ///
    /// The hellos of an endpoint and of its successor at the same address are thus read in the order of their
    /// connections. In the other order, the successor's link would contest the claim of its predecessor, and
    /// the successor would deny that claim.
    #[cold]
    fn read_ready_half_open(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        let mut ready: Vec<(u64, LinkId)> = Vec::new();
        for &id in &self.ready {
            if let Some(link) = self.links.link_mut(id).filter(|link| link.is_half_open())
                && let Origin::Accepted { serial, .. } = link.origin
            {
                ready.push((serial, id));
            }
        }
        ready.sort_unstable();
        let mut reported = 0;
        for (_, id) in ready {
            // The others stay ready for a later pass.
            if !self.may_end_links() {
                break;
            }
            reported += self.read_link(id, receiver);
        }
        reported
    }

    /// Whether this pass may end further links in place of new ones. It keeps some ends for checks and
    /// reads, so that a flood of new links does not stop these.
    fn may_end_links(&self) -> bool {
        self.ends_left > CHECKS_MIN_ENDS + READS_MIN_ENDS
    }

    /// How many accepted connections there are, with or without a hello.
    fn accepted_connection_count(&self) -> usize {
        self.half_open.len() + self.accepted.len()
    }

    /// Reads the connections without a hello, the oldest first, until a connection stays silent although its
    /// grace is over. A new connection may displace this one. Returns whether there is one.
    fn read_until_oldest_is_silent(&mut self, reported: &mut u32, receiver: &mut impl FrameHandler) -> bool {
        while self.may_end_links()
            && let Some(oldest) = self.half_open.oldest_displaceable(Instant::now())
        {
            *reported += self.read_link_now(oldest, receiver);
            if self.half_open.oldest() == Some(oldest) {
                return true;
            }
        }
        false
    }

    /// Makes a link of an accepted connection, and reads it at once. Usually the hello has already arrived.
    fn add_accepted_connection(
        &mut self,
        stream: TcpStream,
        remote: SocketAddr,
        is_in_reserve: bool,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let serial = self.half_open.take_next_serial();
        let entered = socket::set_accepted_options(&stream, remote)
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
    /// over. Reads it first. Returns whether a connection has ended.
    fn displace_oldest_silent(&mut self, reported: &mut u32, receiver: &mut impl FrameHandler) -> bool {
        let count_before = self.accepted_connection_count();
        let Some(oldest) = self.half_open.pop_displaceable(Instant::now()) else { return false };
        *reported += self.drop_if_silent(oldest, "a new connection needs its place", receiver);
        self.accepted_connection_count() < count_before
    }

    /// Drops connections whose time limit for a hello has passed. Returns how many frames and events it has
    /// reported.
    pub(super) fn drop_expired_half_open(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        if !self.half_open.count_pass_toward_time_check() {
            return 0;
        }
        let now = Instant::now();
        let mut reported = 0;
        // A hello that has arrived meanwhile may end another link.
        while self.may_end_links()
            && let Some(id) = self.half_open.pop_expired(now)
        {
            reported += self.drop_if_silent(id, "no hello in time", receiver);
        }
        self.ends_left = self.ends_left.max(CHECKS_MIN_ENDS + READS_MIN_ENDS);
        reported
    }

    /// Drops a connection if the peer has not said hello. Reads it first, since the hello may have arrived
    /// between two passes. Returns how many frames and events it has reported.
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

    /// Like [`read_link`](Self::read_link), for a link that does not carry frames yet, or that is being
    /// closed.
    #[cold]
    pub(super) fn read_before_frames(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        let Some(link) = self.links.link_mut(id).filter(|link| !link.is_held()) else { return 0 };
        let (origin, was_half_open) = (link.origin, link.is_half_open());
        let room = match origin {
            Origin::Accepted { remote, .. } if was_half_open => {
                self.accepted.room_for(SourceHost::of(remote.into()), Instant::now())
            }
            _ => Room::Free,
        };
        let now = Instant::now();
        let arrived_at = match was_half_open {
            true => now - sys::time_since_last_arrival(&*link.stream).unwrap_or_default(),
            false => now,
        };
        let mut greeter = Greeter {
            id,
            origin,
            arrived_at,
            is_accepting: self.is_accepting,
            has_room: room != Room::Full,
            claims: &mut self.address_claims,
            local: &mut self.local_addresses,
            address_claim: None,
            given_token: None,
            questions: Vec::new(),
        };
        let step = link.read(id, &mut self.read_buffer, Some(&mut greeter), receiver);
        let questions = greeter.questions;
        let mut displaced = None;
        if let Origin::Accepted { remote, serial } = origin
            && was_half_open
            && !link.is_half_open()
        {
            self.half_open.remove(serial);
            self.accepted.insert(id, SourceHost::of(remote.into()), Instant::now());
            if let Room::InPlaceOf(other) = room {
                displaced = Some(other);
            }
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
        let reported = match step {
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
                    (&LACKED_DESCRIPTORS, _) => self.warn_of_refusal_once(id, origin),
                    (&NOT_ACCEPTING, _) if was_half_open && !self.is_accepting => {
                        let refused = ClaimRecord { status: ClaimStatus::Refused, token: 0 }.to_bytes();
                        send_last_words(&link.stream, &[self.hello.as_slice(), &refused].concat());
                    }
                    (LinkError::Protocol(reason), Origin::Accepted { remote, .. }) if was_half_open => {
                        send_foreign_refusal(&link.stream, link.opening_bytes());
                        self.warn_of_foreign_protocol_once(remote, reason);
                    }
                    (LinkError::OtherVersion { .. }, Origin::Accepted { remote, .. }) if was_half_open => {
                        // The hello says which version this side speaks.
                        send_last_words(&link.stream, &self.hello);
                        self.warn_of_other_version_once(remote, &error);
                    }
                    _ => {}
                }
                self.end_link(id, error, receiver)
            }
        };
        reported + displaced.map_or(0, |displaced| self.end_link(displaced, DISPLACED, receiver))
    }

    /// Warns once that a peer has too few descriptors. Sends that have ended already may be lost.
    fn warn_of_refusal_once(&mut self, id: LinkId, origin: Origin) {
        if !mem::replace(&mut self.has_warned_of_refusal, true) {
            tracing::warn!(link = id.0, ?origin, reason = %LACKED_DESCRIPTORS, "a peer has refused a link: \
                messages sent on it are lost; further refusals are not reported");
        }
    }

    /// Warns once that a process has connected that does not speak homespun's protocol.
    fn warn_of_foreign_protocol_once(&mut self, remote: SocketAddr, reason: &str) {
        if !mem::replace(&mut self.has_warned_of_foreign_protocol, true) {
            tracing::warn!(%remote, reason, "refused a connection: the process that made it does not speak \
                homespun's protocol; further ones are not reported");
        }
    }

    /// Warns once that a peer was refused that speaks another version of the protocol.
    fn warn_of_other_version_once(&mut self, remote: SocketAddr, error: &LinkError) {
        if !mem::replace(&mut self.has_warned_of_other_version, true) {
            tracing::warn!(%remote, %error, "refused a connection; further ones are not reported");
        }
    }

    /// Logs that a peer was refused, because the endpoint has all the accepted links that it may have, or
    /// its host has its share of them. Only the first refusal is a warning, so that hostile peers do not
    /// fill the log.
    pub(super) fn log_refusal(&mut self, id: LinkId, origin: Origin) {
        let limit = self.accepted.max_links();
        if mem::replace(&mut self.has_refused, true) {
            tracing::debug!(link = id.0, ?origin, limit, "refused: no room for an accepted link");
        } else {
            tracing::warn!(
                link = id.0,
                ?origin,
                limit,
                "refused: the endpoint has all the links that it accepts, or all of this host \
                 (FI_HOMESPUN_TCP_ACCEPTED_LINKS, RLIMIT_NOFILE)"
            );
        }
    }
}

/// Tells the peer of an accepted connection why this side ends it. The kernel has room for these few bytes:
/// they are the first on the connection.
fn send_last_words(mut stream: &TcpStream, bytes: &[u8]) {
    if let Err(error) = stream.write_all(bytes) {
        tracing::debug!(%error, "the peer does not learn that it was refused");
    }
}

/// If the beginning of a stranger's stream, `received`, shows its protocol, refuses the connection in that
/// protocol.
fn send_foreign_refusal(mut stream: &TcpStream, received: &[u8]) {
    if let Some(refusal) = foreign::refusal_for(received)
        && let Err(error) = stream.write(refusal)
    {
        tracing::debug!(%error, "the stranger does not learn that it was refused");
    }
}
