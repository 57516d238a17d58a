//! `docs/tolerance.md`: prints its rows, and checks that they match the outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::compare::{Difference, OURS, OutcomeTable, find_differences_from_others};
use crate::provider_case::COLUMNS;
use crate::reasons::{REASONS, reason_of};

/// All outcomes of all probes, as text.
pub(crate) fn format_outcomes(table: &OutcomeTable) -> String {
    let mut text = String::new();
    for (probe, outcomes) in table {
        let _ = writeln!(text, "{probe}");
        for (provider, outcome) in outcomes {
            let _ = writeln!(text, "    {provider}: {outcome}");
        }
    }
    text
}

/// Writes differences as rows of the document. Differences share a row if they are of one kind, have the same
/// outcomes, and their probes' names differ only in the value of the argument.
pub(crate) fn format_rows(differences: &[Difference]) -> String {
    let mut groups: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for difference in differences {
        let (family, last) = split_probe_name(&difference.probe);
        groups.entry((difference.kind, family, format_cells(&difference.outcomes))).or_default().push(last);
    }
    let mut text = String::new();
    for ((kind, family, cells), last) in groups {
        let why =
            reason_of(&format!("{family}{}", last[0])).map_or("no reason", |(_, reason)| reason.words());
        let name = match last[..] {
            [only] => format!("{family}{only}"),
            _ => format!("{family}{{{}}}", last.join("; ")),
        };
        let _ = writeln!(text, "| `{name}` | {} | {why}: {kind:?} |", cells.join(" | "));
    }
    text
}

/// Splits the name of a probe into the call with its argument, and the value of the argument.
fn split_probe_name(probe: &str) -> (&str, &str) {
    let call = probe.find(": ").map_or(0, |colon| colon + 2);
    let argument = probe[call..].find(' ').map_or(call, |space| call + space + 1);
    probe.split_at(argument)
}

/// The names of the probes of a row. `{MSG; RDM} call: argument {value; value}` stands for all combinations.
fn expand_row_name(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (values, after) = rest.split_once('}').expect("a brace that is closed");
    let ends = expand_row_name(after);
    let names =
        values.split("; ").flat_map(|value| ends.iter().map(move |end| format!("{before}{value}{end}")));
    names.collect()
}

fn format_cells(outcomes: &BTreeMap<&'static str, String>) -> Vec<String> {
    COLUMNS.iter().map(|column| outcomes.get(column).map_or("-", String::as_str).to_owned()).collect()
}

/// A row of the document.
struct Row {
    probes: Vec<String>,
    /// The outcomes that each column lists.
    outcomes: BTreeMap<&'static str, String>,
    why: String,
}

impl Row {
    fn parse(line: &str) -> Row {
        let mut cells = line.split(" | ");
        let names = cells.next().unwrap_or_default().split('`').skip(1).step_by(2);
        let probes = names.flat_map(expand_row_name).collect();
        let outcomes = COLUMNS.into_iter().zip(cells.by_ref().map(str::to_owned)).collect();
        Row { probes, outcomes, why: cells.collect::<Vec<_>>().join(" | ") }
    }

    /// Describes the probes whose reason the row does not begin with, by probe.
    fn find_other_reasons(&self) -> BTreeMap<String, String> {
        let mut complaints = BTreeMap::new();
        for probe in &self.probes {
            let reason = reason_of(probe).map(|(_, reason)| reason.words());
            if !reason.is_some_and(|reason| self.why.starts_with(&format!("{reason}: "))) {
                let complaint = format!("the row gives another reason than {reason:?}: `{probe}`");
                complaints.insert(probe.clone(), complaint);
            }
        }
        complaints
    }

    /// Describes the outcomes of homespun that the row does not list, by probe. The row may list only the
    /// beginning of an outcome.
    fn find_unlisted_outcomes(&self, table: &OutcomeTable) -> BTreeMap<String, String> {
        let mut complaints = BTreeMap::new();
        for (column, probe) in
            OURS.iter().flat_map(|column| self.probes.iter().map(move |probe| (column, probe)))
        {
            let Some(outcome) = table.get(probe).and_then(|outcomes| outcomes.get(column)) else { continue };
            let listed = self.outcomes.get(column).map_or("", String::as_str);
            if !listed.split("; ").any(|listed| !listed.is_empty() && outcome.starts_with(listed)) {
                let complaint = format!("{column} is listed with {listed:?}: `{probe}` | {outcome}");
                complaints.insert(probe.clone(), complaint);
            }
        }
        complaints
    }
}

/// Describes the mismatches between the document and the outcomes, by probe.
pub(crate) fn find_mismatches_with_outcomes(
    table: &OutcomeTable,
    filters: &[String],
) -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tolerance.md");
    let document = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows: Vec<Row> = document.lines().filter(|line| line.starts_with("| `")).map(Row::parse).collect();
    let listed: BTreeSet<String> = rows.iter().flat_map(|row| row.probes.iter().cloned()).collect();
    let differences = find_differences_from_others(table);
    let found: BTreeMap<&str, &Difference> =
        differences.iter().map(|difference| (difference.probe.as_str(), difference)).collect();
    let mut complaints: BTreeMap<String, String> =
        rows.iter().flat_map(|row| row.find_unlisted_outcomes(table)).collect();
    complaints.extend(rows.iter().flat_map(Row::find_other_reasons));
    let needed: BTreeSet<usize> = listed.iter().filter_map(|probe| Some(reason_of(probe)?.0)).collect();
    for (place, (text, _)) in REASONS.iter().enumerate() {
        if !needed.contains(&place) {
            complaints.insert((*text).to_owned(), format!("a reason without a difference: {text:?}"));
        }
    }
    for (probe, difference) in &found {
        if !listed.contains(*probe) {
            let outcomes = format_cells(&difference.outcomes).join(" | ");
            let complaint = format!("not listed ({:?}): `{probe}` | {outcomes}", difference.kind);
            complaints.insert((*probe).to_owned(), complaint);
        }
    }
    for probe in listed {
        let is_run = filters.is_empty() || table.contains_key(&probe);
        if is_run && !found.contains_key(probe.as_str()) {
            let complaint = format!("listed, but no longer a difference: `{probe}`");
            complaints.insert(probe, complaint);
        }
    }
    complaints
}
