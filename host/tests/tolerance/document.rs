//! Checks that the rows of `docs/tolerance.md` match the outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::compare::{OURS, OutcomeTable, find_differences_from_others};
use crate::provider_case::COLUMNS;

/// What would come of it if homespun accepted a call that others accept. There are no other reasons to refuse
/// it.
const REASONS: [&str; 4] =
    ["loses data: ", "breaks a protection: ", "waits for ever: ", "promises what is absent: "];

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
    let mut complaints: BTreeMap<String, String> =
        rows.iter().flat_map(|row| row.find_unlisted_outcomes(table)).collect();
    for row in rows.iter().filter(|row| !REASONS.iter().any(|reason| row.why.starts_with(reason))) {
        complaints.extend(row.probes.first().map(|probe| (probe.clone(), format!("no reason: `{probe}`"))));
    }
    for (&probe, kind) in differences.iter().filter(|(probe, _)| !listed.contains(**probe)) {
        let outcomes = format_cells(&table[probe]).join(" | ");
        complaints.insert(probe.to_owned(), format!("not listed ({kind:?}): `{probe}` | {outcomes}"));
    }
    for probe in listed {
        let is_run = filters.is_empty() || table.contains_key(&probe);
        if is_run && !differences.contains_key(probe.as_str()) {
            let complaint = format!("listed, but no longer a difference: `{probe}`");
            complaints.insert(probe, complaint);
        }
    }
    complaints
}
