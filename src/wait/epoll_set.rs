//! The epoll sets on which threads sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use homespun_engine::error::Error;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io;

use crate::doorbell::system_error;

/// The longest time that one sleep lasts, so that any timeout fits into what the system takes.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// An `epoll(7)` descriptor: readable while one of its sources is. A sleeper never asks which one.
#[derive(Debug)]
pub(crate) struct EpollSet(OwnedFd);

impl EpollSet {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new() -> Result<EpollSet, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(EpollSet(epoll.map_err(|error| system_error("making an epoll descriptor", error))?))
    }

    /// Adds a source. Adding it once more changes nothing: enabling an endpoint may fail later on, and be
    /// tried again.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add(&self, source: impl AsFd) -> Result<(), Error> {
        match epoll::add(&self.0, source, EventData::new_u64(0), EventFlags::IN) {
            Ok(()) | Err(io::Errno::EXIST) => Ok(()),
            Err(error) => Err(system_error("watching a descriptor", error)),
        }
    }

    /// Has a source wake sleepers, or not for now. A source that is no longer there is left out.
    pub(crate) fn set_muted(&self, source: impl AsFd, is_muted: bool) {
        let flags = if is_muted { EventFlags::empty() } else { EventFlags::IN };
        let _ = epoll::modify(&self.0, source, EventData::new_u64(0), flags);
    }

    /// Removes a source. Closing it would not do where a child process has a copy, which would go on waking.
    pub(crate) fn remove(&self, source: impl AsFd) {
        let _ = epoll::delete(&self.0, source);
    }

    /// Sleeps until a source is readable or the time has passed. It may also wake spuriously.
    pub(crate) fn sleep(&self, at_most: Option<Duration>) {
        let at_most = to_timespec(at_most.map_or(SLEEP_MAX, |time| time.min(SLEEP_MAX)));
        // A signal of the system ends it early, which does no harm.
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
