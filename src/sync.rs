//! Atomics, fences and mutexes of the handshake between threads that sleep and threads that wake them: those
//! of the standard library and of parking_lot, or of loom.
//!
//! If accesses of two threads pair, both carry a comment `SYNC POINT` with the same name:
//!
//! | name | one side | the other side |
//! | --- | --- | --- |
//! | sleep | a thread about to sleep arms the doorbell, fence, looks | a thread that changes something does so, fence, looks whether the doorbell is armed |
//! | threshold | a change of a counter is made before its threshold is read | a threshold is set before the counter is read |
//! | turn | a thread leaves a note that there is something to carry out, fence, tries to get the turn | the thread that has the turn gives it back, fence, looks for notes |
//! | join | a thread that joins sleepers reads the doorbell under the lock under which they have armed it | a thread that changes something, as above |
//!
//! At least one side sees what the other has done, so that no thread sleeps through it. Where the look takes
//! the lock under which the change was made, that lock does what the fences do.

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

/// A mutex that its owner may lock again, with nothing in it.
#[cfg(not(all(test, loom)))]
pub(crate) type ReentrantMutex = parking_lot::ReentrantMutex<()>;

/// Stands between two sequentially consistent accesses whose order other threads rely on. Loom
/// takes them for an acquire and a release, and needs a fence.
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

    /// Loom's mutex, to be used as that of parking_lot is.
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
        /// A thread compares it with itself alone, so it needs no model.
        owner: std::sync::Mutex<Option<ThreadId>>,
    }

    pub(crate) struct ReentrantMutexGuard<'a> {
        mutex: &'a ReentrantMutex,
        /// Of the outermost lock.
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
