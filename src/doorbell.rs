//! Waking those who sleep on a file descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use homespun_engine::errno::Errno;
use homespun_engine::error::Error;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io;

/// A descriptor that becomes readable when it is rung. Ringing costs a system call only while somebody may be asleep.
///
/// It is armed or readable, never both and never neither: whoever goes to sleep on it, having armed it, wakes when anybody
/// rings it, and if several sleep, all of them do, provided that nobody arms it anew before they have. It begins readable,
/// so that nobody sleeps on it who has not armed it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    event: OwnedFd,
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
        let event = eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| system("making an event descriptor", error))?;
        Ok(Doorbell {
            event,
            is_armed: AtomicBool::new(false),
            change: Mutex::new(()),
            process: process::id(),
        })
    }

    /// To be called before looking for what there is to do, and that before sleeping: what is done after the look rings.
    pub(crate) fn arm(&self) {
        let _changing = self.change.lock();
        if !self.is_armed() {
            let _ = io::read(&self.event, &mut [0; 8]);
            self.is_armed.store(true, Ordering::SeqCst);
        }
        // What the look finds is not always behind a lock that those who ring hold: see `ring_after`.
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
        fence(Ordering::SeqCst);
        self.ring();
    }

    #[cold]
    #[expect(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
    fn ring_loudly(&self) {
        let _changing = self.change.lock();
        if self.is_armed.swap(false, Ordering::SeqCst) && self.process == process::id() {
            // It fails only where the count is full, and then the descriptor is readable.
            let _ = io::write(&self.event, &1_u64.to_ne_bytes());
        }
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

#[cfg(test)]
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
