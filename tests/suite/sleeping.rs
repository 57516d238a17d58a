//! How an application waits until a completion queue or a counter has something to tell, by each kind of wait object.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun::wait::Waitable;
use homespun::{CompletionQueue, Counter, Errno, ReadError, WaitObject, WaitSet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::party::{self, Ended};
use super::posix;

/// How long a wait may last that something must end. Nothing is concluded from how soon it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The wait objects that a queue can have.
pub(crate) const OBJECTS: [WaitObject; 4] =
    [WaitObject::Unspec, WaitObject::Fd, WaitObject::MutexCond, WaitObject::Yield];

/// The same as far as whoever waits by them sleeps.
pub(crate) const ASLEEP: [WaitObject; 3] = [WaitObject::Unspec, WaitObject::Fd, WaitObject::MutexCond];

/// The next operation to end, for which the application sleeps as its queue's wait object has it.
#[track_caller]
pub(crate) fn next(cq: &CompletionQueue) -> Ended {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended = match cq.wait_object() {
            WaitObject::Fd | WaitObject::MutexCond => {
                party::poll(cq).or_else(|| sleep(cq, PATIENCE).then(|| party::poll(cq)).flatten())
            }
            _ => blocking(cq, PATIENCE),
        };
        match ended {
            Some(ended) => return ended,
            None => {
                let is_in_time = Instant::now() < deadline;
                assert!(is_in_time, "nobody has woken whoever waits by {:?}", cq.wait_object());
            }
        }
    }
}

/// Waits until a counter has reached a threshold, as its wait object has it.
#[track_caller]
pub(crate) fn reach(counter: &Counter, threshold: u64) {
    let deadline = Instant::now() + PATIENCE;
    while counter.read() < threshold {
        match counter.wait_object() {
            WaitObject::Fd | WaitObject::MutexCond => {
                sleep(counter, PATIENCE);
            }
            _ => assert_eq!(counter.wait(threshold, Some(PATIENCE)), Ok(())),
        }
        let is_in_time = Instant::now() < deadline;
        assert!(is_in_time, "nobody has woken whoever waits by {:?}", counter.wait_object());
    }
}

/// The next operation to end, by a blocking read.
pub(crate) fn blocking(cq: &CompletionQueue, at_most: Duration) -> Option<Ended> {
    match cq.sread_from(Some(at_most)) {
        Ok(completed) => Some(Ok(completed)),
        Err(ReadError::Empty) => None,
        Err(ReadError::ErrorAvailable) => {
            // Another thread may have read it meanwhile.
            let error = cq.read_error().ok()?;
            assert_ne!(error.errno(), Errno::new(0), "an error without a number: {error:?}");
            Some(Err(error))
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sleeps as an application does that has a descriptor, or a condition variable, if it is told that it may. Whether
/// something has ended that, or it was not to be.
pub(crate) fn sleep(on: &impl Waitable, at_most: Duration) -> bool {
    if let Some(of) = on.wait_mutex_cond().expect("a thread") {
        return posix::wait_for_condition(of, at_most, || may_sleep(on));
    }
    let fd = on.wait_fd().expect("a wait object of the application's");
    if !may_sleep(on) {
        return true;
    }
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let at_most = Timespec::try_from(at_most).expect("not so long");
    poll(&mut fds, Some(&at_most)).is_ok_and(|ready| ready > 0)
}

fn may_sleep(on: &impl Waitable) -> bool {
    let may = on.try_wait().expect("a wait object");
    if !may {
        // Where endpoints cannot be slept on, this is a loop that polls.
        thread::yield_now();
    }
    may
}

/// Says when it is dropped, so also when a test fails, that nobody needs what another thread does.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Drives the endpoints of a counter until it is over. What was counted here may still be to be answered.
pub(crate) fn answer(counter: &Counter, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let _ = counter.wait(u64::MAX, Some(Duration::from_millis(1)));
    }
}

/// Waits until a member of a set has something to tell, as the set's wait object has it, or for no reason at all.
#[track_caller]
pub(crate) fn sleep_on_set(set: &WaitSet) {
    match set.wait_object() {
        wait @ (WaitObject::Fd | WaitObject::MutexCond) => {
            assert!(sleep(set, PATIENCE), "nobody has woken whoever waits by {wait:?}");
        }
        wait => assert!(set.wait(Some(PATIENCE)), "nobody has woken whoever waits by {wait:?}"),
    }
}

/// The next operation to end that a queue tells of which is a member of a set.
#[track_caller]
pub(crate) fn next_in_set(set: &WaitSet, cq: &CompletionQueue) -> Ended {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(ended) = party::poll(cq) {
            return ended;
        }
        assert!(Instant::now() < deadline, "other members have kept on ending waits");
        sleep_on_set(set);
    }
}

/// Lets another thread fall asleep. Nothing depends on it: if it has not yet, it is told of what happens before it does.
pub(crate) fn let_sleep() {
    thread::sleep(Duration::from_millis(3));
}
