//! A domain's results as text for a terminal: a heading, and a row for each size.

use super::report::{AccessReport, SizeReport};
use crate::size;

const COLUMNS: usize = 12;

const HEADING: [&str; COLUMNS] = [
    "size",
    "latency us",
    "p50",
    "p99",
    "bare us",
    "ratio",
    "M msg/s",
    "MB/s",
    "bare MB/s",
    "ratio",
    "memcpy MB/s",
    "bare loop",
];

const WIDTHS: [usize; COLUMNS - 1] = [5, 10, 8, 8, 9, 6, 8, 9, 9, 6, 11];

const ACCESS_HEADING: [&str; COLUMNS] = [
    "operation",
    "size",
    "latency us",
    "p50",
    "p99",
    "bare us",
    "ratio",
    "M op/s",
    "MB/s",
    "bare MB/s",
    "ratio",
    "bare loop",
];

const ACCESS_WIDTHS: [usize; COLUMNS - 1] = [9, 5, 10, 8, 8, 9, 6, 8, 9, 9, 6];

/// The heading of the rows of messages.
pub(super) fn message_heading(domain: &str) -> String {
    format!("domain {domain}\n{}", align_columns(&HEADING.map(str::to_owned), &WIDTHS))
}

/// The results of messages of one size.
pub(super) fn message_row(report: &SizeReport) -> String {
    align_columns(&format_columns(report), &WIDTHS)
}

/// The heading of the rows of accesses.
pub(super) fn access_heading(domain: &str) -> String {
    let heading = align_columns(&ACCESS_HEADING.map(str::to_owned), &ACCESS_WIDTHS);
    format!("domain {domain}, access to memory\n{heading}")
}

/// The results of one operation in one size. The columns are those of messages without the comparison with
/// copies.
pub(super) fn access_row(report: &AccessReport) -> String {
    let [measured @ .., _, bare_loop] = format_columns(&report.figures);
    let mut words = vec![report.operation.to_owned()];
    words.extend(measured);
    words.push(bare_loop);
    align_columns(&words, &ACCESS_WIDTHS)
}

/// A note for hosts where processes may not read the memory of each other.
pub(super) fn format_readv_note(refusal: &str) -> String {
    format!("process_vm_readv is not allowed here ({refusal}): large messages are compared with rings")
}

fn format_columns(report: &SizeReport) -> [String; COLUMNS] {
    let rounded = |number: Option<f64>| number.map_or_else(|| "-".into(), |number| format!("{number:.1}"));
    let time = |time_us: Option<f64>| time_us.map_or_else(|| "-".into(), |time_us| format!("{time_us:.3}"));
    let percentiles = report.latency_percentiles;
    let SizeReport { bare_loop, bare_message_loop, .. } = *report;
    [
        size::format(report.size_bytes as u64),
        time(Some(report.latency_us)),
        time(percentiles.map(|percentiles| percentiles.p50_us)),
        time(percentiles.map(|percentiles| percentiles.p99_us)),
        time(Some(report.bare_latency_us)),
        format_significant(report.latency_ratio),
        format_significant(report.messages_per_s / 1e6),
        rounded(report.bandwidth_mb_per_s),
        rounded(report.bare_bandwidth_mb_per_s),
        format_significant(report.message_time_ratio),
        rounded(report.memcpy_mb_per_s),
        if bare_loop == bare_message_loop {
            bare_loop.to_owned()
        } else {
            format!("{bare_loop}, {bare_message_loop}")
        },
    ]
}

/// A number with three significant digits, but always with all digits before the decimal point.
pub(super) fn format_significant(number: f64) -> String {
    let magnitude = number.abs().max(1e-6).log10().floor();
    // The magnitude is between -6 and 308, so the number of decimals is small.
    let decimals = (2.0 - magnitude).max(0.0) as usize;
    format!("{number:.decimals$}")
}

/// Joins columns of at least these widths, separated by a space. The last column is aligned to the left.
pub(super) fn align_columns(columns: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (column, width) in columns.iter().zip(widths) {
        line += &format!("{column:>width$} ");
    }
    line + &columns[widths.len()..].iter().map(|column| format!(" {column}")).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{make_access_report, make_size_report};
    use super::super::step::{Chunk, Way};
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut mixed = make_size_report(1 << 20, Way::Readv);
        mixed.bare_message_loop = Way::Pipelined(Chunk::ALL[2]).name();
        let rows =
            [message_heading("shm"), message_row(&make_size_report(8, Way::Ring)), message_row(&mixed)];
        let expected = "\
domain shm
 size latency us      p50      p99   bare us  ratio  M msg/s      MB/s bare MB/s  ratio memcpy MB/s  bare loop
    8      3.000    3.000    9.000     2.000   1.50     2.00      16.0      32.0   2.00           -  ring
   1M      3.000    3.000    9.000     2.000   1.50     2.00 2097152.0 4194304.0   2.00   8388608.0  \
process_vm_readv, pipelined-16K";
        assert_eq!(rows.join("\n"), expected);
    }

    #[test]
    fn columns_of_accesses_are_aligned() {
        let rows = [
            access_heading("tcp"),
            access_row(&make_access_report("write", 8, Way::Socket)),
            access_row(&make_access_report("read", 1 << 20, Way::Socket)),
        ];
        let expected = "\
domain tcp, access to memory
operation  size latency us      p50      p99   bare us  ratio   M op/s      MB/s bare MB/s  ratio  bare loop
    write     8      3.000    3.000    9.000     2.000   1.50     2.00      16.0      32.0   2.00  socket
     read    1M      3.000    3.000    9.000     2.000   1.50     2.00 2097152.0 4194304.0   2.00  socket";
        assert_eq!(rows.join("\n"), expected);
    }

    #[test]
    fn overlong_columns_stay_separated() {
        let mut size = make_size_report(1, Way::Ring);
        size.latency_us = 123_456_789.0;
        size.bare_latency_us = 123_456_789.0;
        size.message_time_ratio = 1e-6;
        size.messages_per_s = 1e-3;
        let row = message_row(&size);
        assert_eq!(row.split_whitespace().count(), HEADING.len(), "{row}");
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        let numbers = [0.0, 0.000_497_3, 0.0412, 0.5, 1.234, 98.76, 1234.5].map(format_significant);
        assert_eq!(numbers, ["0.00000000", "0.000497", "0.0412", "0.500", "1.23", "98.8", "1234"]);
    }
}
