//! Waits that a signal ends as it ends a `read(2)`: docs/decisions/rpma-signals.md.
//!
//! `poll(2)` fails with EINTR after any handler, and does not say which. So signals whose handlers have
//! `SA_RESTART` are blocked meanwhile if there are others, too. A `signalfd(2)` tells when one is pending.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A signal handler without `SA_RESTART` has run in this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signal handler without SA_RESTART has run")]
pub struct Interrupted;

/// Waits until one of the descriptors is readable. May return earlier, if the system refuses the wait.
///
/// # Errors
///
/// [`Interrupted`] if a signal handler has run in this thread that was installed without `SA_RESTART`. Other
/// handlers run, and the wait goes on, as in a call of `read(2)`. If there are handlers of both kinds, and no
/// descriptor is left to tell them apart, any handler ends the wait. If there is no handler any more, the one
/// that has run has removed itself, and the wait ends, too.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>]) -> Result<(), Interrupted> {
    loop {
        let handled = HandledSignals::of_thread(AGE_MAX_MS);
        let pending = if handled.restarting.is_empty() || handled.ending.is_empty() {
            None
        } else {
            // Without a descriptor, every handler ends the wait.
            handled.restarting.open_descriptor()
        };
        let mut polled: Vec<_> =
            descriptors.iter().copied().chain(pending.as_ref().map(AsFd::as_fd)).map(poll_entry).collect();
        let blocked =
            if pending.is_some() { handled.blocked.union(handled.restarting) } else { handled.blocked };
        match poll(&mut polled, None, blocked) {
            // Blocked signals have no part in it.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if !handled.ending.is_empty() {
                    return Err(Interrupted);
                }
                // The handlers may have changed since they were read.
                let now = HandledSignals::of_thread(0);
                // A handler with `SA_RESETHAND` is gone once it has run, so it may never have been read. It
                // is the one that has run if there is no other.
                let none_restarts = handled.restarting.union(now.restarting).is_empty();
                if !now.ending.is_empty() || none_restarts {
                    return Err(Interrupted);
                }
            }
            Ok(()) if polled[..descriptors.len()].iter().all(|entry| entry.revents == 0) => {
                // Only signals with `SA_RESTART` are let through, so the handlers that run are theirs.
                let handled = HandledSignals::of_thread(0);
                let _ = poll(&mut [], Some(NO_TIME), handled.blocked.union(handled.ending));
            }
            Ok(()) | Err(_) => return Ok(()),
        }
    }
}

/// The signals that have a handler and are not blocked in this thread, but for [`FAULTS`].
#[derive(Debug)]
struct HandledSignals {
    /// The signals that are blocked in this thread.
    blocked: SignalSet,
    /// Those whose handlers were installed with `SA_RESTART`.
    restarting: SignalSet,
    /// The others.
    ending: SignalSet,
}

impl HandledSignals {
    /// Returns the handlers as they were at most `max_age_ms` ago.
    fn of_thread(max_age_ms: u64) -> HandledSignals {
        let now_ms = monotonic_ms();
        let (restarting, ending);
        if READ_AT_MS.load(Ordering::Acquire).saturating_add(max_age_ms) <= now_ms {
            (restarting, ending) = read_handlers();
            RESTARTING.store(restarting.0, Ordering::Relaxed);
            ENDING.store(ending.0, Ordering::Relaxed);
            READ_AT_MS.store(now_ms, Ordering::Release);
        } else {
            // The parts may be of two readers, both of whom have read them lately.
            restarting = SignalSet(RESTARTING.load(Ordering::Relaxed));
            ending = SignalSet(ENDING.load(Ordering::Relaxed));
        }
        let blocked = SignalSet::blocked_in_thread();
        let unblocked = |signals: SignalSet| SignalSet(signals.0 & !blocked.0);
        HandledSignals { blocked, restarting: unblocked(restarting), ending: unblocked(ending) }
    }
}

/// Signals whose handlers are not looked at. An instruction of the thread raises them, and the thread
/// executes none while it sleeps. Rust's standard library handles two of them without `SA_RESTART`, so every
/// program of Rust would seem to have a handler that ends the wait.
const FAULTS: [i32; 6] =
    [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS];

/// How old the knowledge of the handlers may be, in milliseconds. To read it takes a system call for each
/// signal.
const AGE_MAX_MS: u64 = 10;

/// The handlers of the process, and when they were read.
static RESTARTING: AtomicU64 = AtomicU64::new(0);
static ENDING: AtomicU64 = AtomicU64::new(0);
static READ_AT_MS: AtomicU64 = AtomicU64::new(0);

fn monotonic_ms() -> u64 {
    let mut now = NO_TIME;
    // SAFETY: the call writes to a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    // Counted from 1000, so that 0 is long ago.
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000 + 1000
}

/// Asks for the handlers of the process: those with `SA_RESTART`, and the others.
fn read_handlers() -> (SignalSet, SignalSet) {
    let (mut restarting, mut ending) = (SignalSet(0), SignalSet(0));
    for signal in (1..=SignalSet::LAST).filter(|signal| !FAULTS.contains(signal)) {
        match handler_flags(signal) {
            Some(flags) if flags & libc::SA_RESTART != 0 => restarting.insert(signal),
            Some(_) => ending.insert(signal),
            None => {}
        }
    }
    (restarting, ending)
}

/// Returns the flags with which the handler of a signal was installed.
fn handler_flags(signal: i32) -> Option<i32> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: the call writes to a local variable. It fails for the signals of the C library.
    let action = unsafe {
        if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) != 0 {
            return None;
        }
        action.assume_init()
    };
    let has_handler = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
    has_handler.then_some(action.sa_flags)
}

/// A set of signals, as the kernel has it: a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SignalSet(u64);

impl SignalSet {
    const LAST: i32 = u64::BITS as i32;

    fn blocked_in_thread() -> SignalSet {
        let mut set = SignalSet(0);
        let no_change: *const SignalSet = ptr::null();
        // SAFETY: the call writes a set of this length to a local variable.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_BLOCK,
                no_change,
                &raw mut set,
                size_of::<SignalSet>(),
            )
        };
        set
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn insert(&mut self, signal: i32) {
        self.0 |= 1 << (signal - 1);
    }

    fn union(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 | other.0)
    }

    /// Opens a descriptor that is readable while one of the signals is pending for the thread that polls it.
    fn open_descriptor(self) -> Option<OwnedFd> {
        // SAFETY: the call reads a set of this length. What it returns is not owned otherwise.
        unsafe {
            let descriptor = libc::syscall(
                libc::SYS_signalfd4,
                -1,
                &raw const self,
                size_of::<SignalSet>(),
                libc::SFD_CLOEXEC,
            );
            (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor as i32))
        }
    }
}

const NO_TIME: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

fn poll_entry(descriptor: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Calls `ppoll(2)`, with these signals blocked meanwhile. The function of the C library would be a place
/// where `pthread_cancel(3)` ends the thread.
fn poll(entries: &mut [libc::pollfd], timeout: Option<libc::timespec>, blocked: SignalSet) -> io::Result<()> {
    let mut timeout = timeout;
    let timeout = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the kernel writes to the entries, and to the timeout, both of which this function may change.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            entries.as_mut_ptr(),
            entries.len(),
            timeout,
            &raw const blocked,
            size_of::<SignalSet>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::{PipeReader, Write, pipe};
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use super::*;

    /// How long a test waits for what must happen.
    const PATIENCE: Duration = Duration::from_secs(20);

    static HANDLER_RUNS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count_run(_: i32) {
        HANDLER_RUNS.fetch_add(1, Ordering::SeqCst);
    }

    /// Handlers, and what is known of them, belong to the process. So only one test at a time uses them.
    fn own_handlers() -> MutexGuard<'static, ()> {
        static OWNED: Mutex<()> = Mutex::new(());
        OWNED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn install(signal: i32, flags: i32) {
        // SAFETY: all fields of the structure may be 0, and the handler calls nothing that is not allowed.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count_run as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &raw const action, ptr::null_mut()), 0);
        }
    }

    /// Blocks the signals for which other tests may have installed handlers.
    fn block_all_but(signals: &[i32]) {
        // SAFETY: the calls read and write a local variable.
        unsafe {
            let mut blocked = MaybeUninit::uninit();
            libc::sigfillset(blocked.as_mut_ptr());
            for signal in signals.iter().chain(&FAULTS) {
                libc::sigdelset(blocked.as_mut_ptr(), *signal);
            }
            assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), ptr::null_mut()), 0);
        }
    }

    /// A thread that waits until a pipe is readable.
    struct Wait(JoinHandle<Result<(), Interrupted>>);

    impl Wait {
        /// Starts the thread, which lets only these signals in. Returns what it knows of their handlers, too.
        fn start(reader: PipeReader, signals: &'static [i32]) -> (Wait, HandledSignals) {
            let (told, telling) = mpsc::channel();
            let waiting = thread::spawn(move || {
                block_all_but(signals);
                told.send(HandledSignals::of_thread(0)).expect("the test listens");
                wait_readable(&[reader.as_fd()])
            });
            (Wait(waiting), telling.recv().expect("the thread tells it"))
        }

        /// Sends a signal, and waits until its handler has run or the thread has ended.
        fn send(&self, signal: i32) {
            let before = HANDLER_RUNS.load(Ordering::SeqCst);
            // SAFETY: the thread was not joined.
            unsafe { libc::pthread_kill(self.0.as_pthread_t(), signal) };
            let deadline = Instant::now() + PATIENCE;
            while HANDLER_RUNS.load(Ordering::SeqCst) == before && !self.0.is_finished() {
                assert!(Instant::now() < deadline, "signal {signal} is not handled");
                thread::sleep(Duration::from_millis(1));
            }
        }

        /// Sends signals until the wait ends. The first ones may come before the thread sleeps.
        fn end_by(self, signal: i32, mut before_each: impl FnMut()) -> Result<(), Interrupted> {
            let deadline = Instant::now() + PATIENCE;
            while !self.0.is_finished() {
                assert!(Instant::now() < deadline, "signal {signal} does not end the wait");
                before_each();
                self.send(signal);
                thread::sleep(Duration::from_millis(1));
            }
            self.0.join().expect("no panic")
        }
    }

    #[test]
    fn only_a_handler_without_sa_restart_ends_the_wait() {
        const RESTARTING: i32 = 40;
        const ENDING: i32 = 41;
        const BOTH: &[i32] = &[RESTARTING, ENDING];
        let _owned = own_handlers();
        install(RESTARTING, libc::SA_RESTART);
        for has_ending in [false, true] {
            let (reader, mut writer) = pipe().expect("a pipe");
            if has_ending {
                install(ENDING, 0);
            }
            let (waiting, handled) = Wait::start(reader, BOTH);
            assert!(!handled.restarting.is_empty());
            assert_eq!(handled.ending.is_empty(), !has_ending);
            for _ in 0..3 {
                waiting.send(RESTARTING);
                // Time in which a wait that must go on could end.
                thread::sleep(Duration::from_millis(1));
                assert!(!waiting.0.is_finished(), "{has_ending}");
            }
            writer.write_all(&[1]).expect("room in the pipe");
            assert_eq!(waiting.0.join().expect("no panic"), Ok(()), "{has_ending}");
        }
        let (reader, _writer) = pipe().expect("a pipe");
        let (waiting, _) = Wait::start(reader, BOTH);
        assert_eq!(waiting.end_by(ENDING, || {}), Err(Interrupted));
    }

    #[test]
    fn a_handler_that_removes_itself_after_its_installation_during_the_wait_ends_it() {
        const REMOVED: i32 = 42;
        let _owned = own_handlers();
        let (reader, _writer) = pipe().expect("a pipe");
        let (waiting, handled) = Wait::start(reader, &[REMOVED]);
        assert!(handled.restarting.is_empty() && handled.ending.is_empty());
        let ended = waiting.end_by(REMOVED, || install(REMOVED, libc::SA_RESETHAND));
        assert_eq!(ended, Err(Interrupted));
    }
}
