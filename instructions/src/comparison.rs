//! The differences between the record and the current counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Count, Record};

/// A change up to this fraction of the recorded count is tolerated.
pub const TOLERANCE: f64 = 0.05;

/// The largest number of functions that a finding lists.
const RISES_MAX: usize = 5;

/// A tool that affects counts and has another version than recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedTool {
    /// The name of the tool.
    pub name: String,
    /// The recorded version; `None` if the tool is not in the record.
    pub recorded: Option<String>,
    /// The present version; `None` if the tool is not in use now.
    pub now: Option<String>,
}

/// Returns the tools whose version is not the recorded one. If there is one, counts cannot be compared.
pub fn changed_tools(recorded: &Record, now: &Record) -> Vec<ChangedTool> {
    let names: BTreeSet<&String> = recorded.tools.keys().chain(now.tools.keys()).collect();
    let tools = names.into_iter().map(|name| ChangedTool {
        name: name.clone(),
        recorded: recorded.tools.get(name).cloned(),
        now: now.tools.get(name).cloned(),
    });
    tools.filter(|tool| tool.recorded != tool.now).collect()
}

/// The change of a path's count.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The count has changed by no more than [`TOLERANCE`].
    Steady,
    /// The count has risen. Lists the functions whose counts rose most, the largest rise first.
    Risen(Vec<Rise>),
    /// The count has fallen.
    Fallen,
    /// The path is counted, but not recorded.
    New,
    /// The path is recorded, but not counted.
    Vanished,
}

/// A function whose count has risen.
#[derive(Debug, Clone, PartialEq)]
pub struct Rise {
    /// The function's name.
    pub function: String,
    /// Its recorded count; `None` if it was below the limit of the record.
    pub before: Option<f64>,
    /// Its current count.
    pub now: f64,
}

/// A path's recorded and current counts.
#[derive(Debug, Clone, PartialEq)]
pub struct PathChange {
    /// The recorded count per operation.
    pub before: Option<f64>,
    /// The current count per operation.
    pub now: Option<f64>,
    /// The kind of change.
    pub change: Change,
}

impl PathChange {
    fn between(before: Option<&Count>, now: Option<&Count>) -> PathChange {
        let change = match (before, now) {
            (None, _) => Change::New,
            (_, None) => Change::Vanished,
            (Some(before), Some(now)) if now.total > before.total * (1.0 + TOLERANCE) => {
                Change::Risen(risen_functions(before, now))
            }
            (Some(before), Some(now)) if now.total < before.total * (1.0 - TOLERANCE) => Change::Fallen,
            _ => Change::Steady,
        };
        PathChange { before: before.map(|count| count.total), now: now.map(|count| count.total), change }
    }

    /// Whether the path is recorded with another count, beyond [`TOLERANCE`].
    pub fn has_changed(&self) -> bool {
        matches!(self.change, Change::Risen(_) | Change::Fallen)
    }

    /// The change as a fraction of the recorded count: 0.1 is 10 % more.
    pub fn change_fraction(&self) -> Option<f64> {
        let (before, now) = (self.before?, self.now?);
        Some(if now == before { 0.0 } else { now / before - 1.0 })
    }
}

/// Compares the counts of all paths, by the path's name.
pub fn compare(recorded: &Record, now: &Record) -> BTreeMap<String, PathChange> {
    let names: BTreeSet<&String> = recorded.paths.keys().chain(now.paths.keys()).collect();
    let change = |name| PathChange::between(recorded.paths.get(name), now.paths.get(name));
    names.into_iter().map(|name| (name.clone(), change(name))).collect()
}

/// The functions whose counts rose, the largest rise first.
fn risen_functions(before: &Count, now: &Count) -> Vec<Rise> {
    // A function that is not in the record had a smaller count than this. Compute its rise from this count.
    let unrecorded_max = before.min_recorded_count();
    let rise = |rise: &Rise| rise.now - rise.before.unwrap_or(unrecorded_max);
    let functions = now.functions.iter().map(|(function, count)| Rise {
        function: function.clone(),
        before: before.functions.get(function).copied(),
        now: *count,
    });
    let mut rises: Vec<Rise> = functions.filter(|function| rise(function) > 0.0).collect();
    rises.sort_by(|one, other| rise(other).total_cmp(&rise(one)));
    rises.truncate(RISES_MAX);
    rises
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_count(total: f64, functions: &[(&str, f64)]) -> Count {
        Count { total, functions: functions.iter().map(|(name, count)| ((*name).into(), *count)).collect() }
    }

    fn make_record(paths: &[(&str, Count)]) -> Record {
        let paths = paths.iter().map(|(name, count)| ((*name).into(), count.clone()));
        Record { tools: BTreeMap::new(), paths: paths.collect() }
    }

    fn compare_one_path(before: Count, now: Count) -> PathChange {
        compare(&make_record(&[("path", before)]), &make_record(&[("path", now)]))
            .remove("path")
            .expect("the only path")
    }

    #[test]
    fn change_of_five_percent_is_steady() {
        for now in [95.0, 100.0, 105.0] {
            assert_eq!(
                compare_one_path(make_count(100.0, &[]), make_count(now, &[])).change,
                Change::Steady,
                "{now}"
            );
        }
    }

    #[test]
    fn rise_lists_functions_by_descending_rise() {
        let before = make_count(200.0, &[("send", 100.0), ("post", 60.0), ("read", 40.0)]);
        let now = make_count(
            250.0,
            &[("send", 105.0), ("post", 90.0), ("read", 35.0), ("check", 19.0), ("tiny", 1.0)],
        );
        let found = compare_one_path(before, now);
        let rise = |function: &str, before, now| Rise { function: function.into(), before, now };
        let expected =
            vec![rise("post", Some(60.0), 90.0), rise("check", None, 19.0), rise("send", Some(100.0), 105.0)];
        assert_eq!(found.change, Change::Risen(expected));
        assert_eq!((found.before, found.now), (Some(200.0), Some(250.0)));
        assert_eq!(found.change_fraction(), Some(0.25));
    }

    #[test]
    fn rise_lists_at_most_five_functions() {
        let functions: Vec<(String, f64)> = (0..9_u8).map(|number| (number.to_string(), 10.0)).collect();
        let now = Count { total: 90.0, functions: functions.into_iter().collect() };
        let Change::Risen(rises) = compare_one_path(make_count(0.0, &[]), now).change else {
            panic!("from nothing to 90")
        };
        assert_eq!(rises.len(), RISES_MAX);
    }

    #[test]
    fn fall_beyond_five_percent_is_a_change() {
        assert_eq!(compare_one_path(make_count(100.0, &[]), make_count(94.9, &[])).change, Change::Fallen);
    }

    #[test]
    fn unrecorded_path_is_new() {
        let changes = compare(&make_record(&[]), &make_record(&[("path", make_count(9.0, &[]))]));
        assert_eq!(changes["path"], PathChange { before: None, now: Some(9.0), change: Change::New });
        assert_eq!(changes["path"].change_fraction(), None);
    }

    #[test]
    fn uncounted_path_has_vanished() {
        let changes = compare(&make_record(&[("path", make_count(9.0, &[]))]), &make_record(&[]));
        assert_eq!(changes["path"], PathChange { before: Some(9.0), now: None, change: Change::Vanished });
    }

    #[test]
    fn changed_tools_are_those_with_another_version() {
        let tools = |tools: &[(&str, &str)]| Record {
            tools: tools.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect(),
            paths: BTreeMap::new(),
        };
        let recorded = tools(&[("rustc", "1.95"), ("valgrind", "3.19"), ("old", "1")]);
        let now = tools(&[("rustc", "1.96"), ("valgrind", "3.19"), ("young", "2")]);
        let other = |name: &str, recorded: Option<&str>, now: Option<&str>| ChangedTool {
            name: name.into(),
            recorded: recorded.map(Into::into),
            now: now.map(Into::into),
        };
        let expected = [
            other("old", Some("1"), None),
            other("rustc", Some("1.95"), Some("1.96")),
            other("young", None, Some("2")),
        ];
        assert_eq!(changed_tools(&recorded, &now), expected);
        assert_eq!(changed_tools(&recorded, &recorded), []);
    }
}
