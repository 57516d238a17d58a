//! The table of results for a terminal. The columns have fixed widths, because each row appears as soon
//! as it is measured.

use std::fmt;

use super::document::SizeResult;
use crate::size;

/// The names of the columns.
#[derive(Debug)]
pub(super) struct Heading;

/// The results of one size as a row.
#[derive(Debug)]
pub(super) struct SizeRow(pub(super) SizeResult);

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, ["size", "round trips", "latency us", "messages", "MB/s"])
    }
}

impl fmt::Display for SizeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SizeResult { size_bytes, round_trips, latency_us, messages, bandwidth_mb_per_s, .. } = self.0;
        let bandwidth = bandwidth_mb_per_s.map_or_else(|| "-".into(), |bandwidth| format!("{bandwidth:.1}"));
        let columns = [
            size::format(size_bytes as u64),
            round_trips.to_string(),
            format!("{latency_us:.2}"),
            messages.to_string(),
            bandwidth,
        ];
        write_line(f, columns.each_ref().map(String::as_str))
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, columns: [&str; 5]) -> fmt::Result {
    let [size, round_trips, latency, messages, bandwidth] = columns;
    write!(f, "{size:>8}{round_trips:>14}{latency:>14}{messages:>12}{bandwidth:>12}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let result = SizeResult {
            size_bytes: 4096,
            round_trips: 1234,
            latency_us: 12.35,
            messages: 1000,
            message_us: 2.0,
            bandwidth_mb_per_s: Some(2048.0),
        };
        assert_eq!(Heading.to_string(), "    size   round trips    latency us    messages        MB/s");
        assert_eq!(
            SizeRow(result).to_string(),
            "      4K          1234         12.35        1000      2048.0"
        );
        let empty = SizeResult { size_bytes: 0, bandwidth_mb_per_s: None, ..result };
        assert_eq!(
            SizeRow(empty).to_string(),
            "       0          1234         12.35        1000           -"
        );
    }
}
