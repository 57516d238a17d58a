//! Percentiles of times.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The number of significant digits of a time.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The histogram counts times in picoseconds, so that short times keep their digits.
const UNITS_PER_US: f64 = 1e6;

/// A histogram of times.
#[derive(Debug)]
pub(super) struct Times {
    histogram: Histogram<u64>,
}

/// Pairs of a time and its count. One process sends them to another in this form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts(Vec<(u64, u64)>);

/// The distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Percentiles {
    /// The median.
    pub(super) p50_us: f64,
    /// The 99th percentile.
    pub(super) p99_us: f64,
    /// The number of times.
    pub(super) samples: u64,
}

impl Times {
    pub(super) fn new() -> Times {
        // `new` refuses only more than five digits.
        let histogram = Histogram::new(SIGNIFICANT_DIGITS).expect("three digits are not too many");
        Times { histogram }
    }

    /// Counts times in microseconds.
    pub(super) fn extend(&mut self, times_us: &[f64]) {
        for time_us in times_us {
            // The conversion truncates to whole picoseconds.
            self.histogram += (time_us * UNITS_PER_US) as u64;
        }
    }

    /// Counts one time.
    pub(super) fn add(&mut self, time: Duration) {
        self.extend(&[time.as_secs_f64() * 1e6]);
    }

    /// Counts the times of another process.
    pub(super) fn merge_counts(&mut self, counts: &Counts) {
        for &(time, count) in &counts.0 {
            // The histogram grows as needed, so no time is refused.
            let _ = self.histogram.record_n(time, count);
        }
    }

    /// The counts, to send to another process.
    pub(super) fn to_counts(&self) -> Counts {
        let recorded = self.histogram.iter_recorded();
        Counts(recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect())
    }

    /// The percentiles, or `None` without any times.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64 / UNITS_PER_US;
        (!self.histogram.is_empty()).then(|| Percentiles {
            p50_us: at(0.5),
            p99_us: at(0.99),
            samples: self.histogram.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_match_uniform_times() {
        let mut times = Times::new();
        let up_to_hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        times.extend(&up_to_hundred);
        let found = times.percentiles().unwrap();
        assert!((found.p50_us - 50.0).abs() < 0.1, "{found:?}");
        assert!((found.p99_us - 99.0).abs() < 0.2, "{found:?}");
        assert_eq!(found.samples, 100);
    }

    #[test]
    fn short_times_keep_their_digits() {
        let mut times = Times::new();
        times.extend(&[0.1234; 3]);
        let found = times.percentiles().unwrap();
        assert!((found.p50_us - 0.1234).abs() < 0.0003, "{found:?}");
    }

    #[test]
    fn counts_of_two_processes_add_up() {
        let mut times = Times::new();
        (1..=50).map(Duration::from_micros).for_each(|time| times.add(time));
        let counts = times.to_counts();
        (51..=100).map(Duration::from_micros).for_each(|time| times.add(time));
        let mut both = Times::new();
        both.merge_counts(&counts);
        both.merge_counts(&times.to_counts());
        let found = both.percentiles().unwrap();
        assert_eq!(found.samples, 150);
        assert!((found.p50_us - 38.0).abs() < 0.2, "{found:?}");
        assert!((found.p99_us - 99.0).abs() < 0.2, "{found:?}");
    }

    #[test]
    fn empty_times_have_no_percentiles() {
        assert_eq!(Times::new().percentiles(), None);
    }
}
