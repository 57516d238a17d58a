//! The lock of an endpoint's state, and that of a completion queue's ring. Every post and every poll takes
//! such a lock.
//!
//! The lock is held for some hundred nanoseconds. Releasing a lock that puts waiting threads to sleep would
//! cost as much as the work under the lock. This lock is released by a store, and waiting threads yield the
//! processor. If the process has one thread, or the application serialises its calls, taking the lock needs
//! no atomic read-modify-write operation.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::{hint, thread};

use lock_api::{GuardSend, RawMutex};

/// A value to which one thread at a time has access.
pub(crate) type Lock<T> = lock_api::Mutex<RawLock, T>;

/// Access to the value of a locked [`Lock`].
pub(crate) type LockGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

/// The number of checks before a waiting thread yields. In this time, a cache line can move between
/// processors a few times.
const SPINS_MAX: u32 = 64;

/// Whether the locks of a domain's objects are taken. Each lock is created with this choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locking {
    Taken,
    /// Taking a lock needs no atomic exchange.
    Omitted(Serialised),
}

/// The application's promise about a lock that is created with this value: no two threads use the data of
/// the lock at once. Each thread sees all changes by threads that used the data before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Serialised(());

impl Serialised {
    /// Promises that the application serialises its threads.
    ///
    /// # Safety
    ///
    /// No two threads may use the data of such a lock at once. Each thread must see all changes by the
    /// threads before it.
    pub(crate) const unsafe fn promise() -> Serialised {
        Serialised(())
    }
}

impl Locking {
    /// Creates a lock of this kind.
    pub(crate) fn new_lock<T>(self, value: T) -> Lock<T> {
        Lock::from_raw(RawLock { is_omitted: self != Locking::Taken, ..RawLock::INIT }, value)
    }
}

/// The lock without its value.
#[derive(Debug)]
pub(crate) struct RawLock {
    is_locked: AtomicBool,
    /// Whether plain reads and writes suffice, since the application serialises its threads.
    is_omitted: bool,
}

// SAFETY: `lock` returns only after `try_acquire` has found `is_locked` false and set it to true. No other
// thread can do the same in between: the exchange is atomic, or the process has no other thread, or the
// application has promised (`Serialised`) that no other thread is here. A thread that is created while the
// lock is held sees `is_locked` as true, since the store came before.
unsafe impl RawMutex for RawLock {
    const INIT: RawLock = RawLock { is_locked: AtomicBool::new(false), is_omitted: false };

    type Guard = GuardSend;

    #[inline]
    fn lock(&self) -> GuardSend {
        if !self.try_acquire() {
            debug_assert!(!self.is_omitted, "an object of a domain without locks is used by two at once");
            self.spin_until_acquired();
        }
        GuardSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardSend> {
        self.try_acquire().then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _: GuardSend) {
        self.is_locked.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Relaxed)
    }
}

impl RawLock {
    /// Takes the lock if it is free.
    #[inline]
    fn try_acquire(&self) -> bool {
        if self.is_omitted || is_single_threaded() {
            let was_locked = self.is_locked.load(Ordering::Relaxed);
            self.is_locked.store(true, Ordering::Relaxed);
            !was_locked
        } else {
            #[cfg(test)]
            counting::count_lock_attempt();
            !self.is_locked.swap(true, Ordering::Acquire)
        }
    }

    #[cold]
    fn spin_until_acquired(&self) {
        let mut spins = 0;
        loop {
            while self.is_locked.load(Ordering::Relaxed) {
                spins += 1;
                if spins < SPINS_MAX {
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
            if self.try_acquire() {
                return;
            }
        }
    }
}

/// Stands in for the C library's flag if the library has none. The value 0 says that there may be other
/// threads.
static UNKNOWN: AtomicU8 = AtomicU8::new(0);

/// The C library's flag that the process has only one thread.
static SINGLE_THREADED: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());

/// Finds the flag by which the C library says that the process has only one thread. Before the first call,
/// every lock assumes several threads.
pub(crate) fn init_single_threaded_flag() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        // SAFETY: the name is a C string. A library without this variable returns null; glibc has it
        // since version 2.32.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        if !found.is_null() {
            SINGLE_THREADED.store(found.cast(), Ordering::Relaxed);
        }
    });
}

/// Whether this is certainly the only thread of the process.
#[inline]
fn is_single_threaded() -> bool {
    // SAFETY: the pointer is to `UNKNOWN` or to a `char` of the C library, and both live as long as the
    // process. The library changes its variable only when no other thread can read it: before it creates
    // a second thread, and after the last other thread has ended.
    unsafe { &*SINGLE_THREADED.load(Ordering::Relaxed) }.load(Ordering::Relaxed) != 0
}

/// Counts attempts to take locks, for tests of paths that take none.
#[cfg(test)]
pub(crate) mod counting {
    use std::cell::Cell;

    thread_local! {
        static ATTEMPTS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count_lock_attempt() {
        ATTEMPTS.set(ATTEMPTS.get() + 1);
    }

    /// Returns how often this thread has tried to take a lock.
    pub(crate) fn lock_attempts_of_thread() -> u64 {
        ATTEMPTS.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_excludes_other_threads() {
        init_single_threaded_flag();
        let count = Lock::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut count = count.lock();
                        // Increment in two steps, so that two threads at once would lose counts.
                        let seen = *count;
                        hint::black_box(&count);
                        *count = seen + 1;
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 40_000);
    }

    #[test]
    fn held_lock_cannot_be_taken_again() {
        let lock = Lock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn unlocked_domain_counts_no_locks_and_detects_concurrent_use() {
        // SAFETY: no other thread has the lock.
        let locking = Locking::Omitted(unsafe { Serialised::promise() });
        let lock = locking.new_lock(());
        let before = counting::lock_attempts_of_thread();
        for _ in 0..10 {
            drop(lock.lock());
        }
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert_eq!(counting::lock_attempts_of_thread(), before);
        thread::scope(|scope| {
            scope.spawn(|| {
                let before = counting::lock_attempts_of_thread();
                drop(Locking::Taken.new_lock(()).lock());
                assert_eq!(counting::lock_attempts_of_thread(), before + 1);
            });
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "is used by two at once")]
    fn second_use_of_a_held_unlocked_lock_panics() {
        // SAFETY: no other thread has the lock.
        let lock = Locking::Omitted(unsafe { Serialised::promise() }).new_lock(());
        let _guard = lock.lock();
        drop(lock.lock());
    }

    #[test]
    fn process_with_two_threads_is_not_single_threaded() {
        init_single_threaded_flag();
        thread::scope(|scope| {
            scope.spawn(|| assert!(!is_single_threaded()));
            assert!(!is_single_threaded());
        });
    }
}
