//! The results of a comparison: the document that `--against --json` prints, and the source of a record.
//!
//! Fields keep their names and meanings; new ones may be added. Only `libfabric` in `sleep` names a directory
//! of this host.

use serde::Serialize;

use super::figure::Figure;
use super::sleep::SleepReport;
use crate::host::Host;

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct FigureReport {
    /// The version of homespun.
    pub(super) homespun_version: &'static str,
    #[serde(flatten)]
    pub(super) host: Host,
    pub(super) libfabric: LibfabricReport,
    /// The providers that homespun was compared with.
    pub(super) providers: Vec<String>,
    /// Whether programs of fabtests took part.
    #[serde(skip)]
    pub(super) has_fabtests: bool,
    /// Whether `--libfabric` gave the prefix of the libfabric.
    #[serde(skip)]
    pub(super) has_prefix: bool,
    /// Whether `--quick` was given.
    #[serde(rename = "quick")]
    pub(super) is_quick: bool,
    /// The number of rounds that the medians are over.
    pub(super) rounds: u32,
    pub(super) figures: Vec<Figure>,
    /// The same providers polled, asleep and idle; null if that could not be measured at all.
    pub(super) sleep: Option<SleepReport>,
}

/// The libfabric in which all programs ran.
#[derive(Debug, Serialize)]
pub(super) struct LibfabricReport {
    pub(super) version: String,
    /// The words of `--libfabric-built`, which say how it was built; null without the option.
    pub(super) built: Option<String>,
}
