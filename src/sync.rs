//! The atomics, fences and mutexes for the handshake between sleeping threads and the threads that wake
//! them. They come from the standard library and parking_lot, or from loom.
//!
//! If an access of one thread pairs with an access of another thread, a comment `SYNC POINT` with the same
//! name marks both:
//!
//! - sleep: a thread that will sleep arms the doorbell, fences, and checks for events. The other thread
//!   makes its change, fences, and checks whether the doorbell is armed.
//! - threshold: one thread changes a counter, then reads its threshold. The other thread sets the threshold,
//!   then reads the counter.
//! - turn: one thread leaves a note of work, fences, and tries to get the turn. The thread that has the turn
//!   gives it back, fences, and checks for notes.
//! - join: a thread that joins sleepers takes the mutex under which they have armed the doorbell, and reads
//!   the doorbell. The other thread makes a change, as for sleep.
//!
//! At least one of the two threads sees the other's change, so no thread sleeps through a change. No fences
//! are needed if both threads hold the same lock, one for the change and the other for the check.

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

/// A fence for loom, between two sequentially consistent accesses whose order matters to other threads. Loom
/// only models such accesses as acquire and release.
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

    /// Loom's mutex. The thread that holds it may lock it again.
    #[derive(Debug, Default)]
    pub(crate) struct ReentrantMutex {
        lock: loom::sync::Mutex<()>,
        /// The thread that holds the lock. Loom need not model this, since a thread only compares it with
        /// its own id.
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
