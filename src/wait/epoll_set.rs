//! The epoll sets on which threads sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use homespun_engine::error::{Error, SystemRequest};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io;

use super::error::WaitError;

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
    ///
    /// # Errors
    ///
    /// [`WaitError::Interrupted`].
    pub(crate) fn sleep(&self, at_most: Option<Duration>) -> Result<(), WaitError> {
        sleep_until_readable(&self.0, at_most)
    }
}

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until the descriptor is readable or the time has passed. May wake earlier.
///
/// # Errors
///
/// [`WaitError::Interrupted`] if a signal handler has run meanwhile, whatever its flags: `poll(2)` is never
/// restarted after a handler.
pub(super) fn sleep_until_readable(fd: impl AsFd, at_most: Option<Duration>) -> Result<(), WaitError> {
    let at_most = to_timespec(at_most.map_or(SLEEP_MAX, |time| time.min(SLEEP_MAX)));
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_most)) {
        Err(io::Errno::INTR) => Err(WaitError::Interrupted),
        _ => Ok(()),
    }
}

pub(super) fn to_timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
