//! The atomics, fences and mutexes of the handshake between threads that sleep and threads that wake
//! them. They come from the standard library and parking_lot, or from loom.
//!
//! If an access of one thread pairs with an access of another, both have a comment `SYNC POINT` with the
//! same name:
//!
//! - sleep: a thread about to sleep arms the doorbell, fences, and checks for events. The other side makes
//!   its change, fences, and checks whether the doorbell is armed.
//! - threshold: a thread changes a counter, then reads its threshold. The other side sets the threshold,
//!   then reads the counter.
//! - turn: a thread leaves a note of work to carry out, fences, and tries to get the turn. The thread
//!   that has the turn gives it back, fences, and checks for notes.
//! - join: a thread that joins sleepers locks the mutex under which they have armed the doorbell, and
//!   reads the doorbell. The other side makes a change, as for sleep.
//!
//! At least one side sees the other's change, so no thread sleeps through a change. If the check takes
//! the lock under which the change was made, that lock replaces the fences.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
pub(crate) use loom::thread::yield_now;
#[cfg(not(all(test, loom)))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::thread::yield_now;

#[cfg(all(test, loom))]
pub(crate) use self::modelled::{Mutex, ReentrantMutex};

/// A mutex without data that its owner may lock again.
#[cfg(not(all(test, loom)))]
pub(crate) type ReentrantMutex = parking_lot::ReentrantMutex<()>;

/// A fence for loom between two sequentially consistent accesses whose order other threads rely on: loom
/// models such accesses as acquire and release, and so needs the fence.
#[inline(always)]
pub(crate) fn fence_for_loom() {
    #[cfg(all(test, loom))]
    fence(Ordering::SeqCst);
}

#[cfg(all(test, loom))]
mod modelled {
    use std::sync::PoisonError;

    use loom::sync::MutexGuard;
    use loom::thread::{self, ThreadId};

    /// Loom's mutex with the interface of parking_lot's.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model ends with the first panic")
        }
    }

    /// Loom's mutex, which its owner may lock again.
    #[derive(Debug, Default)]
    pub(crate) struct ReentrantMutex {
        lock: loom::sync::Mutex<()>,
        /// The thread that holds the lock. A thread only compares this with its own id, so loom need not
        /// model it.
        owner: std::sync::Mutex<Option<ThreadId>>,
    }

    pub(crate) struct ReentrantMutexGuard<'a> {
        mutex: &'a ReentrantMutex,
        /// The guard of the outermost lock.
        guard: Option<MutexGuard<'a, ()>>,
    }

    impl ReentrantMutex {
        pub(crate) fn is_owned_by_current_thread(&self) -> bool {
            *self.lock_owner() == Some(thread::current().id())
        }

        pub(crate) fn lock(&self) -> ReentrantMutexGuard<'_> {
            if self.is_owned_by_current_thread() {
                return ReentrantMutexGuard { mutex: self, guard: None };
            }
            self.take_ownership(self.lock.lock().expect("a model ends with the first panic"))
        }

        pub(crate) fn try_lock(&self) -> Option<ReentrantMutexGuard<'_>> {
            self.lock.try_lock().ok().map(|guard| self.take_ownership(guard))
        }

        fn take_ownership<'a>(&'a self, guard: MutexGuard<'a, ()>) -> ReentrantMutexGuard<'a> {
            *self.lock_owner() = Some(thread::current().id());
            ReentrantMutexGuard { mutex: self, guard: Some(guard) }
        }

        fn lock_owner(&self) -> std::sync::MutexGuard<'_, Option<ThreadId>> {
            self.owner.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Drop for ReentrantMutexGuard<'_> {
        fn drop(&mut self) {
            if self.guard.is_some() {
                *self.mutex.lock_owner() = None;
            }
        }
    }
}
