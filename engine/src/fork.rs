//! Endpoints after `fork(2)`, for transports: a child cannot use its parent's endpoints.
//!
//! A child has copies of its parent's descriptors. While the child keeps them, a peer does not see the
//! parent's sockets hang up, and the child's calls on them affect the parent. So the child closes its copies
//! at once, in a handler that `fork(2)` calls. Each object of an endpoint knows whether this process created
//! or inherited it.
//!
//! ```
//! use std::net::TcpListener;
//!
//! use homespun_engine::fork::{CloseOnFork, ForkGeneration};
//!
//! let generation = ForkGeneration::current();
//! let listener = CloseOnFork::new(TcpListener::bind("127.0.0.1:0").unwrap());
//! assert!(listener.local_addr().is_ok() && !generation.is_in_forked_child());
//! ```

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::hint;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many forks lie between this process and the first process that loaded this library.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The descriptors that a child closes, each with the generation that opened it. A child closes only its
/// parent's generation: its parent has closed the older descriptors, and may have reused their numbers.
static REGISTRY: Registry =
    Registry { is_locked: AtomicBool::new(false), descriptors: UnsafeCell::new(BTreeMap::new()) };

/// The generation of the process that created an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkGeneration(u32);

impl ForkGeneration {
    /// Returns the generation of the calling process.
    pub fn current() -> ForkGeneration {
        install_handlers();
        ForkGeneration(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the calling process is a forked child of the process that created the object.
    #[inline]
    pub fn is_in_forked_child(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

/// An object with one descriptor, which a forked child closes at once. In the child the object must not be
/// used, since its descriptor's number may belong to another one by then.
#[derive(Debug)]
pub struct CloseOnFork<T: AsRawFd> {
    object: ManuallyDrop<T>,
    generation: ForkGeneration,
}

impl<T: AsRawFd> CloseOnFork<T> {
    /// Takes an object, whose descriptor must stay the same.
    pub fn new(object: T) -> CloseOnFork<T> {
        let generation = ForkGeneration::current();
        REGISTRY.with_locked_map(|descriptors| descriptors.insert(object.as_raw_fd(), generation));
        CloseOnFork { object: ManuallyDrop::new(object), generation }
    }
}

impl<T: AsRawFd> Deref for CloseOnFork<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: AsRawFd> DerefMut for CloseOnFork<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T: AsRawFd + AsFd> AsFd for CloseOnFork<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.object.as_fd()
    }
}

impl<T: AsRawFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        if self.generation.is_in_forked_child() {
            // The fork handler has closed the descriptor, and its number may belong to another one by now.
            return;
        }
        REGISTRY.with_locked_map(|descriptors| descriptors.remove(&self.object.as_raw_fd()));
        // SAFETY: the field is not used again, because its owner ends here.
        drop(unsafe { ManuallyDrop::take(&mut self.object) });
    }
}

/// A map behind a lock that can be held across a fork and then released in both parent and child. The locks
/// of the standard library cannot. A thread holds the lock only for an insertion, a removal or a fork.
struct Registry {
    is_locked: AtomicBool,
    descriptors: UnsafeCell<BTreeMap<RawFd, ForkGeneration>>,
}

// SAFETY: `descriptors` is used only between `lock` and `unlock`, by one thread at a time.
unsafe impl Sync for Registry {}

impl Registry {
    fn with_locked_map<T>(&self, work: impl FnOnce(&mut BTreeMap<RawFd, ForkGeneration>) -> T) -> T {
        self.lock();
        // SAFETY: this thread holds the lock, so no other reference exists, and `work` can reach the map only
        // through its argument.
        let result = work(unsafe { &mut *self.descriptors.get() });
        self.unlock();
        result
    }

    fn lock(&self) {
        while self.is_locked.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
    }

    fn unlock(&self) {
        self.is_locked.store(false, Ordering::Release);
    }
}

fn install_handlers() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the handlers are functions that live as long as the code that calls `fork`. They do only
        // what a child of a process with many threads may do: they close descriptors, and access memory that
        // no other thread can have left half changed, since the lock is held across the fork.
        let result = unsafe {
            libc::pthread_atfork(
                Some(lock_before_fork),
                Some(unlock_in_parent),
                Some(close_inherited_fds_in_child),
            )
        };
        if result != 0 {
            tracing::warn!("forked children will keep connections open: pthread_atfork failed");
        }
    });
}

extern "C" fn lock_before_fork() {
    REGISTRY.lock();
}

extern "C" fn unlock_in_parent() {
    REGISTRY.unlock();
}

extern "C" fn close_inherited_fds_in_child() {
    let parent = ForkGeneration(GENERATION.fetch_add(1, Ordering::Relaxed));
    // SAFETY: `lock_before_fork` took the lock, and the child has one thread.
    for (&fd, &generation) in unsafe { &*REGISTRY.descriptors.get() } {
        if generation == parent {
            // SAFETY: this is the child's copy of the descriptor. Its owner checks the generation and does
            // not use it in the child.
            unsafe { libc::close(fd) };
        }
    }
    // The entries stay: removing one frees memory, which is not allowed in a fork handler.
    REGISTRY.unlock();
}
