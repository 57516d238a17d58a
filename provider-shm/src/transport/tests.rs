//! Transports with a clock or cores that a test sets.

mod alternating_ways;
mod cores;
mod doorbells;
mod ring_sizes;
