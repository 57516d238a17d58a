//! What is done with messages of one size.

use std::fmt;
use std::str::FromStr;

/// The largest message that is measured.
pub(crate) const SIZE_MAX_BYTES: u64 = 64 << 20;

/// How often one size is tried at most.
pub(crate) const ITERATIONS_MAX: u32 = 1 << 30;

/// How many messages are in flight when bandwidth is measured.
pub(crate) const WINDOW_MAX_MESSAGES: u32 = 64;

/// How many bytes are in flight at most when bandwidth is measured, unless two messages have more.
pub(crate) const WINDOW_MAX_BYTES: u64 = 4 << 20;

/// The fewest messages in flight with which one can be sent while another is.
const WINDOW_MIN_MESSAGES: u32 = 2;

/// How long the round trips of one size should take by default, all together.
const LATENCY_BUDGET_NS: u64 = 150_000_000;

/// How long the messages of one size should take by default when bandwidth is measured.
const BANDWIDTH_BUDGET_NS: u64 = 100_000_000;

/// What a round trip takes, roughly, without its bytes.
const ROUND_TRIP_NS: u64 = 24_000;

/// What a message takes among many, roughly, without its bytes.
const MESSAGE_NS: u64 = 1_000;

/// How many bytes travel in a nanosecond, roughly.
const BYTES_PER_NS: u64 = 2;

/// How often a size is tried at least by default.
const ITERATIONS_MIN: u64 = 16;

/// How many rounds the messages that measure bandwidth are divided into at most. The median over rounds is what is
/// reported.
const ROUNDS_MAX: u32 = 9;

/// How many windows full of messages a round has at least: its beginning and its end are not to count for much.
const ROUND_MIN_WINDOWS: u32 = 4;

/// How many round trips go by, at most, before measuring begins.
const WARMUP_MAX: u32 = 1_000;

/// What is done with one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The length of every message.
    pub(crate) size_bytes: usize,
    /// How many round trips are made before those that are measured.
    pub(crate) warmup: u32,
    /// How many round trips are measured.
    pub(crate) round_trips: u32,
    /// How many messages go one way when bandwidth is measured.
    pub(crate) messages: u32,
    /// How many of these are in flight at once.
    pub(crate) window: u32,
}

impl Run {
    /// What to do with messages of this size; without `iterations`, as often as is done in a good part of a second.
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

    /// How many rounds the messages that measure bandwidth are divided into.
    pub(crate) fn rounds(&self) -> u32 {
        (self.messages / (self.window * ROUND_MIN_WINDOWS)).clamp(1, ROUNDS_MAX)
    }

    /// Whether a server goes along with this.
    fn is_acceptable(&self) -> bool {
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
        const BAD: &str = "a size is not described as it should be";
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
        if !run.is_acceptable() {
            return Err("a size, a number of iterations or a window is beyond what is served");
        }
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_that_is_made_is_served() {
        for power in 0..=26 {
            for iterations in [None, Some(1), Some(20), Some(ITERATIONS_MAX)] {
                let run = Run::new(1 << power, iterations);
                assert_eq!(run.to_string().parse(), Ok(run));
                assert!((1..=run.messages).contains(&run.rounds()), "{run}");
            }
        }
        assert_eq!(Run::new(0, None).window, WINDOW_MAX_MESSAGES);
        assert_eq!(Run::new(4 << 20, None).window, WINDOW_MIN_MESSAGES);
    }
}
