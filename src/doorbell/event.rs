//! The descriptor of a doorbell, on which threads sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun_engine::error::{Error, SystemRequest};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io;

/// A descriptor that is readable or not. It begins readable.
#[derive(Debug)]
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(super) fn new() -> Result<EventFd, Error> {
        let event = eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| SystemRequest::EventDescriptor.refused(error))?;
        Ok(EventFd(event))
    }

    /// Makes it readable.
    #[expect(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
    pub(super) fn set(&self) {
        // The write fails only if the count is at its maximum, and then the descriptor is readable.
        let _ = io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(super) fn clear(&self) {
        let _ = io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
