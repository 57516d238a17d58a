//! Finds the differences between homespun and the other providers.

use std::collections::BTreeMap;

use crate::outcome::{has_reached_call, is_accepted};

/// Outcomes by probe and provider.
pub(crate) type OutcomeTable = BTreeMap<String, BTreeMap<&'static str, String>>;

/// The columns of homespun's domains.
pub(crate) const OURS: [&str; 3] = ["homespun shm", "homespun tcp", "homespun auto"];

/// The number of other providers that have to agree on an outcome.
const QUORUM: usize = 2;

/// The kind of a difference between homespun and the other providers. Two kinds do not count. First,
/// homespun may accept a call that the other providers refuse, which breaks no program that runs over them.
/// Second, if all providers refuse a call, their error numbers may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DifferenceKind {
    /// At least two other providers accept a call, but homespun refuses it, crashes or hangs.
    Refused,
    /// homespun accepts a call. At least two other providers agree on a result that differs from homespun's,
    /// and fewer than two have the result of homespun.
    DifferentResult,
}

/// A probe with a difference.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) kind: DifferenceKind,
    pub(crate) probe: String,
    pub(crate) outcomes: BTreeMap<&'static str, String>,
}

/// All differences, the most severe kind first.
pub(crate) fn find_differences_from_others(table: &OutcomeTable) -> Vec<Difference> {
    let mut found: Vec<_> = table
        .iter()
        .filter_map(|(probe, outcomes)| {
            let kind = OURS.iter().filter_map(|ours| difference_kind(outcomes, ours)).min()?;
            Some(Difference { kind, probe: probe.clone(), outcomes: outcomes.clone() })
        })
        .collect();
    found.sort_by(|a, b| (a.kind, &a.probe).cmp(&(b.kind, &b.probe)));
    found
}

fn difference_kind(outcomes: &BTreeMap<&'static str, String>, ours: &str) -> Option<DifferenceKind> {
    let ours = outcomes.get(ours)?.as_str();
    let others: Vec<&str> = outcomes
        .iter()
        .filter(|(provider, outcome)| !OURS.contains(provider) && has_reached_call(outcome))
        .map(|(_, outcome)| outcome.as_str())
        .collect();
    let count = |is_such: &dyn Fn(&str) -> bool| others.iter().filter(|other| is_such(other)).count();
    let accepting = count(&is_accepted);
    if !is_accepted(ours) && accepting >= QUORUM {
        return Some(DifferenceKind::Refused);
    }
    // A difference counts if at least two other providers agree on a result that differs from homespun's,
    // and fewer than two have the result of homespun.
    let agree =
        |outcome: &str| is_accepted(outcome) && outcome != ours && count(&|other| other == outcome) >= QUORUM;
    let has_different_result =
        others.iter().any(|other| agree(other)) && count(&|other| other == ours) < QUORUM;
    (is_accepted(ours) && has_different_result).then_some(DifferenceKind::DifferentResult)
}
