//! Transports with a clock, cores or limits that a test sets.

mod alternating_ways;
mod cores;
mod doorbells;
mod mapping_budget;
mod ring_sizes;
