//! The kernel's events: connections, greetings, hang-ups, doorbells, and the deaths of processes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun_engine::fork::CloseOnFork;
use homespun_engine::transport::LinkId;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::limits::EVENTS_MAX;

/// The descriptor to which an event belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSource {
    /// The listening sockets.
    Listener,
    /// A link's control socket.
    Control(LinkId),
    /// The doorbell that a link's peer rings.
    Doorbell(LinkId),
    /// The process of a link's peer, which has ended.
    Process(LinkId),
    /// The companion: another transport of the same owner. The owner adds the companion's epoll descriptor.
    Companion,
}

impl EventSource {
    const LISTENER: u64 = 0;
    const CONTROL: u64 = 1;
    const DOORBELL: u64 = 2;
    const PROCESS: u64 = 3;
    const COMPANION: u64 = 4;

    fn token(self) -> EventData {
        let (kind, id) = match self {
            EventSource::Listener => (EventSource::LISTENER, 0),
            EventSource::Control(id) => (EventSource::CONTROL, id.0),
            EventSource::Doorbell(id) => (EventSource::DOORBELL, id.0),
            EventSource::Process(id) => (EventSource::PROCESS, id.0),
            EventSource::Companion => (EventSource::COMPANION, 0),
        };
        EventData::new_u64(kind << 32 | u64::from(id))
    }

    fn from_token(token: EventData) -> EventSource {
        let id = LinkId(token.u64() as u32);
        match token.u64() >> 32 {
            EventSource::CONTROL => EventSource::Control(id),
            EventSource::DOORBELL => EventSource::Doorbell(id),
            EventSource::PROCESS => EventSource::Process(id),
            EventSource::COMPANION => EventSource::Companion,
            _ => EventSource::Listener,
        }
    }
}

/// An edge-triggered epoll instance: it reports each event once. Only the events of a companion are
/// level-triggered.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: CloseOnFork<OwnedFd>,
    happened: Vec<EventSource>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        let epoll = CloseOnFork::new(epoll::create(CreateFlags::CLOEXEC)?);
        Ok(Poller { epoll, happened: Vec::new() })
    }

    /// Watches a descriptor. Also reports an event that is already pending.
    pub(crate) fn add(&self, fd: impl AsFd, source: EventSource) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, source.token(), flags)?)
    }

    /// Watches the epoll descriptor of another transport. Each poll reports the descriptor while it has
    /// events, since the other transport may handle only some of them at once.
    pub(crate) fn add_companion(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventSource::Companion.token(), EventFlags::IN)?)
    }

    /// Stops watching a descriptor. Closing the descriptor is not enough, since a forked child may have a
    /// copy.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        if let Err(error) = epoll::delete(&self.epoll, fd) {
            tracing::debug!(%error, "the descriptor was not watched");
        }
    }

    /// The events since the last poll, at most [`EVENTS_MAX`].
    pub(crate) fn poll(&mut self) -> impl Iterator<Item = EventSource> + '_ {
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, &mut space, Some(&now)) {
            Ok((events, _)) => {
                self.happened.extend(events.iter().map(|event| EventSource::from_token(event.data)));
            }
            Err(error) => tracing::trace!(%error, "no events in this pass"),
        }
        self.happened.drain(..)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
