//! Tells whether this thread shares its processor with threads of other processes that yield to each other.
//!
//! Two copies by two processes take less time than one only if both processes run at the same time. If other
//! threads want this processor, processor time counts, and one copy saves processor time. The kernel counts
//! how often it took the processor from a thread that could go on, also by a yield (`ru_nivcsw` in
//! `getrusage(2)`). MPIs yield often if there are more ranks than processors, and so do endpoints whose peer
//! is on the same processor. A process that computes takes a processor less often, and does not count.

use std::mem;
use std::thread::{self, ThreadId};

use crate::clock::Clock;
use crate::limits::{CROWDED_SWITCH_NS, CROWDING_SAMPLE_NS};

/// How many crowded samples it takes until the processor counts as crowded.
const SAMPLES_TO_CHANGE: u8 = 2;

/// The time between two samples, at most, as a multiple of [`CROWDING_SAMPLE_NS`]. Over a longer time, the
/// thread may have slept or computed.
const SAMPLE_MAX_PERIODS: u64 = 10;

/// Whether this thread's processor is crowded, according to some samples.
#[derive(Debug, Default)]
pub(crate) struct Crowding {
    last: Option<Sample>,
    /// Rises by 1 with each sample that finds the processor crowded, and falls by 1 with each other.
    score: u8,
    is_crowded: bool,
}

#[derive(Debug)]
struct Sample {
    thread: ThreadId,
    at_ns: u64,
    switches: u64,
}

impl Crowding {
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Takes a sample, unless the last one was taken a short time ago. Returns whether
    /// [`is_crowded`](Self::is_crowded) has changed.
    #[inline]
    pub(crate) fn sample_if_due(&mut self, clock: &Clock, now_ns: u64) -> bool {
        let is_due =
            self.last.as_ref().is_none_or(|last| now_ns.saturating_sub(last.at_ns) >= CROWDING_SAMPLE_NS);
        is_due && self.sample(clock, now_ns)
    }

    #[cold]
    #[inline(never)]
    fn sample(&mut self, clock: &Clock, at_ns: u64) -> bool {
        let sample = Sample { thread: thread::current().id(), at_ns, switches: clock.forced_switches() };
        let switches = sample.switches;
        let Some(last) = self.last.replace(sample) else { return false };
        let elapsed_ns = at_ns.saturating_sub(last.at_ns);
        if elapsed_ns > SAMPLE_MAX_PERIODS * CROWDING_SAMPLE_NS {
            return false;
        }
        // The kernel counts for each thread. If threads take turns, the processor counts as free.
        let is_same_thread = last.thread == thread::current().id();
        let switches = if is_same_thread { switches.saturating_sub(last.switches) } else { 0 };
        if switches.saturating_mul(CROWDED_SWITCH_NS) >= elapsed_ns {
            self.score = (self.score + 1).min(2 * SAMPLES_TO_CHANGE);
        } else {
            self.score = self.score.saturating_sub(1);
        }
        let is_crowded = match self.score {
            0 => false,
            SAMPLES_TO_CHANGE.. => true,
            _ => self.is_crowded,
        };
        mem::replace(&mut self.is_crowded, is_crowded) != is_crowded
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::clock::ManualTime;

    /// A time between samples in which a crowded processor switches 4 times, at least.
    const ELAPSED_NS: u64 = 4 * CROWDED_SWITCH_NS;

    struct Simulation {
        crowding: Crowding,
        time: Arc<ManualTime>,
    }

    impl Simulation {
        fn new() -> Simulation {
            let mut simulation = Simulation { crowding: Crowding::default(), time: Arc::default() };
            assert!(!simulation.sample_after(0, 0));
            simulation
        }

        fn crowded() -> Simulation {
            let mut simulation = Simulation::new();
            assert!(!simulation.sample_after(ELAPSED_NS, 4), "one sample is not enough");
            assert!(simulation.sample_after(ELAPSED_NS, 4) && simulation.crowding.is_crowded());
            simulation
        }

        /// Takes a sample after some time in which the kernel has taken the processor away so many times.
        /// Returns whether the answer has changed.
        fn sample_after(&mut self, elapsed_ns: u64, switches: u64) -> bool {
            self.time.forced_switches.fetch_add(switches, Ordering::Relaxed);
            let now_ns = self.time.now_ns.fetch_add(elapsed_ns, Ordering::Relaxed) + elapsed_ns;
            self.crowding.sample_if_due(&Clock::Manual(self.time.clone()), now_ns)
        }
    }

    #[test]
    fn frequent_switches_are_crowding_until_they_end() {
        let mut simulation = Simulation::crowded();
        for _ in 0..10 {
            assert!(!simulation.sample_after(ELAPSED_NS, 20) && simulation.crowding.is_crowded());
        }
        for _ in 0..3 {
            assert!(!simulation.sample_after(ELAPSED_NS, 0) && simulation.crowding.is_crowded());
        }
        assert!(simulation.sample_after(ELAPSED_NS, 3) && !simulation.crowding.is_crowded());
    }

    #[test]
    fn seldom_switches_are_no_crowding() {
        let mut simulation = Simulation::new();
        for switches in 0..10 {
            assert!(!simulation.sample_after(10 * CROWDED_SWITCH_NS, switches));
        }
        assert!(!simulation.crowding.is_crowded());
    }

    #[test]
    fn sample_is_taken_only_after_some_time() {
        let mut simulation = Simulation::new();
        for _ in 0..10 {
            assert!(!simulation.sample_after(CROWDING_SAMPLE_NS / 10, 50));
        }
        assert_eq!(simulation.crowding.score, 1);
    }

    #[test]
    fn pause_says_nothing() {
        let mut simulation = Simulation::crowded();
        for _ in 0..10 {
            assert!(!simulation.sample_after(1000 * CROWDING_SAMPLE_NS, 0));
        }
        assert!(simulation.crowding.is_crowded());
    }

    #[test]
    fn threads_that_take_turns_find_no_crowding() {
        let mut simulation = Simulation::crowded();
        for _ in 0..4 {
            thread::scope(|scope| scope.spawn(|| simulation.sample_after(ELAPSED_NS, 5)).join().unwrap());
        }
        assert!(!simulation.crowding.is_crowded());
    }

    #[test]
    fn system_counts_yields_to_another_thread() {
        let (clock, has_ended) = (Clock::system(), AtomicBool::new(false));
        let before = clock.forced_switches();
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        thread::scope(|scope| {
            for _ in 0..processors {
                scope.spawn(|| {
                    while !has_ended.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                });
            }
            while clock.forced_switches() == before {
                thread::yield_now();
            }
            has_ended.store(true, Ordering::Relaxed);
        });
    }
}
