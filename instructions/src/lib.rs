//! The number of instructions of homespun's operations, counted by callgrind and compared with a record.
//!
//! ```text
//! cargo bench --bench instructions                 # counts, and fails if the record differs
//! cargo bench --bench instructions -- shm/plugin   # counts only paths whose name contains this
//! cargo bench --bench instructions -- --write      # counts, and records
//! ```
//!
//! This library parses profiles, keeps the record and compares; the benchmark in `benches/instructions` has
//! the paths.

#![deny(unsafe_code)]

pub mod comparison;
pub mod profile;
pub mod record;
pub mod report;
