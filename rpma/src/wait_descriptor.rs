//! Descriptors on which an application waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun::Errno;
use homespun::error::{Error as NativeError, SystemRequest};
use homespun::signals::wait_readable;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io;

use crate::error::Error;

/// A descriptor that is readable while one of its members is.
#[derive(Debug)]
pub(crate) struct WaitDescriptor {
    epoll: OwnedFd,
}

impl WaitDescriptor {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new() -> Result<WaitDescriptor, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|error| system_error(SystemRequest::EpollDescriptor, error))?;
        Ok(WaitDescriptor { epoll })
    }

    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add(&self, member: BorrowedFd<'_>) -> Result<(), Error> {
        epoll::add(&self.epoll, member, EventData::new_u64(0), EventFlags::IN)
            .map_err(|error| system_error(SystemRequest::Watch, error))
    }

    /// Removes a member. Does nothing if it is none.
    pub(crate) fn remove(&self, member: BorrowedFd<'_>) {
        // The call fails only for a descriptor that is no member.
        let _ = epoll::delete(&self.epoll, member);
    }

    /// Waits until the descriptor is readable. May return earlier.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`].
    pub(crate) fn wait(&self) -> Result<(), Error> {
        Ok(wait_readable(&[self.as_fd()])?)
    }
}

impl AsFd for WaitDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Whether the application has set `O_NONBLOCK` on a descriptor.
pub(crate) fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

fn system_error(request: SystemRequest, error: io::Errno) -> Error {
    NativeError::System { request, errno: Errno::new(error.raw_os_error()) }.into()
}
