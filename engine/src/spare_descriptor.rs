//! A descriptor kept free.
//!
//! A peer that connects to a process without descriptors waits in the kernel. To accept the connection only
//! to refuse it takes a descriptor, too. So the transports of a process together keep one.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::fork::{CloseOnFork, ForkGeneration};

/// The descriptor that the endpoints of this process keep to refuse a connection when there is no other.
#[derive(Debug)]
pub struct SpareDescriptor {
    /// `None` while the descriptor is lent, and if none was free afterwards.
    held: Mutex<Option<CloseOnFork<UnixDatagram>>>,
    generation: ForkGeneration,
}

impl SpareDescriptor {
    /// Returns the descriptor of this process. Opens it if no other endpoint is open.
    ///
    /// # Errors
    ///
    /// The system's error, such as EMFILE.
    pub fn of_this_process() -> io::Result<Arc<SpareDescriptor>> {
        static SHARED: Mutex<Weak<SpareDescriptor>> = Mutex::new(Weak::new());
        // In a forked child a thread of the parent may hold the lock for ever. So no call waits for it.
        // A call that does not get it opens a descriptor of its own.
        let Ok(mut shared) = SHARED.try_lock() else { return SpareDescriptor::open().map(Arc::new) };
        if let Some(existing) = shared.upgrade().filter(|spare| !spare.generation.is_in_forked_child()) {
            return Ok(existing);
        }
        let opened = Arc::new(SpareDescriptor::open()?);
        *shared = Arc::downgrade(&opened);
        Ok(opened)
    }

    /// Calls `use_descriptor` while one more descriptor is free, unless another thread takes it.
    pub fn lend<T>(&self, use_descriptor: impl FnOnce() -> T) -> T {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = None;
        let result = use_descriptor();
        *held = open_socket().ok();
        result
    }

    fn open() -> io::Result<SpareDescriptor> {
        let held = Mutex::new(Some(open_socket()?));
        Ok(SpareDescriptor { held, generation: ForkGeneration::current() })
    }
}

/// Opens a socket that is connected to nothing.
fn open_socket() -> io::Result<CloseOnFork<UnixDatagram>> {
    UnixDatagram::unbound().map(CloseOnFork::new)
}
