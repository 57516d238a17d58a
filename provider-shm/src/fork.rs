//! Endpoints after `fork(2)`: a child cannot use its parent's endpoints.
//!
//! A child has copies of its parent's descriptors. While the child keeps them, a peer does not see the
//! parent's sockets hang up, and the child's calls on them affect the parent. So the child closes its copies
//! at once, in a handler that `fork(2)` calls. Each object of an endpoint knows whether this process created
//! or inherited it.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::hint;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
pub(crate) struct ForkGeneration(u32);

impl ForkGeneration {
    pub(crate) fn current() -> ForkGeneration {
        install_handlers();
        ForkGeneration(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the calling process is a forked child of the process that created the object.
    #[inline]
    pub(crate) fn is_in_forked_child(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

/// A descriptor that a forked child closes at once.
#[derive(Debug)]
pub(crate) struct CloseOnForkFd {
    fd: ManuallyDrop<OwnedFd>,
    generation: ForkGeneration,
}

impl CloseOnForkFd {
    pub(crate) fn new(fd: OwnedFd) -> CloseOnForkFd {
        let generation = ForkGeneration::current();
        REGISTRY.with_locked_map(|descriptors| descriptors.insert(fd.as_raw_fd(), generation));
        CloseOnForkFd { fd: ManuallyDrop::new(fd), generation }
    }
}

impl AsFd for CloseOnForkFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for CloseOnForkFd {
    fn drop(&mut self) {
        if self.generation.is_in_forked_child() {
            // The fork handler has closed the descriptor, and its number may belong to another one by now.
            return;
        }
        REGISTRY.with_locked_map(|descriptors| descriptors.remove(&self.fd.as_raw_fd()));
        // SAFETY: the field is not used again, because its owner ends here.
        drop(unsafe { ManuallyDrop::take(&mut self.fd) });
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
