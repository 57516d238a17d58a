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

/// After how many successes in a row each failure is forgotten.
const SUCCESSES: u32 = 8;

/// Whether the waits for one queue or counter begin with polls. Concurrent waits may miscount, which costs a
/// few polls. The atomics are those of the standard library, since loom's make no static.
#[derive(Debug)]
pub(super) struct BriefPoll {
    /// How many sleeps are yet to begin without polls.
    sleeps_left: AtomicU32,
    /// How many sleeps were to begin without polls when this was last decided.
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
        let left = self.sleeps_left.load(Ordering::Relaxed);
        if left > 0 {
            self.sleeps_left.store(left - 1, Ordering::Relaxed);
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
            if begin.elapsed() >= POLL_MAX {
                self.count_failure();
                return false;
            }
            if deadline.has_passed() {
                return false;
            }
        }
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
    use std::cell::Cell;

    use homespun_engine::transport::Armed;

    use super::*;

    /// An event that happens with the pass of this number; `None` for never.
    struct Event {
        passes: Cell<u32>,
        happens_with: Option<u32>,
    }

    impl Event {
        fn happening_with(pass: Option<u32>) -> Event {
            Event { passes: Cell::new(0), happens_with: pass }
        }
    }

    impl Awaited for Event {
        fn progress(&self) {
            self.passes.set(self.passes.get() + 1);
        }

        fn arm(&self) -> Armed {
            Armed::Ready
        }

        fn poll_ready(&self) -> bool {
            self.happens_with.is_some_and(|pass| self.passes.get() >= pass)
        }
    }

    /// Returns the numbers of the waits that polled. Each finds the event with its second pass, or never.
    fn waits_that_poll(brief: &BriefPoll, find: &[bool]) -> Vec<usize> {
        let polls = |succeeds: &bool| {
            let event = Event::happening_with(succeeds.then_some(2));
            assert_eq!(brief.finds(&event, Deadline::after(None)), *succeeds && event.passes.get() > 0);
            event.passes.get() > 0
        };
        (0..find.len()).filter(|wait| polls(&find[*wait])).collect()
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
        let brief = BriefPoll::new();
        assert!(brief.finds(&Event::happening_with(Some(1)), Deadline::after(None)));
        assert!(!brief.finds(&Event::happening_with(None), Deadline::after(Some(Duration::ZERO))));
        assert_eq!(waits_that_poll(&brief, &[false; 4]), [0, 2]);
    }
}
