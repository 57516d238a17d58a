//! Counts the instructions of homespun's operations with callgrind, and compares them with a record.
//!
//! ```text
//! cargo bench --bench instructions                 # counts, and fails if the record differs
//! cargo bench --bench instructions -- shm/plugin   # counts only paths whose name contains this
//! cargo bench --bench instructions -- --write      # counts, and records
//! ```
//!
//! This library parses profiles, reads and writes the record, and compares counts. The benchmark in
//! `benches/instructions` defines and runs the paths: one operation through one interface in one domain.

#![deny(unsafe_code)]

pub mod comparison;
pub mod profile;
pub mod record;
pub mod report;
