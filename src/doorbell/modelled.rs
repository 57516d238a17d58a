//! For loom: a model of a doorbell's descriptor, and of epoll sets in which descriptors are nested.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex as Uncontended, Weak};

use homespun_engine::error::{Error, SystemRequest};
use loom::sync::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

/// A model of an `eventfd(2)`, which is readable or not. Sleepers are loom's threads: if no other thread
/// wakes a sleeper, loom reports a deadlock.
#[derive(Debug)]
pub(super) struct EventFd {
    /// A real descriptor, for callers that ask for one. It is always readable.
    descriptor: OwnedFd,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    is_readable: Mutex<bool>,
    /// Notified when this event, or an inner event, becomes readable.
    changed: Condvar,
    inner: Uncontended<Vec<Arc<State>>>,
    outer: Uncontended<Vec<Weak<State>>>,
}

impl EventFd {
    pub(super) fn new() -> Result<EventFd, Error> {
        let descriptor = eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| SystemRequest::EventDescriptor.refused(error))?;
        let (is_readable, changed) = (Mutex::new(true), Condvar::new());
        let state =
            State { is_readable, changed, inner: Uncontended::default(), outer: Uncontended::default() };
        Ok(EventFd { descriptor, state: Arc::new(state) })
    }

    /// Makes a sleeper on this event also wake for another event.
    pub(super) fn nest(&self, inner: &EventFd) {
        self.state.inner.lock().unwrap().push(inner.state.clone());
        inner.state.outer.lock().unwrap().push(Arc::downgrade(&self.state));
    }

    /// Undoes [`nest`](Self::nest).
    pub(super) fn unnest(&self, inner: &EventFd) {
        self.state.inner.lock().unwrap().retain(|nested| !Arc::ptr_eq(nested, &inner.state));
    }

    pub(super) fn set(&self) {
        *self.state.is_readable.lock().unwrap() = true;
        self.state.changed.notify_all();
        let outer = self.state.outer.lock().unwrap().clone();
        for outer in outer.iter().filter_map(Weak::upgrade) {
            // Lock the outer event's state. Then a sleeper on the outer event either waits already, and
            // gets the notification, or has not yet checked whether this event is readable.
            let _sleeper = outer.is_readable.lock().unwrap();
            outer.changed.notify_all();
        }
    }

    pub(super) fn clear(&self) {
        *self.state.is_readable.lock().unwrap() = false;
    }

    pub(super) fn is_readable(&self) -> bool {
        *self.state.is_readable.lock().unwrap()
    }

    /// Sleeps until this event or an inner event is readable. Leaves it readable.
    pub(super) fn wait(&self) {
        let mut is_readable = self.state.is_readable.lock().unwrap();
        loop {
            let inner = self.state.inner.lock().unwrap().clone();
            if *is_readable || inner.iter().any(|inner| *inner.is_readable.lock().unwrap()) {
                return;
            }
            is_readable = self.state.changed.wait(is_readable).unwrap();
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
