//! One link: a control socket, and a ring in each direction.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use homespun_engine::address::Address;
use homespun_engine::transport::LinkError;
use rustix::event::{EventfdFlags, eventfd};

use crate::control::{Control, Handover};
use crate::cookie::Cookie;
use crate::fork::CloseOnForkFd;
use crate::memory::PeerMemory;
use crate::ring::{Consumer, Producer};
use crate::segment::{MapError, Segment};

/// What stands behind the number of a link.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A connection.
    Made(Box<Link>),
    /// A connection to a peer that lets no more wait.
    Waiting(Address),
    /// A connection that could not be made; this is still to be reported.
    Failed(LinkError),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) control: Control,
    pub(crate) origin: Origin,
    /// What this side sends with. An acceptor has it once it knows the peer.
    pub(crate) outgoing: Option<Outgoing>,
    /// What the peer sends with, once it has said hello.
    pub(crate) incoming: Option<Incoming>,
    /// The peer, or its process, has ended: nothing arrives any more but what is in the ring.
    pub(crate) has_hung_up: bool,
    /// What the peer has done that no correct peer does, if that is why.
    pub(crate) fault: Option<&'static str>,
}

/// Who made a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This side, to this address.
    Connected(Address),
    /// The peer; the how-manieth to do so.
    Accepted(u64),
}

/// This side's ring, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) ring: Producer,
    doorbell: CloseOnForkFd,
    pub(crate) cookie: Cookie,
    /// Whether the link is listed as one whose peer may have to be woken.
    pub(crate) in_dirty: bool,
    /// Whether something was sent since something has arrived.
    pub(crate) has_sent: bool,
    /// Whether the link is listed as one that had no room.
    pub(crate) in_full: bool,
}

/// The peer's ring, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) ring: Consumer,
    /// What the peer wakes this side with.
    pub(crate) doorbell: CloseOnForkFd,
    pub(crate) pidfd: Option<CloseOnForkFd>,
    pub(crate) peer_memory: PeerMemory,
    /// How often in a row the ring was found empty.
    pub(crate) empty_polls: u32,
    /// Whether the ring is looked at in every pass.
    pub(crate) is_hot: bool,
}

impl Outgoing {
    /// Makes a ring. The descriptor is for the peer; it need not be kept.
    pub(crate) fn open() -> io::Result<(Outgoing, OwnedFd)> {
        let (segment, descriptor) = Segment::create()?;
        let doorbell = CloseOnForkFd::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ring = Producer::new(segment);
        let cookie = Cookie::generate()?;
        Ok((
            Outgoing { ring, doorbell, cookie, in_dirty: false, has_sent: false, in_full: false },
            descriptor,
        ))
    }

    pub(crate) fn doorbell(&self) -> &CloseOnForkFd {
        &self.doorbell
    }

    /// Wakes the peer.
    pub(crate) fn ring_doorbell(&self) {
        // A counter that is at its end would be one that nobody needs to be told of.
        #[expect(clippy::host_endian_bytes, reason = "an eventfd counts in the host's own numbers")]
        let one = 1_u64.to_ne_bytes();
        if let Err(error) = rustix::io::write(&self.doorbell, &one) {
            tracing::debug!(%error, "the doorbell does not ring");
        }
    }
}

impl Incoming {
    /// Takes over what came with the peer's greeting.
    pub(crate) fn take_over(handover: Handover, control: &Control) -> Result<Incoming, LinkError> {
        let Handover { greeting, ring, doorbell } = handover;
        let segment = Segment::map(&ring).map_err(|error| match error {
            MapError::System(error) => LinkError::System(crate::control::errno(&error)),
            MapError::NotARing => LinkError::Protocol("what was handed over is no ring"),
        })?;
        let peer_memory = PeerMemory { pid: control.peer().pid, cookie: greeting.cookie };
        let is_own = peer_memory.pid == rustix::process::getpid().as_raw_pid();
        Ok(Incoming {
            ring: Consumer::new(segment),
            doorbell: CloseOnForkFd::new(doorbell),
            // A process that hears of its own end hears too late.
            pidfd: if is_own { None } else { control.pidfd() },
            peer_memory,
            empty_polls: 0,
            is_hot: false,
        })
    }
}

impl Origin {
    pub(crate) fn is_connected(self) -> bool {
        matches!(self, Origin::Connected(_))
    }
}

impl Link {
    pub(crate) fn new(control: Control, origin: Origin) -> Link {
        Link { control, origin, outgoing: None, incoming: None, has_hung_up: false, fault: None }
    }

    /// Looks at the ring no more until the doorbell rings, unless there is something in it, or the end is to be reported of a
    /// link whose ring is spoilt. Whether that is so now.
    pub(crate) fn make_cold(&mut self) -> bool {
        let Some(incoming) = &mut self.incoming else { return true };
        // Nobody will look for a while, and the peer may wait for room as well.
        incoming.ring.publish_progress();
        let is_cold = incoming.ring.make_cold().unwrap_or_else(|reason| {
            (self.has_hung_up, self.fault) = (true, Some(reason.reason()));
            false
        });
        incoming.is_hot = !is_cold;
        self.notify_room();
        is_cold
    }

    /// Wakes a peer that sleeps until there is room in its ring, if there is now.
    pub(crate) fn notify_room(&mut self) {
        if let (Some(incoming), Some(outgoing)) = (&mut self.incoming, &self.outgoing)
            && incoming.ring.take_room_request()
        {
            outgoing.ring_doorbell();
        }
    }

    /// The descriptors that are watched.
    pub(crate) fn watched(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        let incoming = self.incoming.as_ref();
        let doorbell = incoming.map(|incoming| incoming.doorbell.as_fd());
        let pidfd = incoming.and_then(|incoming| incoming.pidfd.as_ref()).map(AsFd::as_fd);
        [Some(self.control.as_fd()), doorbell, pidfd].into_iter().flatten()
    }
}
