//! What is recorded in the repository: the counts, and the tools that they were made with.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::profile::Profile;

/// A function is recorded if at least one instruction in so many is its own.
pub const FUNCTION_MIN_FRACTION: f64 = 0.01;

/// The counts of all paths, and what they were counted with. Kept as JSON with sorted keys, so that a change
/// shows as few lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The version of everything that changes counts, by its name.
    pub tools: BTreeMap<String, String>,
    /// By the path's name: domain, interface, operation.
    pub paths: BTreeMap<String, Count>,
}

/// The instructions of one operation. They are means over many operations, rounded to one decimal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// All of them.
    pub total: f64,
    /// Those of each function itself, without the functions that it calls.
    pub functions: BTreeMap<String, f64>,
}

impl Count {
    /// The mean of so many operations.
    pub fn of(profile: &Profile, operations: u32) -> Count {
        let mean = |instructions| (instructions as f64 / f64::from(operations) * 10.0).round() / 10.0;
        let functions = profile.by_function.iter().map(|(name, count)| (name.clone(), mean(*count)));
        Count { total: mean(profile.total), functions: functions.collect() }
    }

    /// What one percent is, below which functions are not recorded.
    pub fn function_min(&self) -> f64 {
        self.total * FUNCTION_MIN_FRACTION
    }

    /// Without the functions that take next to nothing.
    pub fn without_small_functions(&self) -> Count {
        let is_large = |(_, count): &(&String, &f64)| **count >= self.function_min();
        let functions = self.functions.iter().filter(is_large).map(|(name, count)| (name.clone(), *count));
        Count { total: self.total, functions: functions.collect() }
    }
}

impl Record {
    /// Reads a record, which may be missing.
    ///
    /// # Errors
    ///
    /// What the system says, and [`InvalidData`](io::ErrorKind::InvalidData) for what is no record.
    pub fn read(path: &Path) -> io::Result<Option<Record>> {
        match fs::read(path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a record, without functions that take next to nothing.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let paths = self.paths.iter().map(|(name, count)| (name.clone(), count.without_small_functions()));
        let written = Record { tools: self.tools.clone(), paths: paths.collect() };
        let mut text = serde_json::to_string_pretty(&written)?;
        text.push('\n');
        fs::write(path, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let functions = [("large", 98_760), ("middling", 1000), ("small", 240)];
        Profile { total: 100_000, by_function: functions.map(|(name, count)| (name.into(), count)).into() }
    }

    #[test]
    fn count_is_the_mean_with_one_decimal() {
        let count = Count::of(&profile(), 1000);
        assert_eq!(count.total, 100.0);
        assert_eq!(count.functions, [("large", 98.8), ("middling", 1.0), ("small", 0.2)].map(owned).into());
    }

    #[test]
    fn record_survives_being_written_except_for_small_functions() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("counts.json");
        assert_eq!(Record::read(&path).expect("a missing record is none"), None);
        let count = Count::of(&profile(), 1000);
        let tools = [("valgrind".into(), "3".into())].into();
        Record { tools, paths: [("a".into(), count)].into() }.write(&path).expect("room for it");
        let read = Record::read(&path).expect("what was written").expect("what was written");
        assert_eq!(read.tools["valgrind"], "3");
        assert_eq!(read.paths["a"].total, 100.0);
        assert_eq!(read.paths["a"].functions, [("large", 98.8), ("middling", 1.0)].map(owned).into());
    }

    #[test]
    fn file_that_is_no_record_is_an_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("counts.json");
        for text in ["", "{}", r#"{"tools": {}, "paths": {"a": {"total": 1}}}"#] {
            fs::write(&path, text).expect("room for it");
            assert_eq!(Record::read(&path).expect_err(text).kind(), expected_kind(text));
        }
    }

    fn expected_kind(text: &str) -> io::ErrorKind {
        if text.is_empty() { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::InvalidData }
    }

    fn owned((name, count): (&str, f64)) -> (String, f64) {
        (name.into(), count)
    }
}
