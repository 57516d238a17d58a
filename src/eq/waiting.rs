//! Blocking reads of event queues, and the calls for applications that sleep by themselves:
//! `fi_eq_sread(3)`, `fi_trywait(3)`. The calls work as for completion queues: see [`wait`](crate::wait).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use homespun_engine::error::{Argument, Error, Misuse};
use homespun_engine::transport::Armed;

use super::{EqReadError, EqShared, Event, EventLists, EventQueue, Taken};
use crate::mutated;
use crate::wait::{Awaited, MutexCond, WaitError, WaitObject, WaitSetMember, Waiter};

impl EventQueue {
    /// Reads the oldest event, and waits if the queue is empty: `fi_eq_sread(3)`. If `timeout` is `None`,
    /// waits without limit. Returns `None` after the timeout, or if a signal handler ends the wait, as in
    /// [`CompletionQueue::sread`](crate::CompletionQueue::sread).
    ///
    /// The thread polls and sleeps as there, and makes progress at every event of the bound endpoints.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). Also [`EqReadError::NoWaitObject`].
    pub fn sread(&self, timeout: Option<Duration>) -> Result<Option<Event>, EqReadError> {
        self.shared.read_or_wait(timeout, EventLists::take)
    }

    /// As [`sread`](Self::sread), but reads the oldest event only if `is_wanted` accepts it, as
    /// [`read_if`](Self::read_if) does.
    ///
    /// # Errors
    ///
    /// As [`sread`](Self::sread). Also [`EqReadError::Unwanted`], as [`read_if`](Self::read_if).
    pub fn sread_if(
        &self,
        timeout: Option<Duration>,
        is_wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Event>, EqReadError> {
        self.shared.read_or_wait(timeout, |queues| queues.take_if(&is_wanted))
    }

    /// As [`sread`](Self::sread), but the event stays in the queue: `fi_eq_sread(3)` with `FI_PEEK`.
    ///
    /// # Errors
    ///
    /// As [`sread`](Self::sread).
    pub fn speek(&self, timeout: Option<Duration>) -> Result<Option<Event>, EqReadError> {
        self.shared.read_or_wait(timeout, EventLists::peek)
    }

    /// Prepares to sleep on [`wait_fd`](Self::wait_fd) or [`wait_mutex_cond`](Self::wait_mutex_cond):
    /// `fi_trywait(3)`. Returns whether the application may sleep, as
    /// [`CompletionQueue::try_wait`](crate::CompletionQueue::try_wait) does.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] for a queue that was opened without a wait object.
    pub fn try_wait(&self) -> Result<bool, Error> {
        let waiter = self.shared.waiter.as_ref().ok_or(NO_WAIT_OBJECT)?;
        Ok(waiter.try_wait(&*self.shared))
    }

    /// Returns the descriptor to sleep on: `FI_GETWAIT`. `None` unless the queue was opened with
    /// [`WaitObject::Fd`]. See [`CompletionQueue::wait_fd`](crate::CompletionQueue::wait_fd).
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let waiter = self.shared.waiter.as_ref().filter(|_| !mutated!("fi_eq/eq-descriptor"));
        waiter.and_then(Waiter::fd)
    }

    /// Returns the mutex and the condition variable to sleep on: `FI_GETWAIT`. `None` unless the queue was
    /// opened with [`WaitObject::MutexCond`]. See
    /// [`CompletionQueue::wait_mutex_cond`](crate::CompletionQueue::wait_mutex_cond).
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub fn wait_mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
        self.shared.waiter.as_ref().map_or(Ok(None), Waiter::mutex_cond)
    }

    /// Returns the wait object.
    pub fn wait_object(&self) -> WaitObject {
        self.shared.waiter.as_ref().map_or(WaitObject::None, Waiter::object)
    }
}

impl EqShared {
    /// Reads, and waits if there is nothing to read.
    fn read_or_wait<R>(
        &self,
        timeout: Option<Duration>,
        take: impl Fn(&mut EventLists) -> Taken<R>,
    ) -> Result<Option<R>, EqReadError> {
        let waiter = self.waiter.as_ref().and_then(Waiter::if_not_set_member);
        let polling = mutated!("fi_eq/eq-wait-objects").then(|| Waiter::waiter_or_polling_one(None));
        let waiter = waiter.or(polling).ok_or(EqReadError::NoWaitObject)?;
        let timeout = if mutated!("fi_eq/eq-sread-blocks") { Some(Duration::ZERO) } else { timeout };
        let found = waiter.wait(&self.clock, timeout, self, || match self.poll(&take) {
            Ok(None) => None,
            read => Some(read),
        });
        if matches!(found, Err(WaitError::Interrupted)) && mutated!("fi_eq/eq-sread-ends-on-signal") {
            return self.read_or_wait(timeout, take);
        }
        found.unwrap_or_else(|ended| match (self.poll(&take), ended) {
            (Ok(None), WaitError::Deadlock) => Err(EqReadError::Deadlock),
            (read, _) => read,
        })
    }
}

/// A condition to wait for: the queue has an event or an error.
impl Awaited for EqShared {
    fn progress(&self) {
        self.driven.progress_without_reader();
    }

    fn arm(&self) -> Armed {
        self.driven.arm()
    }

    fn fire_due_works(&self) {
        self.driven.fire_due_works();
    }

    fn poll_ready(&self) -> bool {
        self.has_entries()
    }
}

impl WaitSetMember for EqShared {
    fn with_awaited(&self, show: &mut dyn FnMut(&Waiter, &dyn Awaited)) {
        if let Some(waiter) = &self.waiter
            && !mutated!("fi_eq/eq-in-wait-set")
        {
            show(waiter, self);
        }
    }
}

const NO_WAIT_OBJECT: Error = Error::Misuse(Misuse::Invalid(Argument::NoWaitObject));
