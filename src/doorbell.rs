//! Waking those who sleep on a file descriptor.

#[cfg(not(all(test, loom)))]
mod event;
#[cfg(all(test, loom))]
#[path = "doorbell/modelled.rs"]
mod event;

use std::os::fd::{AsFd, BorrowedFd};
use std::process;

use homespun_engine::errno::Errno;
use homespun_engine::error::Error;
use rustix::io;

use self::event::Event;
use crate::sync::{AtomicBool, Mutex, Ordering, fence};

/// A descriptor that becomes readable when it is rung. Ringing costs a system call only while somebody may be asleep.
///
/// It is armed or readable, never both and never neither: whoever goes to sleep on it, having armed it, wakes when anybody
/// rings it, and if several sleep, all of them do, provided that nobody arms it anew before they have. It begins readable,
/// so that nobody sleeps on it who has not armed it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    event: Event,
    is_armed: AtomicBool,
    /// Held while one of the two states becomes the other.
    change: Mutex<()>,
    /// The process that made it. The descriptor of a forked child is its parent's, whose sleepers have nothing to wake for.
    process: u32,
}

impl Doorbell {
    /// # Errors
    ///
    /// What the system says: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new() -> Result<Doorbell, Error> {
        Ok(Doorbell {
            event: Event::new()?,
            is_armed: AtomicBool::new(false),
            change: Mutex::new(()),
            process: process::id(),
        })
    }

    /// To be called before looking for what there is to do, and that before sleeping: what is done after the look rings.
    pub(crate) fn arm(&self) {
        let _changing = self.change.lock();
        if !self.is_armed() {
            self.event.clear();
            self.is_armed.store(true, Ordering::SeqCst);
        }
        // SYNC POINT sleep. What the look finds is not always behind a lock that those who ring hold: see `ring_after`.
        fence(Ordering::SeqCst);
    }

    /// Whether somebody may be asleep.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::SeqCst)
    }

    /// Wakes those who sleep, if there may be any.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.is_armed() {
            self.ring_loudly();
        }
    }

    /// As [`ring`](Self::ring), after something was done without a lock that whoever has armed it takes for the look.
    #[cold]
    pub(crate) fn ring_after(&self) {
        // SYNC POINT sleep.
        fence(Ordering::SeqCst);
        self.ring();
    }

    #[cold]
    fn ring_loudly(&self) {
        let _changing = self.change.lock();
        if self.is_armed.swap(false, Ordering::SeqCst) && self.process == process::id() {
            self.event.set();
        }
    }

    /// Sleeps until it is readable.
    #[cfg(all(test, loom))]
    pub(crate) fn wait(&self) {
        self.event.wait();
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

pub(crate) fn system(call: &'static str, error: io::Errno) -> Error {
    Error::System { call, errno: Errno::new(error.raw_os_error()) }
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
    fn it_is_armed_or_readable() {
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
    fn arming_it_twice_takes_one_ring() {
        let bell = Doorbell::new().expect("a descriptor");
        bell.arm();
        bell.arm();
        bell.ring();
        assert!(is_readable(&bell));
    }
}
