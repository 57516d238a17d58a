//! The times of the operations of a run.

/// The times of the operations of a run, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timing {
    /// The time of one operation: the median over batches or rounds.
    pub(crate) each_us: f64,
    /// The times of operations that were timed one by one. Empty if operations overlap.
    pub(crate) singles_us: Vec<f64>,
}

impl Timing {
    /// Halves every time, which converts round trips to one direction.
    pub(crate) fn halved(self) -> Timing {
        let singles_us = self.singles_us.into_iter().map(|time_us| time_us / 2.0).collect();
        Timing { each_us: self.each_us / 2.0, singles_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halved_timing_halves_the_median_and_every_single_operation() {
        let timing = Timing { each_us: 3.0, singles_us: vec![2.0, 5.0] };
        assert_eq!(timing.halved(), Timing { each_us: 1.5, singles_us: vec![1.0, 2.5] });
    }
}
