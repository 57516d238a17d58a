//! The lock of an endpoint's state, and that of a completion queue's ring. Every post and every poll takes
//! such a lock.
//!
//! The lock is held for some hundred nanoseconds. A thread that finds it held checks it for about a
//! microsecond, and then sleeps on a futex. Releasing a lock usually means an atomic read-modify-write
//! operation that also checks for sleepers, and costs as much as the work under the lock. This lock is
//! released by a store, and the sleepers are counted in a word of their own, which the releasing thread only
//! loads. The processor may do the load before the store. So a thread that goes to sleep at this moment may
//! not be woken. For this case, no sleep is longer than [`SLEEP_MAX`]. If the process has one thread, or
//! the application serialises its calls, taking the lock needs no atomic read-modify-write operation.
//!
//! A thread that reads a completion queue does not wait for the lock ([`lock_for_poll`]): another thread is
//! at the endpoint already. If a thread has slept in vain several times, polls leave the lock to it.

use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::{hint, thread};

use lock_api::{GuardSend, RawMutex};
use rustix::thread::futex;

/// A value to which one thread at a time has access.
pub(crate) type Lock<T> = lock_api::Mutex<RawLock, T>;

/// Access to the value of a locked [`Lock`].
pub(crate) type LockGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

/// The number of checks before a waiting thread sleeps, or a poll gives up. In this time, a cache line can
/// move between processors a few times, and most holders release the lock.
const SPINS_MAX: u32 = 64;

/// The longest sleep. After it, a thread checks the lock again, whether it was woken or not.
const SLEEP_MAX: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// After this many sleeps without getting the lock, a thread is starving.
const SLEEPS_MAX: u32 = 4;

/// The values of [`RawLock::state`].
const FREE: u32 = 0;
const HELD: u32 = 1;

/// The bit of [`RawLock::sleepers`] that says that a thread has been woken and has not checked the lock yet.
/// Until then no other thread is woken.
const WAKING: u32 = 1 << 31;

/// The bit of [`RawLock::sleepers`] that says that a thread is starving.
const STARVING: u32 = 1 << 30;

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
    /// [`FREE`] or [`HELD`]. Threads sleep on this word.
    state: AtomicU32,
    /// The number of threads that sleep or are about to, and the bits [`WAKING`] and [`STARVING`].
    sleepers: AtomicU32,
    /// Whether plain reads and writes suffice, since the application serialises its threads.
    is_omitted: bool,
}

// SAFETY: `lock` returns only after `try_acquire` has found `state` free and set it to held. No other
// thread can do the same in between: the exchange is atomic, or the process has no other thread, or the
// application has promised (`Serialised`) that no other thread is here. A thread that is created while the
// lock is held sees `state` as held, since the store came before.
unsafe impl RawMutex for RawLock {
    const INIT: RawLock =
        RawLock { state: AtomicU32::new(FREE), sleepers: AtomicU32::new(0), is_omitted: false };

    type Guard = GuardSend;

    #[inline]
    fn lock(&self) -> GuardSend {
        if !self.try_acquire() {
            debug_assert!(!self.is_omitted, "{CONCURRENT_USE}");
            self.wait_until_acquired();
        }
        GuardSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardSend> {
        self.try_acquire().then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _: GuardSend) {
        self.state.store(FREE, Ordering::Release);
        // The load may come before the store: see the module's documentation.
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        if sleepers != 0 {
            self.wake_sleeper(sleepers);
        }
    }

    fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }
}

impl RawLock {
    /// Takes the lock if it is free.
    #[inline]
    fn try_acquire(&self) -> bool {
        if self.is_omitted || is_single_threaded() {
            let was = self.state.load(Ordering::Relaxed);
            self.state.store(HELD, Ordering::Relaxed);
            was == FREE
        } else {
            #[cfg(test)]
            counting::count_lock_attempt();
            self.state.swap(HELD, Ordering::Acquire) == FREE
        }
    }

    /// Takes the lock if it is free now or soon.
    fn try_acquire_by_spinning(&self) -> bool {
        for _ in 0..SPINS_MAX {
            if !self.is_locked() && self.try_acquire() {
                return true;
            }
            hint::spin_loop();
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn wait_until_acquired(&self) {
        if self.try_acquire_by_spinning() {
            return;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut sleeps = 0_u32;
        let mut is_starving = false;
        while !self.try_acquire() {
            // Each result means the same: check again.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, HELD, sleep_max());
            self.sleepers.fetch_and(!WAKING, Ordering::Relaxed);
            if self.try_acquire_by_spinning() {
                break;
            }
            sleeps += 1;
            if sleeps >= SLEEPS_MAX {
                // Again after each sleep, since another thread that has starved clears the bit.
                self.sleepers.fetch_or(STARVING, Ordering::Relaxed);
                is_starving = true;
            }
        }
        if is_starving {
            self.sleepers.fetch_and(!STARVING, Ordering::Relaxed);
        }
        self.sleepers.fetch_and(!WAKING, Ordering::Relaxed);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes a thread, unless one is being woken. `sleepers` is the value that the caller has read.
    #[cold]
    #[inline(never)]
    fn wake_sleeper(&self, sleepers: u32) {
        let is_waking = |sleepers: u32| sleepers & WAKING != 0;
        if is_waking(sleepers) || is_waking(self.sleepers.fetch_or(WAKING, Ordering::Relaxed)) {
            return;
        }
        if futex::wake(&self.state, futex::Flags::PRIVATE, 1) != Ok(1) {
            // The thread was not asleep yet. If it still falls asleep, the next release wakes it.
            self.sleepers.fetch_and(!WAKING, Ordering::Relaxed);
        }
    }

    fn has_starving_thread(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) & STARVING != 0
    }
}

/// The longest sleep of this thread.
#[cfg(not(test))]
const fn sleep_max() -> Option<&'static futex::Timespec> {
    Some(&SLEEP_MAX)
}

#[cfg(test)]
use tests::sleep_max;

/// Whether threads sleep, or have been woken and wait for a core.
pub(crate) fn has_sleepers<T>(lock: &Lock<T>) -> bool {
    // SAFETY: this only reads the lock, and does not release it.
    unsafe { lock.raw() }.sleepers.load(Ordering::Relaxed) != 0
}

/// Takes the lock for a poll, which another thread may have made unnecessary. Returns `None` if another
/// thread holds the lock for longer than the poll spins, or if a thread is starving.
#[inline]
pub(crate) fn lock_for_poll<T>(lock: &Lock<T>) -> Option<LockGuard<'_, T>> {
    // SAFETY: this only reads the lock, and does not release it.
    let raw = unsafe { lock.raw() };
    match lock.try_lock() {
        Some(guard) if !raw.has_starving_thread() => Some(guard),
        taken => {
            drop(taken);
            lock_for_contended_poll(lock, raw)
        }
    }
}

#[cold]
#[inline(never)]
fn lock_for_contended_poll<'a, T>(lock: &'a Lock<T>, raw: &RawLock) -> Option<LockGuard<'a, T>> {
    debug_assert!(!raw.is_omitted, "{CONCURRENT_USE}");
    if raw.has_starving_thread() {
        // The starving thread may need this core.
        thread::yield_now();
        return None;
    }
    (0..SPINS_MAX).find_map(|_| {
        hint::spin_loop();
        if lock.is_locked() { None } else { lock.try_lock() }
    })
}

/// The message of the assertion that no thread finds a left-out lock held.
const CONCURRENT_USE: &str = "an object of a domain without locks is used by two at once";

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
    use std::cell::Cell;
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};
    use std::{fs, process};

    use rustix::thread::gettid;

    use super::*;

    /// How long a test waits before it fails: far longer than any event takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    thread_local! {
        /// Whether this thread sleeps until it is woken.
        static SLEEPS_FOR_EVER: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn sleep_max() -> Option<&'static futex::Timespec> {
        (!SLEEPS_FOR_EVER.get()).then_some(&SLEEP_MAX)
    }

    /// Starts threads that take the lock while it is held, and sleep until they are woken. Returns when all
    /// are asleep. Each thread reports that it had the lock.
    fn start_sleepers(lock: &Arc<Lock<u32>>, count: usize) -> mpsc::Receiver<()> {
        let (taken, is_taken) = mpsc::channel();
        for _ in 0..count {
            let (lock, taken) = (lock.clone(), taken.clone());
            let (started, is_started) = mpsc::channel();
            thread::spawn(move || {
                SLEEPS_FOR_EVER.set(true);
                started.send(gettid()).expect("the test waits");
                *lock.lock() += 1;
                taken.send(()).expect("the test waits");
            });
            let thread = is_started.recv_timeout(PATIENCE).expect("it starts");
            let path = format!("/proc/{}/task/{}/stat", process::id(), thread.as_raw_nonzero());
            // The thread takes no other lock after the report, and so sleeps on this one.
            while !fs::read_to_string(&path).expect("it runs").contains(") S ") {
                thread::yield_now();
            }
        }
        is_taken
    }

    #[test]
    fn release_wakes_a_thread_that_sleeps_without_a_limit() {
        init_single_threaded_flag();
        let lock = Arc::new(Lock::new(0));
        let guard = lock.lock();
        let is_taken = start_sleepers(&lock, 1);
        drop(guard);
        is_taken.recv_timeout(PATIENCE).expect("the release wakes the thread");
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn each_woken_thread_wakes_the_next() {
        const SLEEPERS: u32 = 4;
        init_single_threaded_flag();
        let lock = Arc::new(Lock::new(0));
        let guard = lock.lock();
        let is_taken = start_sleepers(&lock, SLEEPERS as usize);
        drop(guard);
        for _ in 0..SLEEPERS {
            is_taken.recv_timeout(PATIENCE).expect("one release wakes all threads, one after the other");
        }
        assert_eq!(*lock.lock(), SLEEPERS);
    }

    #[test]
    fn woken_thread_that_finds_the_lock_taken_is_woken_again() {
        init_single_threaded_flag();
        let lock = Arc::new(Lock::new(0));
        let guard = lock.lock();
        let is_taken = start_sleepers(&lock, 1);
        // SAFETY: this only reads the lock.
        let raw = unsafe { lock.raw() };
        // As a release, but the lock stays taken: another thread has been faster.
        raw.wake_sleeper(raw.sleepers.load(Ordering::Relaxed));
        let begin = Instant::now();
        while raw.sleepers.load(Ordering::Relaxed) != 1 {
            assert!(begin.elapsed() < PATIENCE, "the thread does not wake");
            thread::yield_now();
        }
        drop(guard);
        // The thread may be on its way back to sleep at the release. Each release from now on wakes it.
        let begin = Instant::now();
        while is_taken.try_recv().is_err() {
            assert!(begin.elapsed() < PATIENCE, "no release wakes the thread");
            drop(lock.lock());
        }
        assert_eq!(*lock.lock(), 1);
    }

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
    fn sleeping_thread_gets_the_lock_after_its_release() {
        init_single_threaded_flag();
        let lock = Lock::new(0);
        thread::scope(|scope| {
            for round in 1..=20 {
                let guard = lock.lock();
                let sleeper = scope.spawn(|| *lock.lock() += 1);
                // SAFETY: this only reads the lock.
                let raw = unsafe { lock.raw() };
                while raw.sleepers.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                drop(guard);
                sleeper.join().unwrap();
                assert_eq!((*lock.lock(), raw.sleepers.load(Ordering::Relaxed)), (round, 0));
            }
        });
    }

    #[test]
    fn later_release_wakes_a_sleeper_that_was_not_asleep_at_the_first() {
        let lock = Lock::new(());
        // SAFETY: this changes only the count of sleepers.
        let raw = unsafe { lock.raw() };
        // A thread that has counted itself, but does not sleep yet.
        raw.sleepers.store(1, Ordering::Relaxed);
        drop(lock.lock());
        assert_eq!(raw.sleepers.load(Ordering::Relaxed), 1, "no thread was woken, so none is waking");
    }

    #[test]
    fn poll_leaves_the_lock_to_a_starving_thread() {
        init_single_threaded_flag();
        let lock = Lock::new(());
        thread::scope(|scope| {
            let guard = lock.lock();
            scope.spawn(|| drop(lock.lock()));
            // SAFETY: this only reads the lock.
            let raw = unsafe { lock.raw() };
            while !raw.has_starving_thread() {
                thread::yield_now();
            }
            assert!(lock_for_poll(&lock).is_none(), "held");
            drop(guard);
            while lock_for_poll(&lock).is_none() {}
            assert!(!raw.has_starving_thread(), "the poll was before the starving thread");
        });
    }

    #[test]
    fn poll_gives_up_while_another_thread_holds_the_lock() {
        let lock = Lock::new(());
        let guard = lock.lock();
        assert!(lock_for_poll(&lock).is_none());
        drop(guard);
        assert!(lock_for_poll(&lock).is_some());
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
