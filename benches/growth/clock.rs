//! A clock that all processes of the host share.

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since some moment before the benchmark began.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
