//! What a comparison has found out: the document that `--against` with `--json` prints, and what a record is
//! made of.
//!
//! Fields keep their names and meanings; new ones may come. No field names a directory of this host, save
//! `libfabric` in `sleep`.

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
    /// Whether the libfabric was asked for by its prefix.
    #[serde(skip)]
    pub(super) has_prefix: bool,
    /// Whether the result was wanted soon.
    #[serde(rename = "quick")]
    pub(super) is_quick: bool,
    /// Over how many rounds the medians are.
    pub(super) rounds: u32,
    pub(super) figures: Vec<Figure>,
    /// The same providers polled, asleep and idle; null where that could not be measured at all.
    pub(super) sleep: Option<SleepReport>,
}

/// The libfabric in which all programs ran.
#[derive(Debug, Serialize)]
pub(super) struct LibfabricReport {
    pub(super) version: String,
    /// How it was built, in the words of `--libfabric-built`; null if nothing was said.
    pub(super) built: Option<String>,
}
