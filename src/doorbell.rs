//! Waking threads that sleep on a file descriptor.

#[cfg(not(all(test, loom)))]
mod event;
#[cfg(all(test, loom))]
#[path = "doorbell/modelled.rs"]
mod event;

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};

use homespun_engine::error::Error;
use homespun_engine::fork::ForkGeneration;

use self::event::EventFd;
use crate::sync::{AtomicBool, Mutex, Ordering, fence};

/// A descriptor that becomes readable when it is rung. Ringing costs a system call only while a thread may
/// be asleep on the descriptor.
///
/// A thread arms the doorbell, then sleeps, and wakes when another thread rings. If several threads sleep,
/// all of them wake, unless a thread arms the doorbell again before all have woken. A doorbell that is not
/// armed is readable, unless its only sleeper has [disarmed](Self::disarm_silently) it. So is a new one: a
/// thread that sleeps without arming it wakes at once.
#[derive(Debug)]
pub(crate) struct Doorbell {
    event: EventFd,
    is_armed: AtomicBool,
    /// Whether the descriptor is readable. Locked while the doorbell changes from one state to the other.
    is_readable: Mutex<bool>,
    /// The fork generation of the process that created the doorbell. A forked child shares the descriptor
    /// with its parent. The child must not ring: it would wake the parent's sleepers for nothing.
    generation: ForkGeneration,
}

impl Doorbell {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new() -> Result<Doorbell, Error> {
        Ok(Doorbell {
            event: EventFd::new()?,
            is_armed: AtomicBool::new(false),
            is_readable: Mutex::new(true),
            generation: ForkGeneration::current(),
        })
    }

    /// Arms the doorbell. A thread calls this, then checks whether it has work, and only then sleeps. If
    /// work arrives after the check, another thread rings the doorbell.
    pub(crate) fn arm(&self) {
        let mut is_readable = self.is_readable.lock();
        if !self.is_armed() {
            if mem::take(&mut *is_readable) {
                self.event.clear();
            }
            self.is_armed.store(true, Ordering::SeqCst);
        }
        // SYNC POINT sleep. Other threads may change state without the lock under which the caller checks
        // it next: see `ring_after_seqcst_fence`.
        fence(Ordering::SeqCst);
    }

    /// Whether a thread may be asleep.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::SeqCst)
    }

    /// Wakes sleepers, if there may be any.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.is_armed() {
            self.wake();
        }
    }

    /// As [`ring`](Self::ring), after a change that was made without the lock under which sleepers check.
    /// With the fence, either the sleeper's check sees the change, or this call sees the doorbell armed.
    #[cold]
    pub(crate) fn ring_after_seqcst_fence(&self) {
        // SYNC POINT sleep.
        fence(Ordering::SeqCst);
        self.ring();
    }

    #[cold]
    fn wake(&self) {
        let mut is_readable = self.is_readable.lock();
        if self.is_armed.swap(false, Ordering::SeqCst) && !self.generation.is_in_forked_child() {
            self.event.set();
            *is_readable = true;
        }
    }

    /// Disarms the doorbell without ringing it, which saves two system calls for a sleep that something else
    /// has ended. Only while no thread sleeps on the descriptor, or is about to.
    pub(crate) fn disarm_silently(&self) {
        let _changing = self.is_readable.lock();
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Sleeps until this doorbell, or a doorbell nested in it, is readable.
    #[cfg(all(test, loom))]
    pub(crate) fn wait(&self) {
        self.event.wait();
    }

    /// Models that the epoll set of `inner` is nested in the epoll set of this doorbell.
    #[cfg(all(test, loom))]
    pub(crate) fn nest(&self, inner: &Doorbell) {
        self.event.nest(&inner.event);
    }

    /// Undoes [`nest`](Self::nest).
    #[cfg(all(test, loom))]
    pub(crate) fn unnest(&self, inner: &Doorbell) {
        self.event.unnest(&inner.event);
    }

    #[cfg(all(test, loom))]
    pub(crate) fn is_readable(&self) -> bool {
        self.event.is_readable()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(bell: &Doorbell) -> bool {
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("a descriptor that can be polled")
            > 0
    }

    #[test]
    fn doorbell_that_is_not_armed_is_readable() {
        let bell = Doorbell::new().expect("a descriptor");
        assert!(is_readable(&bell) && !bell.is_armed());
        for _ in 0..2 {
            bell.arm();
            assert!(!is_readable(&bell) && bell.is_armed());
            bell.ring();
            assert!(is_readable(&bell) && !bell.is_armed());
            bell.ring();
            assert!(is_readable(&bell) && !bell.is_armed());
        }
    }

    #[test]
    fn disarmed_doorbell_is_armed_and_rung_again() {
        let bell = Doorbell::new().expect("a descriptor");
        for _ in 0..2 {
            bell.arm();
            bell.disarm_silently();
            bell.ring();
            assert!(!is_readable(&bell) && !bell.is_armed(), "no thread sleeps");
            bell.arm();
            bell.ring();
            bell.disarm_silently();
            assert!(is_readable(&bell) && !bell.is_armed(), "it rang before");
        }
    }

    #[test]
    fn one_ring_undoes_two_arms() {
        let bell = Doorbell::new().expect("a descriptor");
        bell.arm();
        bell.arm();
        bell.ring();
        assert!(is_readable(&bell));
    }
}
