//! Tells whether this thread shares its processor with others that want to run.
//!
//! Two copies by two processes take less time than one only if both processes run at the same time. If other
//! threads want this processor, processor time counts, and that is what one copy saves. The kernel counts how
//! often it took the processor from a thread that wanted to go on, also by a yield
//! (`ru_nivcsw` in `getrusage(2)`).

use std::thread::{self, ThreadId};

use crate::clock::Clock;
use crate::limits::{CROWDED_SWITCH_NS, CROWDING_LOOK_NS};

/// How many looks in a row, at least, must agree before the answer changes.
const LOOKS_TO_CHANGE: u8 = 2;

/// Whether this thread's processor is crowded, as some looks have found.
#[derive(Debug, Default)]
pub(crate) struct Crowding {
    last: Option<Look>,
    /// Rises by 1 with each look that finds the processor crowded, and falls by 1 with each other.
    score: u8,
    is_crowded: bool,
}

#[derive(Debug)]
struct Look {
    thread: ThreadId,
    at_ns: u64,
    switches: u64,
}

impl Crowding {
    /// Whether the last looks have found the processor crowded.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Looks again, unless the last look was a short time ago. Returns whether
    /// [`is_crowded`](Self::is_crowded) has changed.
    #[inline]
    pub(crate) fn look_if_due(&mut self, clock: &Clock, now_ns: u64) -> bool {
        let is_due =
            self.last.as_ref().is_none_or(|last| now_ns.saturating_sub(last.at_ns) >= CROWDING_LOOK_NS);
        is_due && self.look(clock, now_ns)
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, clock: &Clock, at_ns: u64) -> bool {
        let look = Look { thread: thread::current().id(), at_ns, switches: clock.forced_switches() };
        let Some(last) = self.last.replace(look) else { return false };
        let Some(look) = self.last.as_ref().filter(|look| look.thread == last.thread) else { return false };
        let switches = look.switches.saturating_sub(last.switches);
        if switches > 0 && at_ns.saturating_sub(last.at_ns) / switches <= CROWDED_SWITCH_NS {
            self.score = (self.score + 1).min(2 * LOOKS_TO_CHANGE);
        } else {
            self.score = self.score.saturating_sub(1);
        }
        let is_crowded = match self.score {
            0 => false,
            score if score >= LOOKS_TO_CHANGE => true,
            _ => self.is_crowded,
        };
        std::mem::replace(&mut self.is_crowded, is_crowded) != is_crowded
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::clock::ManualTime;

    struct Simulation {
        crowding: Crowding,
        time: Arc<ManualTime>,
    }

    impl Simulation {
        fn new() -> Simulation {
            let mut simulation = Simulation { crowding: Crowding::default(), time: Arc::default() };
            assert!(!simulation.look_after(0, 0));
            simulation
        }

        /// Looks after some time in which the kernel has taken the processor away so many times. Returns
        /// whether the answer has changed.
        fn look_after(&mut self, elapsed_ns: u64, switches: u64) -> bool {
            self.time.forced_switches.fetch_add(switches, Ordering::Relaxed);
            let now_ns = self.time.now_ns.fetch_add(elapsed_ns, Ordering::Relaxed) + elapsed_ns;
            self.crowding.look_if_due(&Clock::Manual(self.time.clone()), now_ns)
        }
    }

    #[test]
    fn frequent_switches_are_crowding_until_they_end() {
        let mut simulation = Simulation::new();
        let (time_ns, switches) = (4 * CROWDED_SWITCH_NS, 4);
        assert!(!simulation.look_after(time_ns, switches), "one look is not enough");
        assert!(simulation.look_after(time_ns, switches) && simulation.crowding.is_crowded());
        for _ in 0..10 {
            assert!(!simulation.look_after(time_ns, 5 * switches) && simulation.crowding.is_crowded());
        }
        for _ in 0..3 {
            assert!(!simulation.look_after(time_ns, 0) && simulation.crowding.is_crowded());
        }
        assert!(simulation.look_after(time_ns, 0) && !simulation.crowding.is_crowded());
    }

    #[test]
    fn seldom_switches_are_no_crowding() {
        let mut simulation = Simulation::new();
        for switches in 0..10 {
            assert!(!simulation.look_after(10 * CROWDED_SWITCH_NS, switches));
        }
        assert!(!simulation.crowding.is_crowded());
    }

    #[test]
    fn looks_that_come_soon_read_no_counter() {
        let mut simulation = Simulation::new();
        for _ in 0..10 {
            assert!(!simulation.look_after(CROWDING_LOOK_NS - 1, 5));
            simulation.time.now_ns.fetch_sub(CROWDING_LOOK_NS - 1, Ordering::Relaxed);
        }
        assert!(!simulation.crowding.is_crowded());
    }

    #[test]
    fn switches_of_another_thread_do_not_count() {
        let mut simulation = Simulation::new();
        for _ in 0..10 {
            thread::scope(|scope| scope.spawn(|| simulation.look_after(CROWDING_LOOK_NS, 5)).join().unwrap());
        }
        assert!(!simulation.crowding.is_crowded());
    }

    #[test]
    fn system_counts_no_switches_backwards() {
        let clock = Clock::system();
        let before = clock.forced_switches();
        (0..10).for_each(|_| thread::yield_now());
        assert!(clock.forced_switches() >= before);
    }
}
