//! Transports after `fork(2)`: a child cannot use its parent's endpoints.
//!
//! A child has copies of its parent's descriptors. While the child keeps the copies, a peer does not see the
//! parent's sockets hang up, and calls on the copies affect the parent's connections. So the child closes
//! its copies at once, in a handler that `fork(2)` calls. Each object of an endpoint knows whether it was
//! created in this process or inherited from the parent.
//!
//! A transport keeps its descriptors in [`CloseOnFork`], and remembers the [`ForkGeneration`] in which it
//! was opened. In a forked child the transport touches none of its descriptors, and every link is down with
//! [`Denial::ForkedChild`](crate::transport::Denial::ForkedChild).

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::fmt;
use std::hint;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many forks lie between the first process that loaded this library and this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The descriptors that a child closes, each with the generation that opened it. A child closes only the
/// descriptors of its parent's generation. The parent has already closed older descriptors, so their numbers
/// may now name others.
static REGISTRY: Registry =
    Registry { is_locked: AtomicBool::new(false), descriptors: UnsafeCell::new(BTreeMap::new()) };

/// The generation of the process that created an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkGeneration(u32);

impl ForkGeneration {
    /// Returns the generation of this process.
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

/// The owner of a descriptor, such as a socket. A forked child closes its copy of the descriptor at once.
///
/// In a forked child nothing may use the owner, since its number may by then name another descriptor. In a
/// forked child, dropping a `CloseOnFork` does nothing. Do not replace the owner through `DerefMut`: the
/// descriptor of the new owner would not be registered, so forked children would keep that descriptor open.
pub struct CloseOnFork<T: AsRawFd> {
    owner: ManuallyDrop<T>,
    generation: ForkGeneration,
}

impl<T: AsRawFd> CloseOnFork<T> {
    /// Wraps an owner whose descriptor this process has opened, and registers the descriptor. `owner` must
    /// not merely borrow the descriptor.
    pub fn new(owner: T) -> CloseOnFork<T> {
        let generation = ForkGeneration::current();
        let fd = owner.as_raw_fd();
        REGISTRY.with_locked_map(|descriptors| descriptors.insert(fd, generation));
        CloseOnFork { owner: ManuallyDrop::new(owner), generation }
    }

    /// Whether the calling process is a forked child, which must not use the owner.
    pub fn is_in_forked_child(&self) -> bool {
        self.generation.is_in_forked_child()
    }
}

impl<T: AsRawFd> Deref for CloseOnFork<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        debug_assert!(!self.generation.is_in_forked_child(), "the descriptor belongs to the parent process");
        &self.owner
    }
}

impl<T: AsRawFd> DerefMut for CloseOnFork<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        debug_assert!(!self.generation.is_in_forked_child(), "the descriptor belongs to the parent process");
        &mut self.owner
    }
}

impl<T: AsRawFd + AsFd> AsFd for CloseOnFork<T> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: AsRawFd> fmt::Debug for CloseOnFork<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CloseOnFork").field(&self.owner.as_raw_fd()).finish()
    }
}

impl<T: AsRawFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        if self.generation.is_in_forked_child() {
            // The fork handler has closed the descriptor, and its number may now name another descriptor.
            return;
        }
        let fd = self.owner.as_raw_fd();
        REGISTRY.with_locked_map(|descriptors| descriptors.remove(&fd));
        // SAFETY: the field is not used again, because its owner ends here.
        drop(unsafe { ManuallyDrop::take(&mut self.owner) });
    }
}

/// A map behind a lock that a thread may hold during a fork: parent and child can both release it. Locks of
/// the standard library do not allow that.
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
        // SAFETY: the handlers stay mapped: they are part of the program, or of the plugin, which is linked
        // with `-z nodelete`. The child's handler does only what a forked child of a process with many
        // threads may do. It closes descriptors, and reads a map. No thread was changing the map, since the
        // lock is held across the fork.
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
    // The entries stay: to remove an entry frees memory, and a fork handler must not free memory.
    REGISTRY.unlock();
}
