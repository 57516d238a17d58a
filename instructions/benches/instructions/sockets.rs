//! Waits for the kernel, outside of the counted parts. The loopback interface delivers data only after the
//! call that sends the data.

use std::fs;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The time after which delivery over loopback counts as failed.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The sockets of the process.
#[derive(Debug)]
pub(crate) struct Sockets(Vec<RawFd>);

impl Sockets {
    pub(crate) fn of_process() -> Sockets {
        let entries = fs::read_dir("/proc/self/fd").expect("the system lists a process's descriptors");
        let sockets = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            // The descriptor of this listing is among the entries, but is no socket.
            let is_socket = fs::read_link(&path).ok()?.to_str()?.starts_with("socket:");
            if is_socket { path.file_name()?.to_str()?.parse().ok() } else { None }
        });
        Sockets(sockets.collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Waits until a socket is readable.
    pub(crate) fn wait_until_readable(&self) {
        assert!(self.has_readable_within(&PATIENCE), "nothing arrives");
    }

    /// Whether a socket is readable now.
    pub(crate) fn has_readable(&self) -> bool {
        self.has_readable_within(&Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    fn has_readable_within(&self, timeout: &Timespec) -> bool {
        let borrowed = |fd: &RawFd| {
            // SAFETY: the endpoints own the sockets, and keep them open until the process ends. `poll` only
            // reads their state.
            PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(*fd) }, PollFlags::IN)
        };
        let mut polled: Vec<PollFd<'_>> = self.0.iter().map(borrowed).collect();
        poll(&mut polled, Some(timeout)).expect("sockets that are open") > 0
    }
}
