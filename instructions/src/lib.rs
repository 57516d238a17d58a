//! How many instructions an operation of homespun takes, counted by callgrind and compared with what is
//! recorded.
//!
//! ```text
//! cargo bench --bench instructions                 # counts, and fails where the record says something else
//! cargo bench --bench instructions -- shm/plugin   # only the paths whose name contains this
//! cargo bench --bench instructions -- --write      # counts, and records
//! ```
//!
//! This library reads profiles, keeps the record and compares; the benchmark in `benches/instructions` has
//! the paths.

#![deny(unsafe_code)]

pub mod comparison;
pub mod profile;
pub mod record;
pub mod report;
