//! The results of `homespun bench`. `--json` prints them as a document, and the tables show them.
//!
//! Later versions keep the names and meanings of fields, and may add fields. A field is `null` if it was
//! not measured, or does not apply to the size.

use serde::Serialize;

use super::percentiles::Percentiles;

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    /// The version of homespun.
    pub(super) homespun_version: &'static str,
    /// Whether the fabric's messages had tags.
    pub(super) tagged: bool,
    /// The number of rounds over which medians are taken.
    pub(super) rounds: u32,
    /// The cores of the two processes; `null` if the system chose them.
    pub(super) cores: Option<[usize; 2]>,
    /// The measured domains, in order.
    pub(super) domains: Vec<DomainReport>,
}

/// The results of a domain.
#[derive(Debug, Serialize)]
pub(super) struct DomainReport {
    /// The domain's name: `shm` or `tcp`.
    pub(super) domain: &'static str,
    /// Whether each of the two processes can read the memory of the other; `null` if the domain does not
    /// use such reads.
    pub(super) cross_memory_copy: Option<bool>,
    /// The system's reason why one process cannot read the memory of the other.
    pub(super) cross_memory_copy_refusal: Option<String>,
    /// The results of messages, in the requested order of sizes.
    pub(super) sizes: Vec<SizeReport>,
    /// The results of messages from memory that the receiver maps, in the requested order of sizes. The bare
    /// loop is one copy by the receiver (`memcpy`).
    pub(super) send_buffers: Vec<SizeReport>,
    /// The results of accesses, for each operation in each size.
    pub(super) accesses: Vec<AccessReport>,
}

/// The results of one operation on the memory of the other process, for one size.
#[derive(Debug, Serialize)]
pub(super) struct AccessReport {
    /// The operation: `write`, `read` or `fetch-add`.
    pub(super) operation: &'static str,
    /// The same fields as for messages, but latency is the time from the post of an access to its
    /// completion, and rates count accesses. The bare latency is the time of a copy with a fence
    /// (`memcpy`). For `ring` and `socket` it is half of a round trip with the payload plus half of a
    /// round trip with 8 bytes.
    #[serde(flatten)]
    pub(super) figures: SizeReport,
}

/// The results of messages of one size. All times are medians over rounds.
#[derive(Debug, Serialize)]
pub(super) struct SizeReport {
    /// The length of a message.
    pub(super) size_bytes: usize,
    /// The bare loop that gave the bare latency: `ring`, `process_vm_readv`, `socket`, or `pipelined-`
    /// and a chunk such as `16K`. For accesses: `memcpy`, `ring` or `socket`.
    pub(super) bare_loop: &'static str,
    /// The bare loop that gave the bare rate of one-way messages.
    pub(super) bare_message_loop: &'static str,
    /// Half the time of a round trip through the fabric.
    pub(super) latency_us: f64,
    /// Half the time of a round trip through the bare loop.
    pub(super) bare_latency_us: f64,
    /// `latency_us / bare_latency_us`: 1 at best.
    pub(super) latency_ratio: f64,
    /// Percentiles of the halved times of single round trips through the fabric. For accesses the times
    /// are not halved.
    pub(super) latency_percentiles: Option<Percentiles>,
    /// Percentiles of the halved times of single round trips through the bare loop. For accesses the
    /// times are not halved. `null` if the bare latency is the sum of two times.
    pub(super) bare_latency_percentiles: Option<Percentiles>,
    /// The rate of one-way messages through the fabric.
    pub(super) messages_per_s: f64,
    /// The rate of one-way messages through the bare loop.
    pub(super) bare_messages_per_s: f64,
    /// The fabric's time of a one-way message divided by the bare loop's time: at best 1.
    pub(super) message_time_ratio: f64,
    /// The bandwidth of one-way messages through the fabric, in 10^6 bytes a second; `null` for empty
    /// messages.
    pub(super) bandwidth_mb_per_s: Option<f64>,
    /// The bandwidth of one-way messages through the bare loop, in 10^6 bytes a second; `null` for empty
    /// messages.
    pub(super) bare_bandwidth_mb_per_s: Option<f64>,
    /// The rate of copies within one process, from shared to private memory, in 10^6 bytes a second;
    /// `null` for small sizes, and for domains without shared memory.
    pub(super) memcpy_mb_per_s: Option<f64>,
}

/// The measurements of one size: medians over rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Medians {
    pub(super) latency_us: f64,
    pub(super) bare_latency_us: f64,
    pub(super) latency_percentiles: Option<Percentiles>,
    pub(super) bare_latency_percentiles: Option<Percentiles>,
    /// The time of each of many one-way messages.
    pub(super) message_us: f64,
    pub(super) bare_message_us: f64,
    /// The time of a copy, if it was measured.
    pub(super) memcpy_us: Option<f64>,
}

impl SizeReport {
    /// `bare_names` are the bare loops' names: first of latency, then of one-way messages.
    pub(super) fn new(size_bytes: usize, bare_names: [&'static str; 2], medians: Medians) -> SizeReport {
        let [bare_loop, bare_message_loop] = bare_names;
        let Medians { latency_us, bare_latency_us, message_us, bare_message_us, memcpy_us, .. } = medians;
        // One byte a microsecond is one megabyte a second.
        let mb_per_s = |each_us: f64| (size_bytes > 0).then(|| quotient(size_bytes as f64, each_us));
        SizeReport {
            size_bytes,
            bare_loop,
            bare_message_loop,
            latency_us,
            bare_latency_us,
            latency_ratio: quotient(latency_us, bare_latency_us),
            latency_percentiles: medians.latency_percentiles,
            bare_latency_percentiles: medians.bare_latency_percentiles,
            messages_per_s: quotient(1e6, message_us),
            bare_messages_per_s: quotient(1e6, bare_message_us),
            message_time_ratio: quotient(message_us, bare_message_us),
            bandwidth_mb_per_s: mb_per_s(message_us),
            bare_bandwidth_mb_per_s: mb_per_s(bare_message_us),
            memcpy_mb_per_s: memcpy_us.and_then(mb_per_s),
        }
    }
}

/// Divides two times. A divisor below 10^-6 µs counts as 10^-6 µs, so the quotient is finite.
pub(super) fn quotient(dividend: f64, divisor_us: f64) -> f64 {
    dividend / divisor_us.max(1e-6)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::step::Way;
    use super::*;

    pub(crate) fn make_size_report(size_bytes: usize, bare: Way) -> SizeReport {
        let medians = Medians {
            latency_us: 3.0,
            bare_latency_us: 2.0,
            latency_percentiles: Some(Percentiles { p50_us: 3.0, p99_us: 9.0, samples: 100 }),
            bare_latency_percentiles: None,
            message_us: 0.5,
            bare_message_us: 0.25,
            memcpy_us: (bare == Way::Readv).then_some(0.125),
        };
        SizeReport::new(size_bytes, [bare.name(); 2], medians)
    }

    pub(crate) fn make_access_report(operation: &'static str, size_bytes: usize, bare: Way) -> AccessReport {
        AccessReport { operation, figures: make_size_report(size_bytes, bare) }
    }

    #[test]
    fn ratios_and_rates_follow_from_times() {
        let report = make_size_report(1000, Way::Readv);
        assert_eq!(report.latency_ratio, 1.5);
        assert_eq!(report.messages_per_s, 2e6);
        assert_eq!(report.message_time_ratio, 2.0);
        assert_eq!(report.bandwidth_mb_per_s, Some(2000.0));
        assert_eq!(report.memcpy_mb_per_s, Some(8000.0));
    }

    #[test]
    fn field_that_does_not_apply_is_null() {
        let report = serde_json::to_value(make_size_report(0, Way::Ring)).unwrap();
        assert_eq!(report["bandwidth_mb_per_s"], serde_json::Value::Null);
        assert_eq!(report["memcpy_mb_per_s"], serde_json::Value::Null);
        assert_eq!(report["bare_loop"], "ring");
    }

    #[test]
    fn access_report_has_the_fields_of_a_size_report() {
        let access = serde_json::to_value(make_access_report("read", 64, Way::Socket)).unwrap();
        let size = serde_json::to_value(make_size_report(64, Way::Socket)).unwrap();
        assert_eq!(access["operation"], "read");
        for (field, figure) in size.as_object().unwrap() {
            assert_eq!(&access[field], figure, "{field}");
        }
    }
}
