//! A descriptor kept free.
//!
//! A peer that connects to a process without descriptors waits in the kernel. To accept the connection only
//! to refuse it takes a descriptor, too. So the transports of a process together keep one.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::fork::CloseOnFork;

/// The descriptor that the endpoints of this process keep to refuse a connection when there is no other.
#[derive(Debug)]
pub struct SpareDescriptor(Mutex<Option<CloseOnFork<UnixDatagram>>>);

impl SpareDescriptor {
    /// Returns the descriptor of this process. Opens it if no other endpoint is open.
    ///
    /// # Errors
    ///
    /// The system's error, such as EMFILE.
    pub fn of_this_process() -> io::Result<Arc<SpareDescriptor>> {
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
    pub fn lend<T>(&self, use_descriptor: impl FnOnce() -> T) -> T {
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
