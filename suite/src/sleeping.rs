//! Functions that wait for completion queues, counters and wait sets as an application does, by each kind of
//! wait object.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homespun::wait::Waitable;
use homespun::{CompletionQueue, Counter, Errno, ReadError, WaitObject, WaitSet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use super::deadline::PATIENCE;
use super::deadline::{Deadline, poll_until};
use super::ended::{Ended, poll_completion};
use super::posix;

/// The wait objects that a queue can have.
pub const WAIT_OBJECTS: [WaitObject; 4] =
    [WaitObject::Unspec, WaitObject::Fd, WaitObject::MutexCond, WaitObject::Yield];

/// The wait objects on which an application sleeps.
pub const BLOCKING_WAIT_OBJECTS: [WaitObject; 3] =
    [WaitObject::Unspec, WaitObject::Fd, WaitObject::MutexCond];

/// Sleeps on the queue's wait object until the next operation ends.
#[track_caller]
pub fn sleep_until_operation_ends(cq: &CompletionQueue) -> Ended {
    let wait = cq.wait_object();
    poll_until(&format!("an event to wake {wait:?}"), || match wait {
        WaitObject::Fd | WaitObject::MutexCond => poll_completion(cq)
            .or_else(|| sleep_on_wait_object(cq, PATIENCE).then(|| poll_completion(cq)).flatten()),
        _ => blocking_read(cq, PATIENCE),
    })
}

/// Starts a thread that waits for something, and returns when it sleeps in the kernel: state S in
/// `proc_pid_stat(5)`. Looks at most a thousand times. Over a transport without wake-ups, a blocked reader
/// polls and never sleeps.
pub fn spawn_sleeper<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (sender, receiver) = mpsc::channel();
    let sleeper = thread::spawn(move || {
        let directory = fs::read_link("/proc/thread-self").expect("Linux has this link");
        sender.send(Path::new("/proc").join(directory).join("stat")).expect("the test listens");
        wait()
    });
    let stat = receiver.recv().expect("the thread runs");
    for _ in 0..1000 {
        if fs::read_to_string(&stat).expect("the thread runs").contains(") S ") {
            break;
        }
        thread::yield_now();
    }
    sleeper
}

/// Waits for the end of a thread.
///
/// # Panics
///
/// If the thread does not end in time, or has panicked.
#[track_caller]
pub fn join_in_time<T>(thread: JoinHandle<T>) -> T {
    let deadline = Deadline::new();
    while !thread.is_finished() {
        deadline.yield_or_panic("the end of a wait");
    }
    thread.join().expect("no panic")
}

/// Sleeps on a counter's wait object until the counter has reached a threshold.
#[track_caller]
pub fn wait_for_threshold(counter: &Counter, threshold: u64) {
    let deadline = Deadline::new();
    while counter.read() < threshold {
        match counter.wait_object() {
            WaitObject::Fd | WaitObject::MutexCond => {
                sleep_on_wait_object(counter, PATIENCE);
            }
            _ => {
                assert_eq!(counter.wait(threshold, Some(PATIENCE)), Ok(()));
                assert!(counter.read() >= threshold, "the wait ended early");
            }
        }
        deadline.yield_or_panic_with(|| format!("an event to wake {:?}", counter.wait_object()));
    }
}

/// Waits for the next operation to end, by a blocking read.
pub fn blocking_read(cq: &CompletionQueue, at_most: Duration) -> Option<Ended> {
    match cq.sread_from(Some(at_most)) {
        Ok(completed) => completed.map(Ok),
        Err(ReadError::ErrorAvailable) => {
            // Another thread may have read the error entry meanwhile.
            let error = cq.read_error().ok()??;
            assert_ne!(error.errno(), Errno::new(0), "an error without a number: {error:?}");
            Some(Err(error))
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sleeps on the descriptor or the condition variable, if `on` allows it. Returns false if the timeout or a
/// signal (`signal(7)`) ended the sleep.
pub fn sleep_on_wait_object(on: &impl Waitable, at_most: Duration) -> bool {
    if let Some(of) = on.wait_mutex_cond().expect("a thread") {
        return posix::wait_on_condition_variable(of, at_most, || try_wait_or_yield(on));
    }
    let fd = on.wait_fd().expect("a wait object of the application's");
    if !try_wait_or_yield(on) {
        return true;
    }
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let at_most = Timespec::try_from(at_most).expect("not so long");
    poll(&mut fds, Some(&at_most)).is_ok_and(|ready| ready > 0)
}

fn try_wait_or_yield(on: &impl Waitable) -> bool {
    let may = on.try_wait().expect("a wait object");
    if !may {
        // Over a transport without a descriptor, `try_wait` always returns false, and the caller loops.
        thread::yield_now();
    }
    may
}

/// Dropping this tells another thread to stop, even if the test fails.
#[derive(Debug)]
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Drives the endpoints of a counter until `is_over` is set. The endpoints may have to answer accesses of
/// peers.
pub fn drive_counter_until(counter: &Counter, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let _ = counter.wait(u64::MAX, Some(Duration::from_millis(1)));
    }
}

/// Sleeps on a set's wait object until a member has an event. May return before that.
#[track_caller]
pub fn sleep_on_wait_set(set: &WaitSet) {
    let has_woken = match set.wait_object() {
        WaitObject::Fd | WaitObject::MutexCond => sleep_on_wait_object(set, PATIENCE),
        _ => set.wait(Some(PATIENCE)) == Ok(()),
    };
    assert!(has_woken, "no member has woken the reader that waits by {:?}", set.wait_object());
}

/// Gives other threads time to fall asleep. No test depends on it: a thread that still runs finds the event
/// at once.
pub fn let_threads_fall_asleep() {
    thread::sleep(Duration::from_millis(3));
}
