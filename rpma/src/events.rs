//! The events of one connection, or of one endpoint that listens.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun::eq::Event;
use homespun::signals::wait_readable;
use homespun::{EqReadError, EventError, EventQueue};

use crate::error::Error;
use crate::peer::Peer;
use crate::wait_descriptor::is_nonblocking;

/// The events of one object, and a descriptor that is readable while there is one.
#[derive(Debug)]
pub(crate) struct Events {
    queue: EventQueue,
    /// Whether the application has asked for the descriptor.
    is_watched: AtomicBool,
}

impl Events {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new(peer: &Peer) -> Result<Events, Error> {
        Ok(Events { queue: peer.open_event_queue()?, is_watched: AtomicBool::new(false) })
    }

    /// Returns the native queue, to which an endpoint is bound.
    pub(crate) fn queue(&self) -> &EventQueue {
        &self.queue
    }

    /// Returns the descriptor.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.is_watched.store(true, Ordering::SeqCst);
        self.arm_descriptor_if_watched();
        self.wait_fd()
    }

    /// Whether a read waits for an event: the application has not set `O_NONBLOCK` on the descriptor.
    pub(crate) fn may_block(&self) -> bool {
        !self.is_watched.load(Ordering::SeqCst) || !is_nonblocking(self.wait_fd())
    }

    /// Returns the next event, or the next failure of an attempt to connect. Waits for it, unless the
    /// application has set `O_NONBLOCK` on the descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::NoEvent`] if there is no event, and the call does not wait. [`Error::Interrupted`].
    pub(crate) fn next(&self) -> Result<Result<Event, EventError>, Error> {
        loop {
            if let Some(event) = self.poll() {
                return Ok(event);
            }
            if !self.may_block() {
                return Err(Error::NoEvent);
            }
            if self.queue.try_wait().expect("the queue has a wait object") {
                wait_readable(&[self.wait_fd()])?;
            } else {
                thread::yield_now();
            }
        }
    }

    /// Returns the next event, or the next failure of an attempt to connect. Does not wait.
    pub(crate) fn poll(&self) -> Option<Result<Event, EventError>> {
        let next = self.read();
        self.arm_descriptor_if_watched();
        next
    }

    /// Waits for an event, at most this long, and drops it.
    pub(crate) fn wait_for_one(&self, at_most: Duration) {
        let begin = Instant::now();
        let remaining = || at_most.saturating_sub(begin.elapsed());
        // A failure of an attempt to connect is an event, too. A signal handler ends the read early.
        while self.queue.sread(Some(remaining())) == Ok(None) && !remaining().is_zero() {}
    }

    fn read(&self) -> Option<Result<Event, EventError>> {
        loop {
            match self.queue.read() {
                Ok(event) => return event.map(Ok),
                // Another thread may have read the failure meanwhile.
                Err(EqReadError::ErrorAvailable) => {
                    if let Some(failure) = self.queue.read_error() {
                        return Some(Err(failure));
                    }
                }
                Err(error @ (EqReadError::Unwanted | EqReadError::NoWaitObject | EqReadError::Deadlock)) => {
                    unreachable!("a queue with a wait object, which is read without a condition: {error}")
                }
            }
        }
    }

    /// Makes the descriptor readable only while there is an event. Each read leaves it readable.
    fn arm_descriptor_if_watched(&self) {
        if self.is_watched.load(Ordering::SeqCst) {
            // With an event in the queue, the call returns false and the descriptor stays readable.
            self.queue.try_wait().expect("the queue has a wait object");
        }
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.queue.wait_fd().expect("the queue has a descriptor as its wait object")
    }
}
