//! Measures how much time passes between two idle passes, and tells how often they poll the kernel.

use crate::clock::Clock;
use crate::limits::{
    CROWDED_PASS_NS, CROWDED_PASSES_SWITCHES, IDLE_GLANCES_MAX, IDLE_POLLS_PER_CLOCK_READ, SLOW_PASS_NS,
    SLOW_POLLS_PER_KERNEL_POLL,
};

/// Tells whether idle passes are slow: whether the time from one to the next is longer than a poll of the
/// kernel. With more processes than cores, other processes run between two passes.
///
/// A peer whose ring is cold has rung the doorbell, and only a poll of the kernel finds that. While frames of
/// other peers arrive, few passes in a row are idle. So while other threads run between passes, idle passes
/// count also if they are not in a row.
#[derive(Debug)]
pub(super) struct Pace {
    clock: Clock,
    read_at_ns: u64,
    /// How often the kernel had taken the processor from this thread when the clock was last read, if passes
    /// were far apart then.
    switches: Option<u64>,
    /// The idle passes since the clock was read. Busy passes are not counted, to save time.
    idle_polls: u32,
    idle_polls_since_kernel_poll: u32,
    is_slow: bool,
    /// Whether other threads run between idle passes, which are not slow, but not quick either.
    is_crowded: bool,
}

impl Pace {
    pub(super) fn new(clock: Clock) -> Pace {
        let read_at_ns = clock.now_ns();
        Pace {
            clock,
            read_at_ns,
            switches: None,
            idle_polls: 0,
            idle_polls_since_kernel_poll: 0,
            is_slow: false,
            is_crowded: false,
        }
    }

    /// Counts polls that have found nothing, the last of so many in a row. Returns whether the pass must poll
    /// the kernel, since idle polls are slow.
    #[inline]
    pub(super) fn count_idle_polls(&mut self, polls: u32, in_a_row: u32) -> bool {
        self.idle_polls += polls;
        self.idle_polls_since_kernel_poll += polls;
        if self.idle_polls >= IDLE_POLLS_PER_CLOCK_READ {
            self.read_clock();
        }
        (self.is_crowded || self.is_slow && in_a_row >= SLOW_POLLS_PER_KERNEL_POLL)
            && self.idle_polls_since_kernel_poll >= SLOW_POLLS_PER_KERNEL_POLL
    }

    /// Returns how many glances in a row may find nothing. None while passes are slow: the thread is to find
    /// soon what only a pass finds.
    #[inline(always)]
    pub(super) fn glances_max(&self) -> u32 {
        if self.is_slow | self.is_crowded { 0 } else { IDLE_GLANCES_MAX }
    }

    /// Records that a pass has polled the kernel.
    #[inline]
    pub(super) fn kernel_polled(&mut self) {
        self.idle_polls_since_kernel_poll = 0;
    }

    #[cold]
    #[inline(never)]
    fn read_clock(&mut self) {
        let now_ns = self.clock.now_ns();
        let interval_ns = now_ns.saturating_sub(self.read_at_ns) / u64::from(self.idle_polls);
        self.is_slow = interval_ns >= SLOW_PASS_NS;
        if interval_ns >= CROWDED_PASS_NS {
            self.is_crowded = self.count_switches() >= CROWDED_PASSES_SWITCHES && !self.is_slow;
        } else {
            (self.is_crowded, self.switches) = (false, None);
        }
        (self.read_at_ns, self.idle_polls) = (now_ns, 0);
    }

    /// Returns how often the kernel has taken the processor from this thread since the clock was last read. 0
    /// if that is not known.
    fn count_switches(&mut self) -> u64 {
        let switches = self.clock.forced_switches();
        self.switches.replace(switches).map_or(0, |before| switches.saturating_sub(before))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::clock::ManualTime;

    /// Makes idle passes at these intervals until the clock is read. Meanwhile the kernel takes the processor
    /// away so many times. Returns whether the last pass polls the kernel.
    fn polls_after(pace: &mut Pace, time: &ManualTime, interval_ns: u64, switches: u64) -> bool {
        let mut must_poll = false;
        time.forced_switches.fetch_add(switches, Ordering::Relaxed);
        for pass in 1..=IDLE_POLLS_PER_CLOCK_READ {
            time.now_ns.fetch_add(interval_ns, Ordering::Relaxed);
            must_poll = pace.count_idle_polls(1, pass);
        }
        must_poll
    }

    #[test]
    fn idle_passes_poll_the_kernel_while_they_are_far_apart() {
        let time = Arc::new(ManualTime::default());
        let mut pace = Pace::new(Clock::Manual(time.clone()));
        for _ in 0..3 {
            assert!(!polls_after(&mut pace, &time, SLOW_PASS_NS - 1, 0));
            assert!(polls_after(&mut pace, &time, SLOW_PASS_NS, 0));
        }
    }

    #[test]
    fn idle_passes_poll_the_kernel_while_other_threads_run_between_them() {
        let time = Arc::new(ManualTime::default());
        let mut pace = Pace::new(Clock::Manual(time.clone()));
        for _ in 0..3 {
            let mut polls = |interval_ns, switches| polls_after(&mut pace, &time, interval_ns, switches);
            assert!(!polls(CROWDED_PASS_NS, 10 * CROWDED_PASSES_SWITCHES), "they may be older");
            assert!(polls(CROWDED_PASS_NS, CROWDED_PASSES_SWITCHES));
            assert!(!polls(CROWDED_PASS_NS, CROWDED_PASSES_SWITCHES - 1));
            assert!(!polls(CROWDED_PASS_NS - 1, 10 * CROWDED_PASSES_SWITCHES));
        }
    }

    #[test]
    fn some_idle_passes_come_between_two_polls_of_the_kernel() {
        let time = Arc::new(ManualTime::default());
        let mut pace = Pace::new(Clock::Manual(time.clone()));
        polls_after(&mut pace, &time, CROWDED_PASS_NS, 0);
        assert!(polls_after(&mut pace, &time, CROWDED_PASS_NS, CROWDED_PASSES_SWITCHES));
        for _ in 0..2 {
            pace.kernel_polled();
            for _ in 1..SLOW_POLLS_PER_KERNEL_POLL {
                assert!(!pace.count_idle_polls(1, 1));
            }
            assert!(pace.count_idle_polls(1, 1), "they need not be in a row");
        }
    }

    #[test]
    fn slow_passes_poll_the_kernel_only_in_a_row() {
        let time = Arc::new(ManualTime::default());
        let mut pace = Pace::new(Clock::Manual(time.clone()));
        assert!(polls_after(&mut pace, &time, SLOW_PASS_NS, 0));
        assert!(!pace.count_idle_polls(1, SLOW_POLLS_PER_KERNEL_POLL - 1));
        assert!(pace.count_idle_polls(1, SLOW_POLLS_PER_KERNEL_POLL));
    }
}
