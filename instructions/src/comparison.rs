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

    #[test]
    fn change_is_steady_up_to_five_percent() {
        let count = |total| Count { total, ..Count::default() };
        let rise = Change::Risen(Vec::new());
        for (before, now, change) in [
            (Some(100.0), Some(95.0), Change::Steady),
            (Some(100.0), Some(105.0), Change::Steady),
            (Some(100.0), Some(105.1), rise),
            (Some(100.0), Some(94.9), Change::Fallen),
            (None, Some(9.0), Change::New),
            (Some(9.0), None, Change::Vanished),
        ] {
            let found = PathChange::between(before.map(count).as_ref(), now.map(count).as_ref());
            assert_eq!(found, PathChange { before, now, change });
        }
    }
}
