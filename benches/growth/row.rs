//! A row of the table, and the table in the page.

use std::fs;

use crate::Result;

/// The content of each message.
pub(crate) const MESSAGE: &[u8] = &[7; 8];

/// The page with the tables.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/growth.md");

/// What a hub with some peers costs.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) who_connects: &'static str,
    pub(crate) peers: usize,
    /// The heap of the hub for each idle peer.
    pub(crate) heap_bytes: u64,
    /// The memory of rings that the hub has mapped for each peer, and the part of it that is resident.
    pub(crate) mapped_bytes: Option<(u64, u64)>,
    /// A pass while all peers are idle.
    pub(crate) idle_pass_ns: f64,
    /// Simulated: a pass that receives a message. Otherwise: a round trip with one peer.
    pub(crate) active_ns: f64,
    /// A pass while a send to each peer waits for room on its link.
    pub(crate) blocked_pass_ns: Option<f64>,
    /// A send to one peer.
    pub(crate) send_ns: Option<f64>,
    /// For each link: all peers leave.
    pub(crate) leave_ns: Option<f64>,
    /// For each link: the hub closes.
    pub(crate) close_ns: f64,
    pub(crate) connections_per_s: f64,
}

/// Returns the median of some samples, or 0 if there is none.
pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

/// The heads of the columns.
const HEADS: [&str; 11] = [
    "who connects",
    "peers",
    "heap, B/peer",
    "rings, KiB/peer",
    "idle pass, ns",
    "one active, ns",
    "all blocked, ns",
    "send, ns",
    "peer leaves, ns",
    "hub closes, ns/peer",
    "connections/s",
];

/// A cell without a figure.
const EMPTY: &str = "-";

/// Formats the rows of a transport as a table of Markdown, without empty columns. Times are also printed as
/// ratios to the first row with the same side that connects.
pub(crate) fn format_table(rows: &[Row]) -> String {
    let cells: Vec<_> = rows
        .iter()
        .map(|row| {
            let first = rows.iter().find(|first| first.who_connects == row.who_connects);
            format_cells(row, first.unwrap_or(row))
        })
        .collect();
    let is_shown = |column: &usize| cells.iter().any(|cells| cells[*column] != EMPTY);
    let shown: Vec<usize> = (0..HEADS.len()).filter(is_shown).collect();
    let format_line = |texts: Vec<&str>| format!("| {} |\n", texts.join(" | "));
    let mut table = format_line(shown.iter().map(|column| HEADS[*column]).collect());
    table.push_str(&format_line(
        shown.iter().map(|column| if *column == 0 { "---" } else { "---:" }).collect(),
    ));
    for cells in &cells {
        table.push_str(&format_line(shown.iter().map(|column| cells[*column].as_str()).collect()));
    }
    table
}

fn format_cells(row: &Row, first: &Row) -> [String; HEADS.len()] {
    let time = |ns: f64, first_ns: f64| {
        let ns_text = group_digits(ns.round() as u64);
        if row.peers == first.peers { ns_text } else { format!("{ns_text} ({:.2}x)", ns / first_ns) }
    };
    let optional_time = |ns: Option<f64>, first_ns: Option<f64>| match (ns, first_ns) {
        (Some(ns), Some(first_ns)) => time(ns, first_ns),
        _ => EMPTY.to_owned(),
    };
    let mapped = row.mapped_bytes.map_or(EMPTY.to_owned(), |(mapped_bytes, resident_bytes)| {
        format!("{} ({} resident)", mapped_bytes / 1024, resident_bytes / 1024)
    });
    [
        row.who_connects.to_owned(),
        group_digits(row.peers as u64),
        group_digits(row.heap_bytes),
        mapped,
        time(row.idle_pass_ns, first.idle_pass_ns),
        time(row.active_ns, first.active_ns),
        optional_time(row.blocked_pass_ns, first.blocked_pass_ns),
        optional_time(row.send_ns, first.send_ns),
        optional_time(row.leave_ns, first.leave_ns),
        time(row.close_ns, first.close_ns),
        group_digits(row.connections_per_s.round() as u64),
    ]
}

/// Replaces the table of a transport in the page.
pub(crate) fn write_table(transport: &str, rows: &[Row]) -> Result<()> {
    let begin = format!("<!-- {transport}, written by the benchmark: begin -->\n");
    let end = format!("<!-- {transport}, written by the benchmark: end -->");
    let page = fs::read_to_string(PAGE)?;
    let (before, rest) = page.split_once(&begin).ok_or("the page has no place for the table")?;
    let (_, after) = rest.split_once(&end).ok_or("the place for the table has no end")?;
    fs::write(PAGE, format!("{before}{begin}\n{}\n{end}{after}", format_table(rows)))?;
    Ok(())
}

/// Writes a number with a comma after each three digits.
pub(crate) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
