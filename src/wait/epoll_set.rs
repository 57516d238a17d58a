//! The epoll sets on which threads sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use homespun_engine::error::{Error, SystemRequest};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io;

/// The longest time of one sleep. A longer timeout might not fit into the system's type.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// An `epoll(7)` descriptor. It is readable while one of its sources is. Sleepers do not ask which source.
#[derive(Debug)]
pub(crate) struct EpollSet(OwnedFd);

impl EpollSet {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new() -> Result<EpollSet, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(EpollSet(epoll.map_err(|error| SystemRequest::EpollDescriptor.refused(error))?))
    }

    /// Adds a source. Adding a source again is no error: enabling an endpoint may fail after this call, and
    /// the application may try again.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add(&self, source: impl AsFd) -> Result<(), Error> {
        match epoll::add(&self.0, source, EventData::new_u64(0), EventFlags::IN) {
            Ok(()) | Err(io::Errno::EXIST) => Ok(()),
            Err(error) => Err(SystemRequest::Watch.refused(error)),
        }
    }

    /// Sets whether a source is muted. A muted source wakes no sleepers. Ignores a source that is not in the
    /// set.
    pub(crate) fn set_muted(&self, source: impl AsFd, is_muted: bool) {
        let flags = if is_muted { EventFlags::empty() } else { EventFlags::IN };
        let _ = epoll::modify(&self.0, source, EventData::new_u64(0), flags);
    }

    /// Removes a source. Closing its descriptor is not enough: a copy in a child process would still wake
    /// sleepers.
    pub(crate) fn remove(&self, source: impl AsFd) {
        let _ = epoll::delete(&self.0, source);
    }

    /// Sleeps until a source is readable or the time has passed. May wake earlier.
    pub(crate) fn sleep(&self, at_most: Option<Duration>) {
        let at_most = to_timespec(at_most.map_or(SLEEP_MAX, |time| time.min(SLEEP_MAX)));
        // A signal ends the sleep early, which does no harm.
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&at_most));
    }
}

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(super) fn to_timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
