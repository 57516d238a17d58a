//! Too few descriptors for the links of peers.
//!
//! A connection waits in the kernel, and a held link for its check, until there are descriptors. If that
//! takes too long, the peer is told so. For this, the endpoints of a process together keep one descriptor.

use std::io;
use std::mem;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use homespun_engine::fork::CloseOnFork;

use crate::limits::SHORTAGE_MAX_MS;

/// A lack of descriptors that delays links at present.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Since when links wait, and none has been taken.
    since: Option<Instant>,
    has_warned: bool,
}

impl Shortage {
    /// Records that a link waits. Returns whether links have waited too long.
    pub(crate) fn note_wait(&mut self) -> bool {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let is_too_long = waited > Duration::from_millis(SHORTAGE_MAX_MS);
        if is_too_long && !mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "refused a link of a peer: too few descriptors for {} s: raise RLIMIT_NOFILE (ulimit -n); \
                 further refusals are not reported",
                SHORTAGE_MAX_MS / 1000
            );
        }
        is_too_long
    }

    /// Records that a link waits no longer.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }
}

/// The descriptor that the endpoints of this process keep to refuse a connection when they have no other.
#[derive(Debug)]
pub(crate) struct SpareDescriptor(Mutex<Option<CloseOnFork<UnixDatagram>>>);

impl SpareDescriptor {
    /// Returns the descriptor of this process. Opens it if no other endpoint is open.
    pub(crate) fn of_this_process() -> io::Result<Arc<SpareDescriptor>> {
        static SPARE: Mutex<Weak<SpareDescriptor>> = Mutex::new(Weak::new());
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = spare.upgrade().filter(|existing| !existing.is_in_forked_child()) {
            return Ok(existing);
        }
        let opened = Arc::new(SpareDescriptor(Mutex::new(Some(open()?))));
        *spare = Arc::downgrade(&opened);
        Ok(opened)
    }

    /// Calls `use_descriptor` while one more descriptor is free, unless another thread takes it.
    pub(crate) fn lend<T>(&self, use_descriptor: impl FnOnce() -> T) -> T {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held = None;
        let result = use_descriptor();
        *held = open().ok();
        result
    }

    fn is_in_forked_child(&self) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().is_some_and(CloseOnFork::is_in_forked_child)
    }
}

/// Opens a descriptor that refers to nothing.
fn open() -> io::Result<CloseOnFork<UnixDatagram>> {
    UnixDatagram::unbound().map(CloseOnFork::new)
}
