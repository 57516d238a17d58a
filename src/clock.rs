//! Time, as endpoints read it.

use homespun_engine::moment::Moment;
use rustix::time::{ClockId, clock_gettime};

/// What endpoints read the time from, for limits of seconds: as coarse as the tick of the kernel, and read without a system
/// call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock;

impl Clock {
    pub(crate) fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        // Neither is ever negative.
        Moment::from_ms(now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000)
    }
}
