//! Finds the differences between homespun and the other providers.

use std::collections::{BTreeMap, BTreeSet};

use crate::outcome::{AS_ASKED, has_reached_call, is_accepted};

/// Outcomes by probe and provider.
pub(crate) type OutcomeTable = BTreeMap<String, BTreeMap<&'static str, String>>;

/// The columns of homespun's domains.
pub(crate) const OURS: [&str; 3] = ["homespun shm", "homespun tcp", "homespun auto"];

/// The number of other providers that have to agree on an outcome.
const QUORUM: usize = 2;

/// The provider behind a column. `tcp;ofi_rxm` is a layer over `tcp`, so the two count once.
fn counted_as(column: &str) -> &str {
    column.split(';').next().unwrap_or(column)
}

/// The kind of a difference between homespun and the other providers. Three kinds do not count. First,
/// homespun may accept a call that the other providers refuse, which breaks no program that runs over them.
/// Second, if all providers refuse a call, their error numbers may differ. Third, homespun may grant a hint
/// as asked that the other providers answer otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DifferenceKind {
    /// At least two other providers accept a call, but homespun refuses it, crashes or hangs.
    Refused,
    /// homespun accepts a call. At least two other providers agree on a result that differs from homespun's,
    /// and fewer than two have the result of homespun.
    DifferentResult,
}

/// The kind of the most severe difference of each probe that has any.
pub(crate) fn find_differences_from_others(table: &OutcomeTable) -> BTreeMap<&str, DifferenceKind> {
    let most_severe = |outcomes| OURS.iter().filter_map(|ours| difference_kind(outcomes, ours)).min();
    table.iter().filter_map(|(probe, outcomes)| Some((probe.as_str(), most_severe(outcomes)?))).collect()
}

fn difference_kind(outcomes: &BTreeMap<&'static str, String>, ours: &str) -> Option<DifferenceKind> {
    let ours = outcomes.get(ours)?.as_str();
    let others: Vec<(&str, &str)> = outcomes
        .iter()
        .filter(|(column, outcome)| !OURS.contains(column) && has_reached_call(outcome))
        .map(|(column, outcome)| (counted_as(column), outcome.as_str()))
        .collect();
    let count = |is_such: &dyn Fn(&str) -> bool| {
        let such = others.iter().filter(|(_, outcome)| is_such(outcome));
        such.map(|(provider, _)| provider).collect::<BTreeSet<_>>().len()
    };
    if !is_accepted(ours) {
        return (count(&is_accepted) >= QUORUM).then_some(DifferenceKind::Refused);
    }
    let is_agreed = |outcome: &str| is_accepted(outcome) && count(&|other| other == outcome) >= QUORUM;
    let has_different_result = others.iter().any(|(_, other)| *other != ours && is_agreed(other))
        && count(&|other| other == ours) < QUORUM;
    (has_different_result && ours != AS_ASKED).then_some(DifferenceKind::DifferentResult)
}
