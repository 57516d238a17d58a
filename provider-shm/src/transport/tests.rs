//! Transports with a clock, cores or limits that a test sets.

mod cores;
mod doorbells;
mod ring_sizes;
