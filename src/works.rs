//! Works: operations and changes of counters that wait until a counter has reached a threshold.
//!
//! [`trigger`](crate::trigger) is the interface of applications; it posts works to the queue of their domain.

pub(crate) mod domain;
mod firing;
pub(crate) mod queue;
mod waiting;
pub(crate) mod work;
