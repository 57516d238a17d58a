//! The comparison as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};

use crate::comparison::{Change, ChangedTool, PathChange, TOLERANCE};
use crate::record::Count;

/// The interfaces, in the order of the table's columns.
const INTERFACES: [&str; 2] = ["native", "plugin"];

/// Returns a table with a row for each operation in each domain. For each interface it shows the recorded
/// count, the present count and the change.
pub fn format_table(changes: &BTreeMap<String, PathChange>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let mut header = vec!["instructions per operation".to_owned()];
    for interface in INTERFACES {
        header.extend([format!("{interface}: recorded"), "now".into(), "change".into()]);
    }
    table.set_header(header);
    let rows: BTreeSet<(&str, &str)> = changes.keys().filter_map(|path| split_path_name(path)).collect();
    for (domain, operation) in rows {
        let mut row = vec![Cell::new(format!("{domain} {operation}"))];
        for interface in INTERFACES {
            let change = changes.get(&format!("{domain}/{interface}/{operation}"));
            let cells = change.map_or([const { String::new() }; 3], format_cells);
            row.extend(cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        }
        table.add_row(row);
    }
    table.to_string()
}

/// Splits a path's name, and returns its domain and its operation.
fn split_path_name(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.splitn(3, '/');
    Some((parts.next()?, parts.nth(1)?))
}

fn format_cells(change: &PathChange) -> [String; 3] {
    let count = |count: Option<f64>| count.map_or_else(|| "-".into(), |count| format!("{count:.1}"));
    let difference = match (&change.change, change.change_fraction()) {
        (Change::New, _) => "new".into(),
        (Change::Vanished, _) => "vanished".into(),
        (_, fraction) => format!("{:+.1} %", fraction.unwrap_or_default() * 100.0),
    };
    [count(change.before), count(change.now), difference]
}

/// Returns a table with a row for each operation that was counted through libfabric's provider `shm`: its
/// count there, that of the plugin, and the plugin's count as a multiple of libfabric's.
pub fn format_beside_libfabric(
    version: &str,
    ours: &BTreeMap<String, Count>,
    theirs: &BTreeMap<String, Count>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["instructions over shm", "plugin", &format!("libfabric {version}"), "ratio"]);
    for (path, their) in theirs {
        let Some((domain, operation)) = split_path_name(path) else { continue };
        let Some(our) = ours.get(&format!("{domain}/plugin/{operation}")) else { continue };
        let ratio = format!("{:.2}", our.total / their.total);
        let numbers = [format!("{:.1}", our.total), format!("{:.1}", their.total), ratio];
        let numbers = numbers.map(|text| Cell::new(text).set_alignment(CellAlignment::Right));
        table.add_row([Cell::new(operation)].into_iter().chain(numbers));
    }
    table.to_string()
}

/// A paragraph for each path that differs from the record. Empty if none does.
pub fn describe_changes(changes: &BTreeMap<String, PathChange>) -> Vec<String> {
    changes.iter().filter_map(|(path, change)| describe_change(path, change)).collect()
}

fn describe_change(path: &str, change: &PathChange) -> Option<String> {
    let [before, now, difference] = format_cells(change);
    let tolerance = TOLERANCE * 100.0;
    let text = match &change.change {
        Change::Steady => return None,
        Change::Risen(rises) => {
            let mut text = format!(
                "{path} takes {now} instructions, {difference}, more than {tolerance} % above the recorded \
                 {before}. These functions rose:"
            );
            for rise in rises {
                let before = rise.before.map_or_else(|| "few".into(), |before| format!("{before:.1}"));
                // Writing to a string never fails.
                let _ = write!(text, "\n    {before:>8} -> {:>8.1}  {}", rise.now, rise.function);
            }
            text
        }
        Change::Fallen => {
            format!("{path} takes {now} instructions, {difference}: record that it fell from {before}")
        }
        Change::New => format!("{path} takes {now} instructions and is not recorded"),
        Change::Vanished => format!("{path} is recorded with {before} instructions and was not counted"),
    };
    Some(text)
}

/// Explains why nothing can be compared.
pub fn describe_changed_tools(tools: &[ChangedTool]) -> String {
    let mut text = "The recorded counts were made with other tools, so nothing is compared:".to_owned();
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "not known".into());
    for ChangedTool { name, recorded, now } in tools {
        // Writing to a string never fails.
        let _ = write!(text, "\n    {name}: recorded {:?}, now {:?}", version(recorded), version(now));
    }
    text
}
