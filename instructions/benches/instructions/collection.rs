//! Limits the collection of callgrind to one function.

use std::hint::black_box;

/// The pattern of the function's name for callgrind's `--toggle-collect`. The compiler may add a prefix and a
/// suffix to the name.
pub(crate) const COLLECTED_FUNCTION: &str = "*part_that_is_collected*";

/// Whether operations are counted, or only warm up caches and allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Counted,
}

impl Phase {
    /// Runs a part of an operation. In the phase `Counted` callgrind counts this part.
    pub(crate) fn run_counted<R>(self, part: impl FnOnce() -> R) -> R {
        match self {
            Phase::WarmUp => part(),
            Phase::Counted => part_that_is_collected(part),
        }
    }
}

/// Callgrind starts to collect at the entry of this function, and stops at its exit.
#[inline(never)]
fn part_that_is_collected<R>(part: impl FnOnce() -> R) -> R {
    // `black_box` prevents a tail call, which would leave this function before the part begins.
    black_box(part())
}
