//! The table of results.

use std::fmt;

use crate::size;

/// The results of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SizeRow {
    /// The length of a message.
    pub(super) size_bytes: usize,
    /// The number of measured round trips.
    pub(super) round_trips: u32,
    /// Half the time of a round trip: the median over batches.
    pub(super) latency_us: f64,
    /// The number of measured one-way messages.
    pub(super) messages: u32,
    /// The time of a one-way message: the median over rounds.
    pub(super) message_us: f64,
}

/// The names of the columns.
#[derive(Debug)]
pub(super) struct Heading;

impl SizeRow {
    /// The bandwidth in megabytes a second; `None` for empty messages.
    fn bandwidth_mb_per_s(&self) -> Option<f64> {
        // One byte a microsecond is one megabyte a second.
        (self.size_bytes > 0 && self.message_us > 0.0).then(|| self.size_bytes as f64 / self.message_us)
    }
}

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, ["size", "round trips", "latency us", "messages", "MB/s"])
    }
}

impl fmt::Display for SizeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency_us = self.latency_us;
        let bandwidth =
            self.bandwidth_mb_per_s().map_or_else(|| "-".into(), |bandwidth| format!("{bandwidth:.1}"));
        let columns = [
            size::format(self.size_bytes as u64),
            self.round_trips.to_string(),
            format!("{latency_us:.2}"),
            self.messages.to_string(),
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
        let row = SizeRow {
            size_bytes: 4096,
            round_trips: 1234,
            latency_us: 12.35,
            messages: 1000,
            message_us: 2.0,
        };
        assert_eq!(Heading.to_string(), "    size   round trips    latency us    messages        MB/s");
        assert_eq!(row.to_string(), "      4K          1234         12.35        1000      2048.0");
    }

    #[test]
    fn empty_message_has_no_bandwidth() {
        let row = SizeRow { size_bytes: 0, round_trips: 1, latency_us: 10.0, messages: 7, message_us: 1.0 };
        assert_eq!(row.to_string(), "       0             1         10.00           7           -");
    }
}
