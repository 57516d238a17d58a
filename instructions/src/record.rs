//! The record in the repository: the counts, and the versions of the tools that affect the counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::profile::Profile;

/// A function is in the record only if it has at least this share of a path's instructions.
pub const FUNCTION_MIN_FRACTION: f64 = 0.01;

/// The counts of all paths, and the versions of the tools. The file is JSON with sorted keys, so a change
/// has a small diff.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The versions of the tools that affect counts, by name.
    pub tools: BTreeMap<String, String>,
    /// The counts by path name: domain, interface, operation.
    pub paths: BTreeMap<String, Count>,
}

/// The instructions of one operation: the mean over many operations, rounded to one decimal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// All instructions.
    pub total: f64,
    /// The instructions of each function itself, without those of its callees.
    pub functions: BTreeMap<String, f64>,
}

impl Count {
    /// Returns the mean count of one operation, from a profile of `operations` operations.
    pub fn mean_of(profile: &Profile, operations: u32) -> Count {
        let mean = |instructions| (instructions as f64 / f64::from(operations) * 10.0).round() / 10.0;
        let functions = profile.by_function.iter().map(|(name, count)| (name.clone(), mean(*count)));
        Count { total: mean(profile.total), functions: functions.collect() }
    }

    /// The record omits functions with a smaller count than this.
    pub fn min_recorded_count(&self) -> f64 {
        self.total * FUNCTION_MIN_FRACTION
    }

    /// The count without the functions that the record omits.
    pub fn without_small_functions(&self) -> Count {
        let is_large = |(_, count): &(&String, &f64)| **count >= self.min_recorded_count();
        let functions = self.functions.iter().filter(is_large).map(|(name, count)| (name.clone(), *count));
        Count { total: self.total, functions: functions.collect() }
    }
}

impl Record {
    /// Reads a record. Returns `None` if the file does not exist.
    ///
    /// # Errors
    ///
    /// Errors of the system, and [`InvalidData`](io::ErrorKind::InvalidData) if the file is not a record.
    pub fn read(path: &Path) -> io::Result<Option<Record>> {
        match fs::read(path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a record. Leaves out the functions whose counts are below
    /// [`min_recorded_count`](Count::min_recorded_count).
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let paths = self.paths.iter().map(|(name, count)| (name.clone(), count.without_small_functions()));
        let written = Record { tools: self.tools.clone(), paths: paths.collect() };
        let mut text = serde_json::to_string_pretty(&written)?;
        text.push('\n');
        fs::write(path, text)
    }
}
