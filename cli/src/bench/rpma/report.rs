//! The results of `bench --rpma`. `--json` prints them as a document, and the tables show them.
//!
//! Later versions keep the names and meanings of fields, and may add fields.

use homespun_rpma::FlushType;
use serde::Serialize;

use crate::bench::contest::PartRounds;
use crate::bench::percentiles::Percentiles;
use crate::bench::report::quotient;

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct RpmaReport {
    /// The version of homespun.
    pub(super) homespun_version: &'static str,
    /// The number of rounds over which medians are taken.
    pub(super) rounds: u32,
    /// The cores of the two processes; `null` if the system chose them.
    pub(super) cores: Option<[usize; 2]>,
    /// The directory of the file.
    pub(super) directory: String,
    /// The name of the file system that has the file; `null` if the kernel does not tell.
    pub(super) file_system: Option<String>,
    /// The measured domains, in order.
    pub(super) domains: Vec<RpmaDomainReport>,
}

/// The results of a domain.
#[derive(Debug, Serialize)]
pub(super) struct RpmaDomainReport {
    /// The domain's name: `shm` or `tcp`.
    pub(super) domain: &'static str,
    /// The results of both kinds of flushes, for each size.
    pub(super) flushes: Vec<FlushReport>,
}

/// The results of writes of one size, each with a flush behind it. All times are medians over rounds.
#[derive(Debug, Serialize)]
pub(super) struct FlushReport {
    /// The kind of the flush: `visibility` or `persistent`.
    pub(super) flush: &'static str,
    /// The length of a write.
    pub(super) size_bytes: usize,
    /// What a process does in place of it without a fabric: `memcpy`, or `memcpy+msync`.
    pub(super) bare_loop: &'static str,
    /// The time from the post of a write to the completion of the flush.
    pub(super) latency_us: f64,
    /// The time of the same by `bare_loop`.
    pub(super) bare_latency_us: f64,
    /// `latency_us / bare_latency_us`.
    pub(super) latency_ratio: f64,
    /// Percentiles of single writes with a flush.
    pub(super) latency_percentiles: Option<Percentiles>,
    /// Percentiles of the same by `bare_loop`.
    pub(super) bare_latency_percentiles: Option<Percentiles>,
}

/// The name of a kind of flushes in results.
pub(super) fn flush_name(flush_type: FlushType) -> &'static str {
    match flush_type {
        FlushType::Visibility => "visibility",
        FlushType::Persistent => "persistent",
    }
}

/// The name of what a process does without a fabric in place of a write and a flush.
fn bare_name(flush_type: FlushType) -> &'static str {
    match flush_type {
        FlushType::Visibility => "memcpy",
        FlushType::Persistent => "memcpy+msync",
    }
}

impl FlushReport {
    pub(super) fn new(
        flush_type: FlushType,
        size_bytes: usize,
        fabric: &PartRounds,
        bare: &PartRounds,
    ) -> FlushReport {
        let (latency_us, bare_latency_us) = (fabric.median_us(), bare.median_us());
        FlushReport {
            flush: flush_name(flush_type),
            size_bytes,
            bare_loop: bare_name(flush_type),
            latency_us,
            bare_latency_us,
            latency_ratio: quotient(latency_us, bare_latency_us),
            latency_percentiles: fabric.percentiles(),
            bare_latency_percentiles: bare.percentiles(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::exchange::timing::Timing;

    pub(crate) fn make_flush_report(flush_type: FlushType, size_bytes: usize) -> FlushReport {
        let (mut fabric, mut bare) = (PartRounds::new(), PartRounds::new());
        for each_us in [5.0, 3.0, 4.0] {
            fabric.add_round(&Timing { each_us, singles_us: vec![each_us; 9] });
            bare.add_round(&Timing { each_us: each_us / 2.0, singles_us: Vec::new() });
        }
        FlushReport::new(flush_type, size_bytes, &fabric, &bare)
    }

    #[test]
    fn report_has_medians_ratio_and_percentiles() {
        let report = make_flush_report(FlushType::Persistent, 64);
        assert_eq!((report.flush, report.bare_loop), ("persistent", "memcpy+msync"));
        assert_eq!((report.latency_us, report.bare_latency_us, report.latency_ratio), (4.0, 2.0, 2.0));
        assert_eq!(report.latency_percentiles.map(|percentiles| percentiles.samples), Some(27));
        assert_eq!(report.bare_latency_percentiles, None);
        let report = make_flush_report(FlushType::Visibility, 8);
        assert_eq!((report.flush, report.bare_loop), ("visibility", "memcpy"));
    }
}
