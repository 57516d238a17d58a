//! Works: operations and changes of counters that wait until a counter has reached a threshold.
//!
//! Applications add works to the queue of a domain by the interface in [`trigger`](crate::trigger).

pub(crate) mod domain;
mod firing;
pub(crate) mod queue;
mod waiting;
pub(crate) mod work;
