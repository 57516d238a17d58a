//! The results of `bench --rpma` as text for a terminal: a heading, and a row for each kind of flush and
//! each size.

use super::report::FlushReport;
use crate::bench::percentiles::Percentiles;
use crate::bench::table::{align_columns, format_narrow_or_dash};
use crate::size;

const HEADING: [&str; 9] =
    ["flush", "size", "latency", "p50", "p99", "bare us", "bare p99", "ratio", "bare loop"];

/// A row with the longest name of a bare loop has 76 characters.
const WIDTHS: [usize; 8] = [10, 5, 7, 6, 6, 7, 8, 6];

/// The heading of the rows of a domain.
pub(super) fn flush_heading(domain: &str) -> String {
    let heading = align_columns(&HEADING.map(str::to_owned), &WIDTHS);
    format!("domain {domain}, write and flush\n{heading}")
}

/// The results of one kind of flush in one size.
pub(super) fn flush_row(report: &FlushReport) -> String {
    let [_, _, time_width, p50_width, p99_width, bare_width, bare_p99_width, ratio_width] = WIDTHS;
    let p50_us = |percentiles: Percentiles| percentiles.p50_us;
    let p99_us = |percentiles: Percentiles| percentiles.p99_us;
    let words = [
        report.flush.to_owned(),
        size::format(report.size_bytes as u64),
        format_narrow_or_dash(Some(report.latency_us), time_width),
        format_narrow_or_dash(report.latency_percentiles.map(p50_us), p50_width),
        format_narrow_or_dash(report.latency_percentiles.map(p99_us), p99_width),
        format_narrow_or_dash(Some(report.bare_latency_us), bare_width),
        format_narrow_or_dash(report.bare_latency_percentiles.map(p99_us), bare_p99_width),
        format_narrow_or_dash(Some(report.latency_ratio), ratio_width),
        report.bare_loop.to_owned(),
    ];
    align_columns(&words, &WIDTHS)
}

#[cfg(test)]
mod tests {
    use homespun_rpma::FlushType;

    use super::super::report::tests::make_flush_report;
    use super::*;
    use crate::console::WIDTH;

    #[test]
    fn columns_of_flushes_are_aligned() {
        let rows = [
            flush_heading("shm"),
            flush_row(&make_flush_report(FlushType::Visibility, 8)),
            flush_row(&make_flush_report(FlushType::Persistent, 1 << 20)),
        ];
        let expected = "\
domain shm, write and flush
     flush  size latency    p50    p99 bare us bare p99  ratio  bare loop
visibility     8    4.00   4.00   5.00    2.00        -   2.00  memcpy
persistent    1M    4.00   4.00   5.00    2.00        -   2.00  memcpy+msync";
        assert_eq!(rows.join("\n"), expected);
    }

    #[test]
    fn row_of_wide_numbers_fits_a_terminal() {
        let mut report = make_flush_report(FlushType::Persistent, 1023);
        report.latency_us = 123_456_789.0;
        report.bare_latency_us = 1.0 / 123_456.0;
        report.latency_ratio = 123_456_789.0;
        let row = flush_row(&report);
        assert!(row.chars().count() <= WIDTH, "{row}");
        assert_eq!(row.split_whitespace().count(), HEADING.len(), "{row}");
    }
}
