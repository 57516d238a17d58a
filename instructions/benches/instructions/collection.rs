//! Limits the collection of callgrind to one function.

use std::hint::black_box;

/// The name of the function for callgrind's `--toggle-collect`, as a pattern. The compiler may add a prefix
/// and a suffix to the name.
pub(crate) const COLLECTED_FUNCTION: &str = "*part_that_is_collected*";

/// Whether operations are counted, or only warm up caches and allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Counted,
}

impl Phase {
    /// Runs a part of an operation. In the phase `Counted`, callgrind counts this part.
    pub(crate) fn run_counted<R>(self, part: impl FnOnce() -> R) -> R {
        match self {
            Phase::WarmUp => part(),
            Phase::Counted => part_that_is_collected(part),
        }
    }
}

/// Callgrind begins to count when this function is called, and stops when it returns.
#[inline(never)]
fn part_that_is_collected<R>(part: impl FnOnce() -> R) -> R {
    // `black_box` prevents a tail call. A tail call would leave this function before the part begins.
    black_box(part())
}
