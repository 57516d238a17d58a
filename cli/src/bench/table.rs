//! The results of a domain as text for a terminal: a heading, and a row for each size.

use super::report::{AccessReport, SizeReport};
use crate::console::wrap;
use crate::size;

/// The columns of messages. A row with the longest bare loop's name has 79 characters.
const HEADING: [&str; 11] =
    ["size", "latency", "p50", "p99", "bare us", "ratio", "M msg/s", "MB/s", "bare", "ratio", "bare loop"];

const WIDTHS: [usize; 10] = [5, 7, 5, 5, 7, 5, 7, 6, 6, 5];

/// The columns of accesses. There is no room for the bandwidth of the bare loop.
const ACCESS_HEADING: [&str; 11] = [
    "operation",
    "size",
    "latency",
    "p50",
    "p99",
    "bare us",
    "ratio",
    "M op/s",
    "MB/s",
    "ratio",
    "bare loop",
];

const ACCESS_WIDTHS: [usize; 10] = [9, 5, 7, 5, 5, 7, 5, 6, 6, 5];

/// The heading of the rows of messages.
pub(super) fn message_heading(domain: &str) -> String {
    format!("domain {domain}\n{}", align_columns(&HEADING.map(str::to_owned), &WIDTHS))
}

/// The results of messages of one size.
pub(super) fn message_row(report: &SizeReport) -> String {
    align_columns(&format_columns(report), &WIDTHS)
}

/// The heading of the rows of messages from memory that the receiver maps.
pub(super) fn send_buffer_heading(domain: &str) -> String {
    message_heading(&format!("{domain}, from send buffers"))
}

/// The heading of the rows of accesses.
pub(super) fn access_heading(domain: &str) -> String {
    let heading = align_columns(&ACCESS_HEADING.map(str::to_owned), &ACCESS_WIDTHS);
    format!("domain {domain}, access to memory\n{heading}")
}

/// The results of one operation in one size.
pub(super) fn access_row(report: &AccessReport) -> String {
    let [size, latency, p50, p99, bare, ratio, rate, bandwidth, _, message_ratio, bare_loop] =
        format_columns(&report.figures);
    let operation = report.operation.to_owned();
    let words = [operation, size, latency, p50, p99, bare, ratio, rate, bandwidth, message_ratio, bare_loop];
    align_columns(&words, &ACCESS_WIDTHS)
}

/// A note for hosts where processes may not read the memory of each other.
pub(super) fn format_readv_note(refusal: &str) -> String {
    let note =
        format!("process_vm_readv is not allowed here ({refusal}): large messages are compared with rings");
    wrap(&note, "", "")
}

fn format_columns(report: &SizeReport) -> [String; HEADING.len()] {
    let [_, time_width, percentile_width, _, bare_width, ratio_width, _, rate_width, _, _] = WIDTHS;
    let percentiles = report.latency_percentiles;
    let percentile = |time_us| format_narrow_or_dash(time_us, percentile_width);
    let rate = |number| format_narrow_or_dash(number, rate_width);
    let ratio = |number| format_narrow_or_dash(Some(number), ratio_width);
    let bare_loops = [report.bare_loop, report.bare_message_loop].map(short_loop_name);
    [
        size::format(report.size_bytes as u64),
        format_narrow_or_dash(Some(report.latency_us), time_width),
        percentile(percentiles.map(|percentiles| percentiles.p50_us)),
        percentile(percentiles.map(|percentiles| percentiles.p99_us)),
        format_narrow_or_dash(Some(report.bare_latency_us), bare_width),
        ratio(report.latency_ratio),
        rate(Some(report.messages_per_s / 1e6)),
        rate(report.bandwidth_mb_per_s),
        rate(report.bare_bandwidth_mb_per_s),
        ratio(report.message_time_ratio),
        if bare_loops[0] == bare_loops[1] { bare_loops[0].clone() } else { bare_loops.join(",") },
    ]
}

/// Formats a number with three significant digits. If that text would be wider than `width`, formats the
/// number like `1.2e5`. Returns a dash for `None`.
pub(super) fn format_narrow_or_dash(number: Option<f64>, width: usize) -> String {
    let Some(number) = number else { return "-".into() };
    let text = format_significant(number);
    if text.len() <= width { text } else { format!("{number:.1e}") }
}

/// The short name of a bare loop, for tables: `readv` for `process_vm_readv`, `p16K` for
/// `pipelined-16K`.
pub(super) fn short_loop_name(name: &str) -> String {
    let name = name.strip_prefix("process_vm_").unwrap_or(name);
    name.strip_prefix("pipelined-").map_or_else(|| name.to_owned(), |chunk| format!("p{chunk}"))
}

/// A number with three significant digits. Digits before the decimal point are never rounded away.
pub(super) fn format_significant(number: f64) -> String {
    let magnitude = number.abs().max(1e-6).log10().floor();
    // The magnitude is between -6 and 308, so the number of decimals is small.
    let decimals = (2.0 - magnitude).max(0.0) as usize;
    format!("{number:.decimals$}")
}

/// Joins columns by spaces. A column with a width is aligned to the right. The last column has no width.
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
    use crate::console::WIDTH;

    #[test]
    fn columns_are_aligned() {
        let mut mixed = make_size_report(1 << 20, Way::Readv);
        mixed.bare_message_loop = Way::Pipelined(Chunk::ALL[2]).name();
        let rows =
            [message_heading("shm"), message_row(&make_size_report(8, Way::Ring)), message_row(&mixed)];
        let expected = "\
domain shm
 size latency   p50   p99 bare us ratio M msg/s   MB/s   bare ratio  bare loop
    8    3.00  3.00  9.00    2.00  1.50    2.00   16.0   32.0  2.00  ring
   1M    3.00  3.00  9.00    2.00  1.50    2.00  2.1e6  4.2e6  2.00  readv,p16K";
        assert_eq!(rows.join("\n"), expected);
    }

    #[test]
    fn columns_of_accesses_are_aligned() {
        let rows = [
            access_heading("tcp"),
            access_row(&make_access_report("write", 8, Way::Socket)),
            access_row(&make_access_report("fetch-add", 1 << 10, Way::Socket)),
        ];
        let expected = "\
domain tcp, access to memory
operation  size latency   p50   p99 bare us ratio M op/s   MB/s ratio  bare loop
    write     8    3.00  3.00  9.00    2.00  1.50   2.00   16.0  2.00  socket
fetch-add    1K    3.00  3.00  9.00    2.00  1.50   2.00   2048  2.00  socket";
        assert_eq!(rows.join("\n"), expected);
    }

    #[test]
    fn rows_with_the_longest_names_fit_a_terminal() {
        let loops = [Way::Readv.name(), Way::Pipelined(Chunk::ALL[4]).name()].map(short_loop_name).join(",");
        let row = |widths: &[usize], last: &str| {
            widths.iter().map(|width| width + 1).sum::<usize>() + 1 + last.len()
        };
        assert!(row(&WIDTHS, &loops) <= WIDTH, "{}", row(&WIDTHS, &loops));
        assert!(row(&ACCESS_WIDTHS, "bare loop") <= WIDTH, "{}", row(&ACCESS_WIDTHS, "bare loop"));
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
    fn numbers_that_are_too_wide_are_powers_of_ten() {
        let numbers = [0.000_013_2, 0.0132, 1.0, 12_345.0, 123_456.0]
            .map(|number| format_narrow_or_dash(Some(number), 6));
        assert_eq!(numbers, ["1.3e-5", "0.0132", "1.00", "12345", "123456"]);
        assert_eq!(format_narrow_or_dash(Some(1_234_567.0), 6), "1.2e6");
        assert_eq!(format_narrow_or_dash(None, 6), "-");
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        let numbers = [0.0, 0.000_497_3, 0.0412, 0.5, 1.234, 98.76, 1234.5].map(format_significant);
        assert_eq!(numbers, ["0.00000000", "0.000497", "0.0412", "0.500", "1.23", "98.8", "1234"]);
    }
}
