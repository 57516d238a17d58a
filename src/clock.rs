//! The clocks of endpoints.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::moment::Moment;

#[cfg(feature = "simulator")]
use crate::simulation::Simulation;

/// A clock that stands still until it is advanced. For tests and simulations inside one process.
///
/// The endpoints of a fabric [with such a clock](crate::Fabric::with_clock) measure four times by this
/// clock:
///
/// - how long a peer may be silent before the endpoint treats the peer as gone
/// - how long a request for a connection waits for its answer
///   ([`connect_timeout`](crate::Endpoint::connect_timeout))
/// - how long a closing endpoint waits for peers to read its messages
///   ([`CLOSE_LINGER_MS`](crate::params::CLOSE_LINGER_MS))
/// - how long a long message waits for its receive before the endpoint copies it
///   ([`FETCH_DELAY_MS`](crate::limits::FETCH_DELAY_MS))
///
/// If a closing endpoint sleeps, the clock advances by the time that the endpoint has slept, or as
/// [`with_sleep_pace`](Self::with_sleep_pace) says. Timeouts of calls, such as
/// [`sread`](crate::CompletionQueue::sread), use real time.
///
/// Clones are handles to the same clock.
///
/// ```
/// use std::time::Duration;
///
/// use homespun::{Fabric, SimulatedClock};
///
/// let clock = SimulatedClock::new();
/// let fabric = Fabric::new().with_clock(&clock);
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.elapsed(), Duration::from_secs(3600));
/// # drop(fabric);
/// ```
#[derive(Clone)]
pub struct SimulatedClock(Arc<Simulated>);

struct Simulated {
    elapsed_us: AtomicU64,
    pace: Box<dyn Fn(Duration) -> Duration + Send + Sync>,
}

impl SimulatedClock {
    /// Creates a clock at time 0.
    pub fn new() -> SimulatedClock {
        SimulatedClock::with_sleep_pace(|slept| slept)
    }

    /// Creates a clock that a closing endpoint advances by `pace(slept)` after the endpoint has slept for
    /// `slept`. If `pace` returns more than `slept`, tests that close endpoints take less real time.
    pub fn with_sleep_pace(pace: impl Fn(Duration) -> Duration + Send + Sync + 'static) -> SimulatedClock {
        SimulatedClock(Arc::new(Simulated { elapsed_us: AtomicU64::new(0), pace: Box::new(pace) }))
    }

    /// Advances the clock, by whole microseconds. Endpoints notice the new time in their next passes.
    pub fn advance(&self, time: Duration) {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let later = |elapsed_us: u64| Some(elapsed_us.saturating_add(time_us));
        let _ = self.0.elapsed_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Returns the time by which the clock has advanced.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.elapsed_us.load(Ordering::Relaxed))
    }
}

impl Default for SimulatedClock {
    fn default() -> Self {
        SimulatedClock::new()
    }
}

impl fmt::Debug for SimulatedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedClock").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

/// The source of time of endpoints.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The system's clock, read without a system call.
    System,
    Simulated(SimulatedClock),
    /// The clock of a simulated fabric. Blocking calls take its time, too.
    #[cfg(feature = "simulator")]
    Simulation(Simulation),
}

impl Clock {
    pub(crate) fn now(&self) -> Moment {
        match self {
            Clock::System => {
                static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
                Moment::from_ms(0) + FIRST.elapsed()
            }
            Clock::Simulated(clock) => Moment::from_ms(0) + clock.elapsed(),
            #[cfg(feature = "simulator")]
            Clock::Simulation(simulation) => Moment::from_ms(0) + simulation.elapsed(),
        }
    }

    /// Whether the clock is that of a simulated fabric. Then all endpoints are driven in one thread, and no
    /// thread sleeps.
    pub(crate) fn is_of_simulation(&self) -> bool {
        #[cfg(feature = "simulator")]
        if let Clock::Simulation(_) = self {
            return true;
        }
        false
    }

    /// Pauses a thread that can do nothing before `deadline` without its peers. In a simulation, this drives
    /// the peers. Otherwise it sleeps for `time`, and advances a simulated clock.
    pub(crate) fn sleep_or_step(&self, time: Duration, deadline: Moment) {
        #[cfg(feature = "simulator")]
        if let Clock::Simulation(simulation) = self {
            simulation.step(Some(since_origin(deadline)));
            return;
        }
        let _ = deadline;
        self.sleep(time);
    }

    /// Sleeps, and advances a simulated clock.
    fn sleep(&self, time: Duration) {
        thread::sleep(time);
        if let Clock::Simulated(clock) = self {
            clock.advance((clock.0.pace)(time));
        }
    }
}

/// Returns the time from the origin of the clock until a moment.
#[cfg(feature = "simulator")]
pub(crate) fn since_origin(moment: Moment) -> Duration {
    moment.saturating_duration_since(Moment::from_ms(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_moves_on_by_itself() {
        let clock = Clock::System;
        let begin = clock.now();
        clock.sleep(Duration::from_millis(50));
        // Moments are whole milliseconds.
        assert!(clock.now().saturating_duration_since(begin) >= Duration::from_millis(49));
    }

    #[test]
    fn simulated_clock_moves_by_advance_and_sleep() {
        let simulated = SimulatedClock::new();
        let clock = Clock::Simulated(simulated.clone());
        assert_eq!(clock.now(), Moment::from_ms(0));
        simulated.advance(Duration::from_secs(2));
        clock.sleep(Duration::from_millis(3));
        assert_eq!(clock.now(), Moment::from_ms(2003));
        assert_eq!(simulated.elapsed(), Duration::from_millis(2003));
    }

    #[test]
    fn simulated_clock_with_pace_scales_sleeps() {
        let simulated = SimulatedClock::with_sleep_pace(|slept| slept * 1000);
        Clock::Simulated(simulated.clone()).sleep(Duration::from_millis(2));
        assert_eq!(simulated.elapsed(), Duration::from_secs(2));
    }
}
