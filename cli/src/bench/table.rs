//! A domain's results, as people read them.

use std::fmt;

use super::report::{AccessReport, DomainReport, SizeReport};
use crate::size;

/// The messages of a domain, with what has to be said of it.
#[derive(Debug)]
pub(super) struct Table<'a>(pub(super) &'a DomainReport);

/// The accesses to memory of a domain.
#[derive(Debug)]
pub(super) struct AccessTable<'a>(pub(super) &'a DomainReport);

const HEADING: [&str; 10] = [
    "size",
    "latency us",
    "bare us",
    "ratio",
    "M msg/s",
    "MB/s",
    "bare MB/s",
    "ratio",
    "memcpy MB/s",
    "bare loop",
];

const WIDTHS: [usize; 9] = [5, 11, 10, 6, 9, 10, 10, 8, 12];

const ACCESS_HEADING: [&str; 10] = [
    "operation",
    "size",
    "latency us",
    "bare us",
    "ratio",
    "M op/s",
    "MB/s",
    "bare MB/s",
    "ratio",
    "bare loop",
];

const ACCESS_WIDTHS: [usize; 9] = [9, 5, 11, 10, 6, 9, 10, 10, 8];

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DomainReport { domain, cross_memory_copy_refusal: refusal, sizes, .. } = self.0;
        writeln!(f, "domain {domain}")?;
        line(f, HEADING.map(str::to_owned), WIDTHS)?;
        for size in sizes {
            writeln!(f)?;
            line(f, columns(size), WIDTHS)?;
        }
        if let Some(refusal) = refusal {
            write!(
                f,
                "\nprocess_vm_readv is barred here ({refusal}): large messages are compared with the ring"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for AccessTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DomainReport { domain, accesses, .. } = self.0;
        writeln!(f, "domain {domain}, access to memory")?;
        line(f, ACCESS_HEADING.map(str::to_owned), ACCESS_WIDTHS)?;
        for access in accesses {
            writeln!(f)?;
            line(f, access_columns(access), ACCESS_WIDTHS)?;
        }
        Ok(())
    }
}

/// As those of messages, without a comparison with copies.
fn access_columns(report: &AccessReport) -> [String; 10] {
    let [measured @ .., _, bare_loop] = columns(&report.figures);
    let [size, latency, bare, latency_ratio, rate, bandwidth, bare_bandwidth, ratio] = measured;
    let operation = report.operation.to_owned();
    [operation, size, latency, bare, latency_ratio, rate, bandwidth, bare_bandwidth, ratio, bare_loop]
}

fn columns(report: &SizeReport) -> [String; 10] {
    let rounded = |number: Option<f64>| number.map_or_else(|| "-".into(), |number| format!("{number:.1}"));
    [
        size::format(report.size_bytes as u64),
        format!("{:.3}", report.latency_us),
        format!("{:.3}", report.bare_latency_us),
        significant(report.latency_ratio),
        significant(report.messages_per_s / 1e6),
        rounded(report.bandwidth_mb_per_s),
        rounded(report.bare_bandwidth_mb_per_s),
        significant(report.message_rate_ratio),
        rounded(report.memcpy_mb_per_s),
        report.bare_loop.to_owned(),
    ]
}

/// A number with three significant digits, or all that stand before the point.
fn significant(number: f64) -> String {
    let magnitude = number.abs().max(1e-6).log10().floor();
    // From -6 to 308: a number of digits.
    let decimals = (2.0 - magnitude).max(0.0) as usize;
    format!("{number:.decimals$}")
}

/// Columns of at least these widths, never without a space between, and the last one to the left.
fn line(f: &mut fmt::Formatter<'_>, columns: [String; 10], widths: [usize; 9]) -> fmt::Result {
    let [columns @ .., bare_loop] = columns;
    for (column, width) in columns.iter().zip(widths) {
        write!(f, "{column:>width$} ")?;
    }
    write!(f, " {bare_loop}")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{access_report, size_report};
    use super::super::step::Way;
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let report = DomainReport {
            domain: "shm",
            cross_memory_copy: Some(true),
            cross_memory_copy_refusal: None,
            sizes: vec![size_report(8, Way::Ring), size_report(1 << 20, Way::Readv)],
            accesses: Vec::new(),
        };
        let expected = "\
domain shm
 size  latency us    bare us  ratio   M msg/s       MB/s  bare MB/s    ratio  memcpy MB/s  bare loop
    8       3.000      2.000   1.50      2.00       16.0       32.0    0.500            -  ring
   1M       3.000      2.000   1.50      2.00  2097152.0  4194304.0    0.500    8388608.0  process_vm_readv";
        assert_eq!(Table(&report).to_string(), expected);
    }

    #[test]
    fn columns_of_accesses_are_aligned() {
        let report = DomainReport {
            domain: "tcp",
            cross_memory_copy: None,
            cross_memory_copy_refusal: None,
            sizes: Vec::new(),
            accesses: vec![
                access_report("write", 8, Way::Socket),
                access_report("read", 1 << 20, Way::Socket),
            ],
        };
        let expected = "\
domain tcp, access to memory
operation  size  latency us    bare us  ratio    M op/s       MB/s  bare MB/s    ratio  bare loop
    write     8       3.000      2.000   1.50      2.00       16.0       32.0    0.500  socket
     read    1M       3.000      2.000   1.50      2.00  2097152.0  4194304.0    0.500  socket";
        assert_eq!(AccessTable(&report).to_string(), expected);
    }

    #[test]
    fn columns_that_are_too_wide_stay_apart() {
        let mut size = size_report(1, Way::Ring);
        size.latency_us = 123_456_789.0;
        size.bare_latency_us = 123_456_789.0;
        size.message_rate_ratio = 1e-6;
        size.messages_per_s = 1e-3;
        let report = DomainReport {
            domain: "shm",
            cross_memory_copy: None,
            cross_memory_copy_refusal: None,
            sizes: vec![size],
            accesses: Vec::new(),
        };
        let text = Table(&report).to_string();
        assert_eq!(text.lines().last().unwrap().split_whitespace().count(), HEADING.len(), "{text}");
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        let numbers = [0.0, 0.000_497_3, 0.0412, 0.5, 1.234, 98.76, 1234.5].map(significant);
        assert_eq!(numbers, ["0.00000000", "0.000497", "0.0412", "0.500", "1.23", "98.8", "1234"]);
    }

    #[test]
    fn what_is_not_allowed_is_said() {
        let report = DomainReport {
            domain: "shm",
            cross_memory_copy: Some(false),
            cross_memory_copy_refusal: Some("Operation not permitted".into()),
            sizes: vec![size_report(1 << 20, Way::Ring)],
            accesses: Vec::new(),
        };
        let text = Table(&report).to_string();
        assert!(text.ends_with(
            "process_vm_readv is barred here (Operation not permitted): large messages are compared with the ring"
        ));
    }
}
