//! The results of a comparison. `--against --json` prints them, and `--record` writes them as a
//! document.
//!
//! Later versions keep the names and meanings of fields, and may add fields. The field `libfabric` in
//! `sleep` may name a directory of this host; no other field does.

use serde::Serialize;

use super::figure::Figure;
use super::sleep::SleepReport;
use crate::host::HostDescription;

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct FigureReport {
    /// The version of homespun.
    pub(super) homespun_version: &'static str,
    #[serde(flatten)]
    pub(super) host: HostDescription,
    pub(super) libfabric: LibfabricReport,
    /// The providers that homespun was compared with.
    pub(super) providers: Vec<String>,
    /// Whether the variable `FABTESTS` named a directory.
    #[serde(skip)]
    pub(super) has_fabtests: bool,
    /// Whether `--libfabric` was given.
    #[serde(skip)]
    pub(super) has_prefix: bool,
    /// Whether `--quick` was given.
    #[serde(rename = "quick")]
    pub(super) is_quick: bool,
    /// The number of rounds over which medians are taken.
    pub(super) rounds: u32,
    pub(super) figures: Vec<Figure>,
    /// The results of the same providers while processes poll, sleep and idle; null if this whole
    /// measurement failed.
    pub(super) sleep: Option<SleepReport>,
}

/// The libfabric in which all programs ran.
#[derive(Debug, Serialize)]
pub(super) struct LibfabricReport {
    pub(super) version: String,
    /// How libfabric was built, from `--libfabric-built`; null without that option.
    pub(super) built: Option<String>,
}
