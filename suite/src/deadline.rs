//! The time for which a test waits.

use std::cell::RefCell;
use std::mem;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for an event. No test depends on how soon the event comes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many milliseconds a [`Deadline`] allows.
static DEADLINE_MS: AtomicU64 = AtomicU64::new(PATIENCE.as_millis() as u64);

/// Sets how long the tests of this process wait for an event that a provider owes: less than [`PATIENCE`], if
/// many may never come.
pub fn set_patience(patience: Duration) {
    DEADLINE_MS.store(patience.as_millis() as u64, Ordering::Relaxed);
}

/// How long the tests of this process wait.
pub(super) fn patience() -> Duration {
    Duration::from_millis(DEADLINE_MS.load(Ordering::Relaxed))
}

/// How long a test yields while it waits. Then it sleeps between two looks: what takes so long comes late or
/// never, and other tests have work for the core.
const YIELDS_FOR: Duration = Duration::from_millis(50);

/// How long it sleeps: a network that moves a piece of a message at each look needs thousands of them.
const PAUSE: Duration = Duration::from_micros(20);

/// The time at which a test stops waiting.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    begin: Instant,
    end: Instant,
}

impl Deadline {
    /// A deadline from now on.
    #[expect(clippy::new_without_default, reason = "each call gives a different moment")]
    pub fn new() -> Deadline {
        let begin = Instant::now();
        Deadline { begin, end: begin + patience() }
    }

    /// Yields to other threads or sleeps briefly, and fails the test after the deadline.
    #[track_caller]
    pub fn yield_or_panic(self, what: &str) {
        self.yield_or_panic_with(|| what.to_owned());
    }

    /// As [`yield_or_panic`](Self::yield_or_panic), but makes the description only on failure.
    #[track_caller]
    pub fn yield_or_panic_with(self, what: impl FnOnce() -> String) {
        let now = Instant::now();
        if now >= self.end {
            panic!("no progress while waiting for {}", what());
        }
        if now - self.begin < YIELDS_FOR { thread::yield_now() } else { thread::sleep(PAUSE) }
    }
}

/// Calls `poll` until it finds something. Fails the test after the deadline.
#[track_caller]
pub(crate) fn poll_until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        deadline.yield_or_panic(what);
    }
}

thread_local! {
    /// How often the driver beside this thread has made progress, and how often it had when this was asked.
    static DRIVER: RefCell<Option<(Arc<AtomicU64>, u64)>> = const { RefCell::new(None) };
}

/// Returns whether the [driver](run_while_driving) beside this thread, if there is one, has made progress
/// since the last call.
pub(crate) fn take_driver_progress() -> bool {
    DRIVER.with_borrow_mut(|driver| match driver {
        Some((rounds, seen)) => {
            let now = rounds.load(Ordering::Relaxed);
            mem::replace(seen, now) != now
        }
        None => true,
    })
}

/// Calls `close` in a thread of its own, and `progress` meanwhile: a close may wait for what others drive.
#[track_caller]
pub(crate) fn run_while_driving(close: impl FnOnce() + Send + 'static, progress: impl Fn()) {
    let deadline = Deadline::new();
    let rounds = Arc::new(AtomicU64::new(0));
    let driver = Some((rounds.clone(), 0));
    let closing = thread::spawn(|| {
        DRIVER.set(driver);
        close();
    });
    while !closing.is_finished() {
        progress();
        rounds.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
        if Instant::now() >= deadline.end {
            assert!(thread::panicking(), "no progress while waiting for the end of a close");
            return;
        }
    }
    if let Err(panic) = closing.join()
        && !thread::panicking()
    {
        resume_unwind(panic);
    }
}
