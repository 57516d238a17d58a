//! The parameters for measuring one size: the message length and the numbers of operations.

use std::fmt;
use std::str::FromStr;

/// The largest size of messages that can be measured.
pub(crate) const SIZE_MAX_BYTES: u64 = 64 << 20;

/// The largest number of iterations of one size.
pub(crate) const ITERATIONS_MAX: u32 = 1 << 30;

/// The largest number of messages in flight during the bandwidth measurement.
pub(crate) const WINDOW_MAX_MESSAGES: u32 = 64;

/// The largest number of bytes in flight during the bandwidth measurement. At least two messages are in
/// flight, whatever their size.
pub(crate) const WINDOW_MAX_BYTES: u64 = 4 << 20;

/// The least number of messages in flight. A single message in flight would not overlap with another.
const WINDOW_MIN_MESSAGES: u32 = 2;

/// The default time for all round trips of one size.
const LATENCY_BUDGET_NS: u64 = 150_000_000;

/// The default time for all one-way messages of one size.
const BANDWIDTH_BUDGET_NS: u64 = 100_000_000;

/// The estimated time of an empty round trip.
const ROUND_TRIP_NS: u64 = 24_000;

/// The estimated time of each empty message while many are in flight.
const MESSAGE_NS: u64 = 1_000;

/// The estimated transfer rate.
const BYTES_PER_NS: u64 = 2;

/// The least number of operations for one size, unless the user sets the number.
const ITERATIONS_MIN: u64 = 16;

/// The largest number of rounds of a bandwidth measurement. The result is the median over rounds.
const ROUNDS_MAX: u32 = 9;

/// The least number of windows in a round, unless there is only one round. Over many windows the
/// beginning and the end of a round have little weight.
const ROUND_MIN_WINDOWS: u32 = 4;

/// The largest number of warm-up round trips before the measured ones.
const WARMUP_MAX: u32 = 1_000;

/// The parameters of a measurement of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The length of every message.
    pub(crate) size_bytes: usize,
    /// The number of warm-up round trips before the measured ones.
    pub(crate) warmup: u32,
    /// The number of measured round trips.
    pub(crate) round_trips: u32,
    /// The number of one-way messages, which measure bandwidth.
    pub(crate) messages: u32,
    /// The largest number of one-way messages in flight.
    pub(crate) window: u32,
}

impl Run {
    /// The run for messages of this size. `iterations` is the number of round trips, and of one-way
    /// messages. Without `iterations`, the run takes about a quarter of a second by a rough estimate.
    pub(crate) fn new(size_bytes: usize, iterations: Option<u32>) -> Run {
        let size = size_bytes as u64;
        let scaled = |budget_ns: u64, each_ns: u64| {
            u32::try_from((budget_ns / each_ns).max(ITERATIONS_MIN)).unwrap_or(u32::MAX)
        };
        let round_trips = scaled(LATENCY_BUDGET_NS, ROUND_TRIP_NS + 2 * size / BYTES_PER_NS);
        let messages = scaled(BANDWIDTH_BUDGET_NS, MESSAGE_NS + size / BYTES_PER_NS);
        let round_trips = iterations.unwrap_or(round_trips);
        let fitting = WINDOW_MAX_BYTES / size.max(1);
        let window =
            u32::try_from(fitting).unwrap_or(u32::MAX).clamp(WINDOW_MIN_MESSAGES, WINDOW_MAX_MESSAGES);
        Run {
            size_bytes,
            warmup: (round_trips / 10 + 2).min(WARMUP_MAX),
            round_trips,
            messages: iterations.unwrap_or(messages),
            window,
        }
    }

    /// The number of rounds of the bandwidth measurement.
    pub(crate) fn round_count(&self) -> u32 {
        (self.messages / (self.window * ROUND_MIN_WINDOWS)).clamp(1, ROUNDS_MAX)
    }

    /// Whether a server accepts this run.
    fn is_within_server_limits(&self) -> bool {
        let Run { size_bytes, warmup, round_trips, messages, window } = *self;
        size_bytes as u64 <= SIZE_MAX_BYTES
            && warmup <= WARMUP_MAX
            && (1..=ITERATIONS_MAX).contains(&round_trips)
            && (1..=ITERATIONS_MAX).contains(&messages)
            && (1..=WINDOW_MAX_MESSAGES).contains(&window)
            && (window <= WINDOW_MIN_MESSAGES || u64::from(window) * size_bytes as u64 <= WINDOW_MAX_BYTES)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { size_bytes, warmup, round_trips, messages, window } = self;
        write!(f, "{size_bytes}:{warmup}:{round_trips}:{messages}:{window}")
    }
}

impl FromStr for Run {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const BAD: &str = "malformed description of a size";
        let mut numbers = text.split(':').map(|number| number.parse::<u32>().map_err(|_| BAD));
        let mut next = || numbers.next().unwrap_or(Err(BAD));
        let run = Run {
            size_bytes: next()? as usize,
            warmup: next()?,
            round_trips: next()?,
            messages: next()?,
            window: next()?,
        };
        if numbers.next().is_some() {
            return Err(BAD);
        }
        if !run.is_within_server_limits() {
            return Err("a size, a number of iterations or a window is too large for this server");
        }
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_of_every_size_parses_to_the_same_run() {
        for power in 0..=26 {
            for iterations in [None, Some(1), Some(20), Some(ITERATIONS_MAX)] {
                let run = Run::new(1 << power, iterations);
                assert_eq!(run.to_string().parse(), Ok(run));
                assert!((1..=run.messages).contains(&run.round_count()), "{run}");
            }
        }
        assert_eq!(Run::new(0, None).window, WINDOW_MAX_MESSAGES);
        assert_eq!(Run::new(4 << 20, None).window, WINDOW_MIN_MESSAGES);
    }
}
