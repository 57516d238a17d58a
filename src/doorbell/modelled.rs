//! The event of a doorbell as loom models it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun_engine::error::Error;
use loom::sync::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use super::system;

/// Something that is readable or not. Who sleeps on it is one of loom's threads: if nobody wakes it, that is a deadlock,
/// which loom finds.
#[derive(Debug)]
pub(super) struct Event {
    /// What is nested in other descriptors. It is readable for ever.
    descriptor: OwnedFd,
    is_readable: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    pub(super) fn new() -> Result<Event, Error> {
        let descriptor = eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| system("making an event descriptor", error))?;
        Ok(Event { descriptor, is_readable: Mutex::new(true), changed: Condvar::new() })
    }

    pub(super) fn set(&self) {
        *self.is_readable.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub(super) fn clear(&self) {
        *self.is_readable.lock().unwrap() = false;
    }

    pub(super) fn is_readable(&self) -> bool {
        *self.is_readable.lock().unwrap()
    }

    /// Sleeps until it is readable, and leaves it so.
    pub(super) fn wait(&self) {
        let mut is_readable = self.is_readable.lock().unwrap();
        while !*is_readable {
            is_readable = self.changed.wait(is_readable).unwrap();
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
