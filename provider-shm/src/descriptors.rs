//! The descriptors of this process, and those that peers pass to it.

use std::fs;
use std::io;
use std::iter;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use homespun_engine::thread::with_signals_blocked;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::fcntl_get_seals;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};
use smallvec::SmallVec;

use crate::limits::CLOSERS_MAX;

/// Descriptors that came with a message of a peer. Those that the owner does not take are closed, without
/// waiting.
#[derive(Debug, Default)]
pub(crate) struct PassedDescriptors(SmallVec<[OwnedFd; 2]>);

impl PassedDescriptors {
    pub(crate) fn extend(&mut self, more: impl Iterator<Item = OwnedFd>) {
        self.0.extend(more);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Takes the descriptors of a ring and of a doorbell.
    ///
    /// # Errors
    ///
    /// What is wrong, if they are not exactly these.
    pub(crate) fn take_ring_and_doorbell(mut self) -> Result<(OwnedFd, OwnedFd), &'static str> {
        let wrong_count = "a greeting without exactly two descriptors";
        match self.0.as_slice() {
            [ring, _] if !is_memory(ring) => return Err("the descriptor handed over is no ring"),
            [_, doorbell] if !is_event(doorbell) => return Err("the descriptor handed over is no doorbell"),
            [_, _] => {}
            _ => return Err(wrong_count),
        }
        let doorbell = self.0.pop();
        self.0.pop().zip(doorbell).ok_or(wrong_count)
    }
}

impl Drop for PassedDescriptors {
    /// Closing an unknown file may wait for ever: a socket that lingers, a file of FUSE. A thread does it.
    fn drop(&mut self) {
        self.0.retain(|descriptor| !is_memory(&*descriptor) && !is_event(&*descriptor));
        if self.0.is_empty() {
            return;
        }
        let unknown = Arc::new(Mutex::new(mem::take(&mut self.0)));
        let take = |from: &Mutex<_>| mem::take(&mut *from.lock().unwrap_or_else(PoisonError::into_inner));
        let closing = Arc::clone(&unknown);
        if let Err(error) = start_closer(move || drop(take(&closing))) {
            tracing::warn!(%error, "descriptors of a peer stay open: no thread to close them");
            mem::forget(take(&unknown));
        }
    }
}

/// Runs `close` in a thread of its own.
///
/// # Errors
///
/// The system's error. EAGAIN if [`CLOSERS_MAX`] threads wait for their files.
fn start_closer(close: impl FnOnce() + Send + 'static) -> io::Result<()> {
    static CLOSERS: AtomicUsize = AtomicUsize::new(0);
    if CLOSERS.fetch_add(1, Ordering::Relaxed) >= CLOSERS_MAX {
        CLOSERS.fetch_sub(1, Ordering::Relaxed);
        return Err(Errno::AGAIN.into());
    }
    let spawned = with_signals_blocked(|| {
        thread::Builder::new().name("homespun-close".into()).spawn(move || {
            close();
            CLOSERS.fetch_sub(1, Ordering::Relaxed);
        })
    });
    if spawned.is_err() {
        CLOSERS.fetch_sub(1, Ordering::Relaxed);
    }
    spawned.map(drop)
}

/// Whether a descriptor is memory: only files in memory have seals. Asks no file system.
fn is_memory(descriptor: impl AsFd) -> bool {
    fcntl_get_seals(descriptor).is_ok()
}

/// Whether a descriptor is an eventfd. Asks no file system but `/proc`; where that is absent, assumes it.
fn is_event(descriptor: impl AsFd) -> bool {
    match fs::read_link(format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())) {
        Ok(name) => name.as_os_str().as_bytes() == b"anon_inode:[eventfd]",
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether this process can open this many descriptors now. Opens and closes them to find out. Another thread
/// may take some of them before the caller does. If a policy forbids the descriptors, there is no lack of
/// them.
pub(crate) fn has_spare(count: usize) -> bool {
    let first = match eventfd(0, EventfdFlags::CLOEXEC) {
        Ok(first) => first,
        Err(error) => return !matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM),
    };
    let another = || fcntl_dupfd_cloexec(&first, 0).ok();
    let further: SmallVec<[OwnedFd; 16]> =
        iter::repeat_with(another).take(count - 1).map_while(|copy| copy).collect();
    further.len() == count - 1
}

/// How many descriptors this process may have at present (RLIMIT_NOFILE).
pub(crate) fn max_count() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
