//! Which instructions callgrind collects: those inside one function.

use std::hint::black_box;

/// The function's name, as callgrind's `--toggle-collect` wants it. The compiler may add something to both
/// ends.
pub(crate) const COLLECTED_FUNCTION: &str = "*part_that_is_collected*";

/// Whether the operations that are performed are collected, or bring everything to the size that it then
/// keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Counted,
}

impl Phase {
    /// Does a part of an operation that is to be counted.
    pub(crate) fn count<R>(self, part: impl FnOnce() -> R) -> R {
        match self {
            Phase::WarmUp => part(),
            Phase::Counted => part_that_is_collected(part),
        }
    }
}

/// Callgrind begins to collect where this is entered and ends where it is left.
#[inline(never)]
fn part_that_is_collected<R>(part: impl FnOnce() -> R) -> R {
    // Without the detour the call could become a jump, and this function would be left before the part
    // begins.
    black_box(part())
}
