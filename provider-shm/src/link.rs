//! One link: a control socket, and a ring in each direction.

use std::os::fd::{AsFd, OwnedFd};
use std::{io, mem};

use homespun_engine::address::Address;
use homespun_engine::fork::CloseOnFork;
use homespun_engine::transport::LinkError;
use rustix::event::{EventfdFlags, eventfd};

use crate::clock::Clock;
use crate::control::{Control, ReceivedGreeting};
use crate::cookie::Cookie;
use crate::limits::{ACCEPTED_LINK_DESCRIPTORS, ANSWER_DESCRIPTORS};
use crate::memory::PeerMemory;
use crate::peer_regions::PeerRegions;
use crate::ring::{Consumer, Producer};
use crate::segment::{DataArea, MapError, Segment};
use crate::ways::Ways;
use crate::write_back::can_write_back;

/// The state of a link, stored under its number.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A connection.
    Made(Box<Link>),
    /// A connect that is still to be tried, for the first time or again. Another try is needed if the peer's
    /// backlog was full or too many descriptors were in flight.
    Waiting(Address),
    /// A connect that failed. The next pass reports it.
    Failed(LinkError),
    /// A connect that found no endpoint of this user, at a transport beside TCP. The owner of the transport
    /// gets the link by [`take_absent_link`](crate::ShmTransport::take_absent_link).
    Absent,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) control: Control,
    pub(crate) origin: Origin,
    /// This side's ring. An acceptor creates it once it has the peer's greeting.
    pub(crate) outgoing: Option<Outgoing>,
    /// The peer's ring. `None` until the peer's greeting has arrived.
    pub(crate) incoming: Option<Incoming>,
    /// Whether the peer has hung up, or its process has ended. Then only frames that are already in the ring
    /// still arrive.
    pub(crate) has_hung_up: bool,
    /// The protocol violation of the peer for which the link ends, if there is one.
    pub(crate) fault: Option<&'static str>,
}

/// Which side made the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This side, to this address.
    Connected(Address),
    /// The peer. The number says how many connections the endpoint had accepted before.
    Accepted(u64),
}

/// The sending half of a link: this side's ring, its cookie, and the doorbell that wakes the peer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) ring: Producer,
    doorbell: CloseOnFork<OwnedFd>,
    pub(crate) cookie: Cookie,
    /// Whether the link is in the transport's list `dirty`: the peer may need a wakeup.
    pub(crate) in_dirty: bool,
    /// Whether this side has sent since the last frame arrived.
    pub(crate) has_sent: bool,
    /// Whether the link is in the transport's list `full`: the ring had no room for a frame.
    pub(crate) in_full: bool,
}

/// The receiving half of a link: the peer's ring, process and memory, and the doorbell that wakes this side.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) ring: Consumer,
    /// The doorbell that the peer rings to wake this side.
    pub(crate) doorbell: CloseOnFork<OwnedFd>,
    pub(crate) pidfd: Option<CloseOnFork<OwnedFd>>,
    pub(crate) peer_memory: PeerMemory,
    /// The peer's regions of shareable memory that this side has mapped to pull payload.
    pub(crate) peer_regions: PeerRegions,
    /// How many polls in a row found the ring empty.
    pub(crate) empty_polls: u32,
    /// Whether every poll reads the ring.
    pub(crate) is_hot: bool,
}

impl Outgoing {
    /// Creates a ring with this data area. Also returns the descriptor of the ring's memory for the peer.
    /// This side need not keep the descriptor.
    pub(crate) fn create_ring(data: DataArea) -> io::Result<(Outgoing, OwnedFd)> {
        let (segment, descriptor) = Segment::create(data)?;
        // The counter is never 0, so the doorbell wakes the peer at each write, also of 0.
        let doorbell = CloseOnFork::new(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ring = Producer::new(segment);
        let cookie = Cookie::generate()?;
        Ok((
            Outgoing { ring, doorbell, cookie, in_dirty: false, has_sent: false, in_full: false },
            descriptor,
        ))
    }

    /// Whether the ring has a [large](DataArea::LARGE) data area.
    pub(crate) fn is_ring_large(&self) -> bool {
        self.ring.data_area() == DataArea::LARGE
    }

    pub(crate) fn doorbell(&self) -> &CloseOnFork<OwnedFd> {
        &self.doorbell
    }

    /// Wakes the peer.
    pub(crate) fn ring_doorbell(&self) {
        // The peer may have made the eventfd blocking, and its counter full: then a write of 1 would wait for
        // ever. A write of 0 always has room, and wakes all who wait for an event.
        if let Err(error) = rustix::io::write(&self.doorbell, &[0; 8]) {
            tracing::debug!(%error, "cannot ring the doorbell");
        }
    }
}

impl Incoming {
    /// Maps the ring that came with the peer's greeting. The clock times large payload.
    pub(crate) fn map_peer_ring(
        received: ReceivedGreeting,
        control: &Control,
        clock: &Clock,
    ) -> Result<Incoming, LinkError> {
        let ReceivedGreeting { greeting, ring, doorbell } = received;
        let segment = Segment::map(&ring).map_err(|error| match error {
            MapError::System(error) => LinkError::System(crate::control::to_errno(&error)),
            MapError::NotARing => LinkError::Protocol("the descriptor handed over is no ring"),
        })?;
        let peer_memory = PeerMemory { pid: control.peer_credentials().pid, cookie: greeting.cookie };
        let peer = greeting.hello.address;
        let ways = Ways::new(peer, clock.clone(), can_write_back(), peer_memory.pid != 0);
        Ok(Incoming {
            ring: Consumer::new(segment, ways),
            doorbell: CloseOnFork::new(doorbell),
            // A link within this process needs no pidfd: both ends of the link end with the process.
            pidfd: if control.is_peer_this_process() { None } else { control.open_peer_pidfd() },
            peer_memory,
            peer_regions: PeerRegions::default(),
            empty_polls: 0,
            is_hot: false,
        })
    }
}

impl Origin {
    pub(crate) fn is_connector(self) -> bool {
        matches!(self, Origin::Connected(_))
    }

    /// How many descriptors this side needs when the peer's greeting arrives.
    pub(crate) fn greeting_descriptors(self) -> usize {
        match self {
            Origin::Connected(_) => ANSWER_DESCRIPTORS,
            Origin::Accepted(_) => ACCEPTED_LINK_DESCRIPTORS - 1,
        }
    }
}

impl Link {
    pub(crate) fn new(control: Control, origin: Origin) -> Link {
        Link { control, origin, outgoing: None, incoming: None, has_hung_up: false, fault: None }
    }

    /// Tries to make the ring cold: no pass polls it until the doorbell rings. Returns false if the ring has
    /// a frame, or if the ring is malformed. The next pass reports the end of the link of a malformed ring.
    pub(crate) fn try_stop_polling_ring(&mut self) -> bool {
        let Some(incoming) = &mut self.incoming else { return true };
        // Publish now: this side may sleep next, while the peer waits for room.
        incoming.ring.publish_progress();
        let is_cold = incoming.ring.request_wake_if_empty().unwrap_or_else(|reason| {
            (self.has_hung_up, self.fault) = (true, Some(reason.reason()));
            false
        });
        incoming.is_hot = !is_cold;
        self.wake_peer_if_room_requested();
        is_cold
    }

    /// Does what follows after frames were read from the ring.
    #[inline(always)]
    pub(crate) fn note_messages_read(&mut self) {
        self.wake_peer_if_room_requested();
        // In a ping-pong this side sends its answer next.
        if let Some(outgoing) = &mut self.outgoing
            && mem::take(&mut outgoing.has_sent)
        {
            outgoing.ring.prefetch_line();
        }
    }

    /// Wakes a peer that waits for room in its ring, if this side has published progress since the last
    /// call.
    #[inline(always)]
    pub(crate) fn wake_peer_if_room_requested(&mut self) {
        if let (Some(incoming), Some(outgoing)) = (&mut self.incoming, &self.outgoing)
            && incoming.ring.take_room_request()
        {
            outgoing.ring_doorbell();
        }
    }

    /// The descriptors that the transport's poller watches.
    pub(crate) fn watched_fds(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        let incoming = self.incoming.as_ref();
        let doorbell = incoming.map(|incoming| incoming.doorbell.as_fd());
        let pidfd = incoming.and_then(|incoming| incoming.pidfd.as_ref()).map(AsFd::as_fd);
        [Some(self.control.as_fd()), doorbell, pidfd].into_iter().flatten()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    #[test]
    fn ringing_a_full_blocking_doorbell_ends_and_wakes() {
        let (outgoing, _ring) = Outgoing::create_ring(DataArea::SMALL).expect("memory");
        let doorbell = outgoing.doorbell().as_fd().try_clone_to_owned().expect("a descriptor");
        // What a peer can do, too. The read fails if the counter is 0.
        let _ = rustix::io::read(&doorbell, &mut [0; 8]);
        #[expect(clippy::host_endian_bytes, reason = "an eventfd counts in the host's own numbers")]
        let most = (u64::MAX - 1).to_ne_bytes();
        rustix::io::write(&doorbell, &most).expect("there is room");
        fcntl_setfl(&doorbell, OFlags::empty()).expect("a flag of the open file");
        let (done, rung) = mpsc::channel();
        thread::spawn(move || {
            outgoing.ring_doorbell();
            done.send(outgoing).expect("the test waits");
        });
        let outgoing = rung.recv_timeout(Duration::from_secs(30)).expect("the doorbell rings at once");
        let at_most = Timespec { tv_sec: 30, tv_nsec: 0 };
        let mut polled = [PollFd::new(outgoing.doorbell(), PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&at_most)), Ok(1));
    }
}
