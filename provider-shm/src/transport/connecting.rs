//! How links come up and end: connecting, accepting, greetings and hang-ups.

use std::io;
use std::mem;
use std::os::fd::AsFd;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{AddressProof, Denial, FrameHandler, LinkError, LinkEvent, LinkId};
use homespun_engine::wire::hello::Hello;

use super::policy::{forbidding_error, is_refused_by_policy};
use super::shortage::Admission;
use super::{FORKED_CHILD, ShmTransport, start_polling_ring};
use crate::control::{ConnectError, Control, NO_ENDPOINT, Received, ReceivedGreeting, to_errno};
use crate::descriptors;
use crate::greeting::Greeting;
use crate::limits::{
    ACCEPT_BATCH_CONNECTIONS, ACCEPTED_LINK_DESCRIPTORS, HALF_OPEN_MAX_LINKS, LARGE_RINGS_MAX,
};
use crate::link::{Incoming, Link, Origin, Outgoing, Slot};
use crate::listener::Listener;
use crate::name::NameKind;
use crate::poller::{EventSource, Poller};
use crate::segment::DataArea;

impl ShmTransport {
    /// Tries to connect. If the peer's backlog is full or too many descriptors are in flight, the link waits
    /// until a later poll of the kernel tries again. If a transport beside TCP finds no endpoint, the link
    /// becomes [`Slot::Absent`]. The next pass reports any other failure.
    pub(super) fn try_connect(&mut self, id: LinkId) {
        let Some(&Slot::Waiting(to)) = self.links.get(id) else {
            self.control_ready.push(id);
            return;
        };
        let is_beside_tcp = self.names != NameKind::Alone;
        if is_beside_tcp && self.refusal.forbids_all_links() {
            return self.mark_absent(id, to);
        }
        if self.refusal.forbids_all_links()
            && let Some(error) = forbidding_error()
        {
            self.control_ready.push(id);
            if let Some(place) = self.links.get_mut(id) {
                *place = Slot::Failed(LinkError::System(to_errno(&error)));
            }
            return;
        }
        let connected = Control::connect(&self.names, to).and_then(|control| {
            if control.is_peer_this_process() && !descriptors::has_spare(OWN_LINK_DESCRIPTORS) {
                self.shortage.warn_once();
                return Err(ConnectError::System(rustix::io::Errno::MFILE.into()));
            }
            let mut link = Box::new(Link::new(control, Origin::Connected(to)));
            send_greeting_with_new_ring(&mut link, id, self.hello, &self.poller, &mut self.large_rings)
                .map_err(|error| match to_errno(&error) {
                    // The kernel limits how many descriptors of a user are in flight. Try again later.
                    IN_FLIGHT => ConnectError::Busy,
                    // Some kernels return ECONNREFUSED if the endpoint has closed its socket after the
                    // connect.
                    Errno::ECONNREFUSED => ConnectError::NoEndpoint(NO_ENDPOINT),
                    errno => match forbidding_error() {
                        Some(error) => ConnectError::NoMemoryFile(error),
                        None => ConnectError::Failed(LinkError::System(errno)),
                    },
                })?;
            Ok(link)
        });
        let connected = connected.map_err(|error| match error {
            ConnectError::NoEndpoint(NO_ENDPOINT) => {
                let other = Control::find_other_version(&self.names, to, self.hello);
                let other = other.map(|theirs| ConnectError::Failed(LinkError::OtherVersion { theirs }));
                other.unwrap_or(ConnectError::NoEndpoint(NO_ENDPOINT))
            }
            error => error,
        });
        let slot = match connected {
            Ok(link) => Slot::Made(link),
            Err(ConnectError::Busy) => {
                self.waiting.push(id);
                return;
            }
            Err(ConnectError::NoEndpoint(error)) if is_beside_tcp => {
                tracing::debug!(link = id.0, %to, %error, "no endpoint to share memory with");
                return self.mark_absent(id, to);
            }
            Err(ConnectError::System(error)) if is_beside_tcp && is_refused_by_policy(&error) => {
                tracing::debug!(link = id.0, %to, %error, "a security policy forbids the connect");
                self.note_refused_connect(&error);
                return self.mark_absent(id, to);
            }
            Err(ConnectError::NoMemoryFile(error)) => {
                self.note_forbidden_memory_files(&error);
                if is_beside_tcp {
                    return self.mark_absent(id, to);
                }
                self.control_ready.push(id);
                Slot::Failed(LinkError::System(to_errno(&error)))
            }
            Err(ConnectError::System(error)) => {
                self.control_ready.push(id);
                Slot::Failed(LinkError::System(to_errno(&error)))
            }
            Err(ConnectError::NoEndpoint(error) | ConnectError::Failed(error)) => {
                self.control_ready.push(id);
                Slot::Failed(error)
            }
        };
        if let Some(place) = self.links.get_mut(id) {
            *place = slot;
        }
    }

    /// Passes a link to the owner of the transport: the connect has found no endpoint to share memory with.
    fn mark_absent(&mut self, id: LinkId, to: Address) {
        self.absent.push((id, to));
        if let Some(place) = self.links.get_mut(id) {
            *place = Slot::Absent;
        }
    }

    /// Accepts connections that wait at the listener.
    pub(super) fn accept_waiting(&mut self) {
        for _ in 0..ACCEPT_BATCH_CONNECTIONS {
            let admission = self.admit_connection();
            if admission == Admission::Wait {
                return;
            }
            if admission == Admission::Refuse {
                if !self.refuse_next_connection() {
                    return;
                }
                continue;
            }
            let Some(socket) = self.listener.as_mut().and_then(Listener::try_accept) else { return };
            if self.half_open.len() >= HALF_OPEN_MAX_LINKS
                && let Some((_, oldest)) = self.half_open.pop_first()
            {
                tracing::debug!(link = oldest.0, "dropped: too many connections without a greeting");
                self.drop_link(oldest);
            }
            let Ok(control) = Control::from_accepted(socket) else { continue };
            let serial = self.accepted_count;
            self.accepted_count += 1;
            let id = self.links.insert(Slot::Made(Box::new(Link::new(control, Origin::Accepted(serial)))));
            let Some(Slot::Made(link)) = self.links.get(id) else { continue };
            match self.poller.add(&link.control, EventSource::Control(id)) {
                Ok(()) => {
                    tracing::debug!(link = id.0, "accepted");
                    self.half_open.insert(serial, id);
                    // Usually the peer's greeting has already arrived.
                    self.control_ready.push(id);
                }
                Err(error) => {
                    tracing::debug!(%error, "dropped: cannot watch the connection");
                    self.links.remove(id);
                }
            }
        }
    }

    /// Tells the next peer at the listener that there are too few descriptors. Returns whether there was one.
    fn refuse_next_connection(&mut self) -> bool {
        let Some(listener) = &mut self.listener else { return false };
        self.spare_descriptor.lend(|| {
            let Some(socket) = listener.try_accept() else { return false };
            if let Ok(control) = Control::from_accepted(socket) {
                tracing::debug!(peer = control.peer_credentials().pid, "refused: too few descriptors");
                control.refuse(Denial::NoDescriptors);
            }
            true
        })
    }

    /// Reads the control sockets that are ready, and reports links that have failed.
    pub(super) fn read_control_sockets_and_report_failures(
        &mut self,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let mut reported = 0;
        let mut control_ready = mem::take(&mut self.control_ready);
        for id in control_ready.drain(..) {
            let admission = self.admit_greeting(id);
            reported += match self.links.get(id) {
                _ if admission == Admission::Wait => 0,
                Some(Slot::Made(link)) if admission == Admission::Refuse => {
                    link.control.refuse(Denial::NoDescriptors);
                    self.end_and_report_link(id, LinkError::System(Errno::EMFILE), receiver)
                }
                Some(Slot::Made(_)) if self.generation.is_in_forked_child() => {
                    self.end_and_report_link(id, FORKED_CHILD, receiver)
                }
                Some(Slot::Made(link)) => match link.control.try_receive_greeting() {
                    Ok(Received::Nothing) if link.has_hung_up => self.handle_hang_up(id, receiver),
                    Ok(Received::Nothing) => 0,
                    Ok(Received::Greeting(received)) => {
                        // A hang-up or another message may follow. The next pass reads it.
                        self.control_ready.push(id);
                        self.complete_handshake(id, *received, receiver)
                    }
                    Ok(Received::HungUp) => self.handle_hang_up(id, receiver),
                    Err(error) => {
                        if matches!(error, LinkError::OtherVersion { .. }) && !link.origin.is_connector() {
                            link.control.send_own_version(self.hello);
                            tracing::warn!(%error, "refused a link of another process of this host");
                        }
                        if let LinkError::Denied(reason) = error {
                            self.shortage.warn_of_refusal_once(id, link.origin, reason);
                        }
                        self.end_and_report_link(id, error, receiver)
                    }
                },
                Some(Slot::Failed(error)) => {
                    let error = error.clone();
                    self.end_and_report_link(id, error, receiver)
                }
                Some(Slot::Waiting(_)) if self.generation.is_in_forked_child() => {
                    self.end_and_report_link(id, FORKED_CHILD, receiver)
                }
                Some(Slot::Waiting(_) | Slot::Absent) | None => 0,
            };
        }
        reported
    }

    /// Handles the peer's greeting: reports the link as up, or ends the link if the greeting is
    /// unacceptable.
    fn complete_handshake(
        &mut self,
        id: LinkId,
        received: ReceivedGreeting,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let Hello { address, instance } = received.greeting.hello;
        if address.format() != self.address.format() {
            let why = LinkError::Protocol("an endpoint with another address format");
            return self.end_and_report_link(id, why, receiver);
        }
        if let Some(Slot::Made(link)) = self.links.get(id)
            && !link.origin.is_connector()
            && link.control.claims_foreign_address(&self.names, address)
        {
            let (peer, reason) = (link.control.peer_credentials().pid, Denial::ForeignAddress);
            tracing::warn!(peer, %address, "refused a link: its peer claims the address of another process");
            link.control.refuse(reason);
            return self.end_and_report_link(id, LinkError::Denied(reason), receiver);
        }
        match self.map_peer_ring_and_answer(id, received) {
            Ok(Origin::Connected(to)) => receiver.link_event(id, LinkEvent::up(to, instance)),
            Ok(Origin::Accepted(serial)) => {
                self.half_open.remove(&serial);
                // The greeting that was just sent has shown whether the peer is still there.
                let has_ended = self.link_mut(id).is_some_and(|link| link.has_hung_up);
                let proof = AddressProof::Credentials;
                receiver.link_event(id, LinkEvent::Up { peer: address, instance, proof, has_ended });
            }
            Err(error) => return self.end_and_report_link(id, error, receiver),
        }
        tracing::debug!(link = id.0, peer = %address, "up");
        1
    }

    /// Maps the peer's ring, and watches the ring's doorbell and the peer's process. An acceptor also sends
    /// its own greeting.
    fn map_peer_ring_and_answer(
        &mut self,
        id: LinkId,
        received: ReceivedGreeting,
    ) -> Result<Origin, LinkError> {
        const GONE: LinkError = LinkError::System(Errno::ECONNRESET);
        let Some(Slot::Made(link)) = self.links.get_mut(id) else { return Err(GONE) };
        if link.incoming.is_some() {
            return Err(LinkError::Protocol("a second greeting"));
        }
        let incoming = link.incoming.insert(Incoming::map_peer_ring(received, &link.control, &self.clock)?);
        let system = |error: io::Error| LinkError::System(to_errno(&error));
        self.poller.add(&incoming.doorbell, EventSource::Doorbell(id)).map_err(system)?;
        if let Some(pidfd) = &incoming.pidfd {
            self.poller.add(pidfd, EventSource::Process(id)).map_err(system)?;
        }
        start_polling_ring(&mut self.hot, id, link);
        let origin = link.origin;
        if origin.is_connector() {
            return Ok(origin);
        }
        let sent = send_greeting_with_new_ring(link, id, self.hello, &self.poller, &mut self.large_rings);
        match sent {
            Ok(()) => Ok(origin),
            Err(error) => {
                let errno = to_errno(&error);
                if let Some(error) = forbidding_error() {
                    link.control.refuse(Denial::NoMemoryFiles);
                    self.note_forbidden_memory_files(&error);
                } else if [Errno::EMFILE, Errno::new(libc::ENFILE), IN_FLIGHT].contains(&errno) {
                    link.control.refuse(Denial::NoDescriptors);
                }
                Err(LinkError::System(errno))
            }
        }
    }

    /// Handles the peer's hang-up. This side still reads the frames in the peer's ring before the link ends.
    fn handle_hang_up(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        match self.links.get(id) {
            Some(Slot::Made(link)) if link.incoming.is_some() => {
                self.mark_hung_up(id);
                0
            }
            _ => self.end_and_report_link(id, LinkError::System(Errno::ECONNRESET), receiver),
        }
    }

    /// Records that the peer sends nothing more. The link ends once this side has read all of the peer's
    /// ring.
    pub(super) fn mark_hung_up(&mut self, id: LinkId) {
        self.glances.end();
        if let Some(Slot::Made(link)) = self.links.get_mut(id) {
            link.has_hung_up = true;
            if link.incoming.is_some() {
                start_polling_ring(&mut self.hot, id, link);
            } else {
                self.control_ready.push(id);
            }
        }
    }
}

/// Creates this side's ring, and sends it to the peer with the greeting. A connector also starts to watch
/// the control socket. Counts the ring if it has a large data area.
fn send_greeting_with_new_ring(
    link: &mut Link,
    id: LinkId,
    hello: Hello,
    poller: &Poller,
    large_rings: &mut usize,
) -> io::Result<()> {
    let is_connected = link.origin.is_connector();
    let area = if *large_rings < LARGE_RINGS_MAX { DataArea::LARGE } else { DataArea::SMALL };
    let (outgoing, ring) = Outgoing::create_ring(area)?;
    if is_connected {
        poller.add(&link.control, EventSource::Control(id))?;
    }
    let greeting = Greeting { hello, cookie: outgoing.cookie.location() };
    match link.control.send_greeting(&greeting, ring.as_fd(), outgoing.doorbell().as_fd()) {
        // The connector has already ended, but may have left frames to read.
        Err(error) if is_disconnect(&error) && !is_connected => link.has_hung_up = true,
        result => result?,
    }
    *large_rings += usize::from(outgoing.is_ring_large());
    link.outgoing = Some(outgoing);
    Ok(())
}

/// How many further descriptors a link within this process needs at a time, once the socket is connected:
/// those of both sides.
const OWN_LINK_DESCRIPTORS: usize = ACCEPTED_LINK_DESCRIPTORS + 2;

/// The error of `sendmsg(2)` if this user has too many descriptors in flight.
const IN_FLIGHT: Errno = Errno::new(libc::ETOOMANYREFS);

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
