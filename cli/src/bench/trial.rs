//! Trial runs before a size is measured. They find the fastest bare loop, and the number of operations
//! in a round.

use super::step::{Step, Way};
use crate::exchange::measure::Metric;
use crate::exchange::run::Run;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;

/// A trial has this many round trips, or this many windows full of messages.
const TRIAL_ROUND_TRIPS: u32 = 32;
const TRIAL_WINDOWS: u32 = 8;

/// The least number of round trips in a round, or of windows full of messages.
const ROUND_TRIPS_MIN: u32 = 16;
const WINDOWS_MIN: u32 = 8;

/// The largest number of operations in a round.
const COUNT_MAX: u32 = 1 << 22;

/// How often each way is tried. Only the best time of a way counts, so one disturbance does not decide.
const TRIES: u32 = 2;

/// Returns a run with as many operations as fit into a round. `time_us` makes a trial run and returns
/// the time of each operation; for latency, an operation is a whole round trip.
pub(super) fn calibrate_run(
    size_bytes: usize,
    metric: Metric,
    round_ms: u32,
    time_us: impl FnOnce(Run) -> Result<f64, CommandFailure>,
) -> Result<Run, CommandFailure> {
    let window = Run::new(size_bytes, Some(1)).window;
    let (trial, least) = match metric {
        Metric::Latency => (TRIAL_ROUND_TRIPS, ROUND_TRIPS_MIN),
        Metric::Bandwidth => (TRIAL_WINDOWS * window, WINDOWS_MIN * window),
    };
    let each_us = time_us(Run::new(size_bytes, Some(trial)))?;
    let fitting = f64::from(round_ms) * 1e3 / each_us.max(f64::MIN_POSITIVE);
    // The conversion of a float that is too large gives the largest integer.
    let count = (fitting as u32).clamp(least, COUNT_MAX);
    Ok(Run::new(size_bytes, Some(count)))
}

/// Tries each of `ways` for messages of this size. Returns the step of the fastest way, with as many
/// messages as fit into a round. `lead` measures one step.
///
/// # Errors
///
/// Failures of the steps; [`CommandFailure::PeerProtocol`] if `ways` is empty.
pub(super) fn find_fastest_way(
    ways: &[Way],
    size_bytes: usize,
    metric: Metric,
    round_ms: u32,
    mut lead: impl FnMut(&Step) -> Result<Timing, CommandFailure>,
) -> Result<Step, CommandFailure> {
    let mut best: Option<(f64, Step)> = None;
    for &way in ways {
        let round_trip_factor = if metric == Metric::Latency { 2.0 } else { 1.0 };
        let run = calibrate_run(size_bytes, metric, round_ms, |run| {
            Ok(round_trip_factor * lead(&Step { way, metric, run })?.each_us)
        })?;
        let step = Step { way, metric, run };
        if ways.len() == 1 {
            return Ok(step);
        }
        for _ in 0..TRIES {
            let each_us = lead(&step)?.each_us;
            if best.is_none_or(|(best_us, _)| each_us < best_us) {
                best = Some((each_us, step));
            }
        }
    }
    best.map(|(_, step)| step).ok_or(CommandFailure::PeerProtocol)
}

#[cfg(test)]
mod tests {
    use super::super::step::Chunk;
    use super::*;

    fn make_timing(each_us: f64) -> Result<Timing, CommandFailure> {
        Ok(Timing { each_us, singles_us: Vec::new() })
    }

    #[test]
    fn calibrated_run_has_as_many_operations_as_fit_into_a_round() {
        let run = |each_us: f64| calibrate_run(8, Metric::Latency, 10, |_| Ok(each_us)).unwrap().round_trips;
        assert_eq!(run(2.0), 5_000);
        assert_eq!(run(1e9), ROUND_TRIPS_MIN);
        assert_eq!(run(0.0), COUNT_MAX);
    }

    #[test]
    fn find_fastest_way_compares_the_best_time_of_each_way() {
        let [small, .., large] = Chunk::ALL.map(Way::Pipelined);
        let mut calls = 0;
        let chosen = find_fastest_way(&[small, Way::Readv, large], 1 << 20, Metric::Bandwidth, 1, |step| {
            calls += 1;
            // Every other measurement is disturbed.
            let disturbance = if calls % 2 == 0 { 100.0 } else { 0.0 };
            make_timing(disturbance + if step.way == Way::Readv { 1.0 } else { 2.0 })
        });
        assert_eq!(chosen.unwrap().way, Way::Readv);
    }

    #[test]
    fn single_way_is_chosen_without_comparison() {
        let mut calls = 0;
        let chosen = find_fastest_way(&[Way::Ring], 8, Metric::Latency, 1, |_| {
            calls += 1;
            make_timing(1.0)
        });
        assert_eq!((chosen.unwrap().way, calls), (Way::Ring, 1));
    }
}
