//! Points in time, which the caller passes to the engine.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in milliseconds since an origin. The owner of the clock chooses the origin,
/// such as the start of the system.
///
/// The engine reads no clock. Where time matters, a method takes a `Moment`. Moments of different
/// clocks must not be compared.
///
/// ```
/// use std::time::Duration;
///
/// use homespun_engine::moment::Moment;
///
/// let begin = Moment::from_ms(100);
/// let end = begin + Duration::from_millis(50);
/// assert_eq!(end, Moment::from_ms(150));
/// assert_eq!(end.saturating_duration_since(begin), Duration::from_millis(50));
/// assert_eq!(begin.saturating_duration_since(end), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Returns the moment this many milliseconds after the origin.
    pub const fn from_ms(ms: u64) -> Moment {
        Moment(ms)
    }

    /// Returns how much later this moment is than `earlier`; zero if this moment is earlier.
    pub const fn saturating_duration_since(self, earlier: Moment) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// Counts whole milliseconds. The sum saturates at the last possible moment.
    fn add(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }
}
