//! The results as one JSON document.
//!
//! Later versions keep the names and meanings of fields, and may add fields. The name of a number ends
//! with its unit.

use serde::Serialize;

/// The whole document, which `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// The version of homespun.
    pub(super) homespun_version: &'static str,
    /// Whether the messages had tags.
    pub(super) tagged: bool,
    /// Whether every byte was checked. The times include that work.
    pub(super) checked: bool,
    /// The measured domains, in order.
    pub(super) domains: Vec<DomainResult>,
}

/// The results of a domain.
#[derive(Debug, Serialize)]
pub(super) struct DomainResult {
    /// The name of the domain.
    pub(super) domain: String,
    /// The address of this process.
    pub(super) client_address: String,
    /// The address of the other process.
    pub(super) server_address: String,
    /// The core on which this process stays; `null` if the system chooses.
    pub(super) client_core: Option<usize>,
    /// The core of the other process; `null` if the system chooses the core, or if this process does not
    /// know it.
    pub(super) server_core: Option<usize>,
    /// The results of each size, in the requested order.
    pub(super) sizes: Vec<SizeResult>,
}

/// The results of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct SizeResult {
    /// The length of a message.
    pub(super) size_bytes: usize,
    /// The number of measured round trips.
    pub(super) round_trips: u32,
    /// Half the time of a round trip: the median over batches.
    pub(super) latency_us: f64,
    /// The number of measured one-way messages.
    pub(super) messages: u32,
    /// The time of a one-way message while many messages are in flight: the median over rounds.
    pub(super) message_us: f64,
    /// The bandwidth of one-way messages in 10^6 bytes a second; `null` for empty messages.
    pub(super) bandwidth_mb_per_s: Option<f64>,
}

impl SizeResult {
    /// Computes the bandwidth from the size and the time of a message.
    pub(super) fn with_bandwidth(self) -> SizeResult {
        // One byte a microsecond is one megabyte a second.
        let bandwidth_mb_per_s =
            (self.size_bytes > 0 && self.message_us > 0.0).then(|| self.size_bytes as f64 / self.message_us);
        SizeResult { bandwidth_mb_per_s, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_result(size_bytes: usize) -> SizeResult {
        let result = SizeResult {
            size_bytes,
            round_trips: 1,
            latency_us: 10.0,
            messages: 7,
            message_us: 2.0,
            bandwidth_mb_per_s: None,
        };
        result.with_bandwidth()
    }

    #[test]
    fn bandwidth_follows_from_the_time_of_a_message() {
        assert_eq!(make_result(4096).bandwidth_mb_per_s, Some(2048.0));
        assert_eq!(make_result(0).bandwidth_mb_per_s, None, "an empty message has none");
    }

    #[test]
    fn fields_keep_their_order() {
        let text = serde_json::to_string(&make_result(0)).unwrap();
        let expected = "{\"size_bytes\":0,\"round_trips\":1,\"latency_us\":10.0,\"messages\":7,\
                        \"message_us\":2.0,\"bandwidth_mb_per_s\":null}";
        assert_eq!(text, expected);
    }
}
