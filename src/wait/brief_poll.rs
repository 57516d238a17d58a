//! Polling for a short time before a sleep.
//!
//! Going to sleep and being woken costs more than most answers take. So a call polls first, unless that has
//! been in vain: each time in vain, the next calls sleep at once, twice as many as before. Peers that wait
//! for this core, or answer slowly, thus lose little. One success among failures changes nothing: beside a
//! program that computes, a thread that polls loses its core for milliseconds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::awaited::Awaited;
use super::deadline::Deadline;

/// How long a call polls before it sleeps.
const POLL_MAX: Duration = Duration::from_micros(50);

/// After how many sleeps at most a call polls again.
const SLEEPS_MAX: u32 = 64;

/// After how many successes in a row failures are forgotten.
const SUCCESSES: u32 = 8;

/// Whether the waits for one queue or counter begin with polls. Concurrent waits may miscount, which costs a
/// few polls. The atomics are those of the standard library, since loom's cannot be in a static.
#[derive(Debug)]
pub(super) struct BriefPoll {
    /// How many sleeps are yet to begin without polls.
    sleeps_left: AtomicU32,
    /// How many sleeps were to begin without polls after the last failure.
    sleeps: AtomicU32,
    successes: AtomicU32,
}

impl BriefPoll {
    pub(super) const fn new() -> BriefPoll {
        BriefPoll { sleeps_left: AtomicU32::new(0), sleeps: AtomicU32::new(0), successes: AtomicU32::new(0) }
    }

    /// Makes passes for a short time, unless that was in vain lately, until the event has happened. Returns
    /// whether it has.
    pub(super) fn finds(&self, awaited: &impl Awaited, deadline: Deadline) -> bool {
        if self.takes_sleep() {
            return false;
        }
        let begin = Instant::now();
        let mut polls = 0;
        loop {
            polls += 1;
            awaited.progress();
            if awaited.poll_ready() {
                // An event that had happened before says nothing about polls.
                if polls > 1 {
                    self.count_success();
                }
                return true;
            }
            // Nor does a timeout.
            if deadline.has_passed() {
                return false;
            }
            if begin.elapsed() >= POLL_MAX {
                self.count_failure();
                return false;
            }
        }
    }

    /// Whether the thread is to sleep at once. Takes one of the sleeps that are left.
    fn takes_sleep(&self) -> bool {
        let left = self.sleeps_left.load(Ordering::Relaxed);
        self.sleeps_left.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    fn count_success(&self) {
        let successes = self.successes.load(Ordering::Relaxed) + 1;
        self.successes.store(successes % SUCCESSES, Ordering::Relaxed);
        if successes == SUCCESSES {
            self.sleeps.store(0, Ordering::Relaxed);
        }
    }

    fn count_failure(&self) {
        let sleeps = (2 * self.sleeps.load(Ordering::Relaxed)).clamp(1, SLEEPS_MAX);
        self.sleeps.store(sleeps, Ordering::Relaxed);
        self.sleeps_left.store(sleeps, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use homespun_engine::transport::Armed;

    use super::*;

    /// Returns the numbers of the waits that poll, if each then finds an event or not.
    fn waits_that_poll(brief: &BriefPoll, find: &[bool]) -> Vec<usize> {
        let polls = |wait: &usize| {
            let polls = !brief.takes_sleep();
            match find[*wait] {
                _ if !polls => {}
                true => brief.count_success(),
                false => brief.count_failure(),
            }
            polls
        };
        (0..find.len()).filter(polls).collect()
    }

    #[test]
    fn polls_in_vain_become_rare() {
        let brief = BriefPoll::new();
        assert_eq!(waits_that_poll(&brief, &[false; 20]), [0, 2, 5, 10, 19]);
        assert_eq!(waits_that_poll(&brief, &[false; 200]), [16, 49, 114, 179]);
    }

    #[test]
    fn failures_are_forgotten_after_successes_in_a_row() {
        let brief = BriefPoll::new();
        let mixed: Vec<bool> = (0..1000).map(|wait| wait % 2 == 0).collect();
        assert!(waits_that_poll(&brief, &mixed).len() < 50);
        assert!(waits_that_poll(&brief, &[true; 100]).len() >= 100 - SLEEPS_MAX as usize);
        assert_eq!(waits_that_poll(&brief, &[false; 4]), [0, 2]);
    }

    #[test]
    fn event_found_at_once_and_timeout_count_as_neither() {
        struct Event {
            has_happened: bool,
        }
        impl Awaited for Event {
            fn progress(&self) {}
            fn arm(&self) -> Armed {
                Armed::Ready
            }
            fn poll_ready(&self) -> bool {
                self.has_happened
            }
        }
        let brief = BriefPoll::new();
        (1..SUCCESSES).for_each(|_| brief.count_success());
        assert!(brief.finds(&Event { has_happened: true }, Deadline::after(None)));
        assert!(!brief.finds(&Event { has_happened: false }, Deadline::after(Some(Duration::ZERO))));
        assert_eq!(brief.successes.into_inner(), SUCCESSES - 1);
    }
}
