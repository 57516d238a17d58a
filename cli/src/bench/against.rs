//! `homespun bench --against`: runs the same unmodified programs over homespun and over the providers of
//! an installed libfabric, and compares their results.

mod comparison;
mod floor;
pub(super) mod libfabric;
pub(crate) mod on_core;
mod output;
mod program;
mod program_pair;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use homespun::info::PROVIDER_NAME;

use self::comparison::Comparison;
use self::libfabric::InstalledLibfabric;
use super::figure::{self, CaseRow};
use super::figure_report::{FigureReport, LibfabricReport};
use super::providers::Providers;
use super::sleep::{self, SleepReport, SleepTables};
use super::survey::MeasuredDomain;
use super::{figure_table, record};
use crate::cache_topology::CacheTopology;
use crate::console::Console;
use crate::cores::AllowedCores;
use crate::failure::CommandFailure;
use crate::host::HostDescription;

/// The environment variable that names the directory of fabtests' programs.
const FABTESTS: &str = "FABTESTS";

/// The default number of rounds, and the approximate duration of each contender's turn in a round.
const ROUNDS: u32 = 5;
const ROUND_MS: u32 = 60;

/// With `--quick`: the number of rounds, and the approximate duration of each contender's turn in a
/// round.
const ROUNDS_QUICK: u32 = 3;
const ROUND_QUICK_MS: u32 = 10;

/// The default sizes of messages.
const SIZES: [usize; 9] = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const SIZES_QUICK: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];

/// The options of the command.
#[derive(Debug)]
pub(super) struct ComparisonRequest<'a> {
    pub(super) providers: &'a Providers,
    /// The prefix of the libfabric installation.
    pub(super) prefix: Option<&'a PathBuf>,
    /// How libfabric was built, in the user's words.
    pub(super) built: Option<&'a str>,
    pub(super) sizes: Option<&'a [usize]>,
    pub(super) rounds: Option<u32>,
    pub(super) quick: bool,
    pub(super) json: bool,
    pub(super) plots: Option<&'a PathBuf>,
    pub(super) record: Option<&'a PathBuf>,
    /// The file in which the summary tables are replaced.
    pub(super) readme: Option<&'a PathBuf>,
    pub(super) pinned: bool,
    pub(super) timeout: Duration,
}

/// Measures, shows the results, and writes the requested files.
///
/// # Errors
///
/// A failure of the setup, of a bare loop or of the output. [`CommandFailure::Incomplete`] if a contender
/// lacks a measurement. If no contender does, the failure of the sleep measurement.
pub(super) fn run(request: &ComparisonRequest<'_>, console: &mut Console) -> Result<(), CommandFailure> {
    if let Some(file) = request.readme {
        record::require_table_markers(file)?;
    }
    let libfabric = InstalledLibfabric::find(request.prefix.map(PathBuf::as_path))?;
    for provider in [PROVIDER_NAME].into_iter().chain(request.providers.names().iter().map(String::as_str)) {
        libfabric.require_provider(provider)?;
    }
    let places = core_pairs_to_measure(request.pinned)?;
    let sleepers_cores = AllowedCores::of_this_process().choose_pair().filter(|_| request.pinned);
    let fabtests = env::var_os(FABTESTS).filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let (rounds, round_ms, sizes) = match request.quick {
        true => (ROUNDS_QUICK, ROUND_QUICK_MS, &SIZES_QUICK[..]),
        false => (ROUNDS, ROUND_MS, &SIZES[..]),
    };
    let comparison = Comparison {
        libfabric: &libfabric,
        fabtests: fabtests.as_deref(),
        providers: request.providers.names(),
        sizes: request.sizes.unwrap_or(sizes),
        rounds: request.rounds.unwrap_or(rounds),
        round_ms,
        places: &places,
        timeout: request.timeout,
        shows_rows: !request.json,
    };
    let mut report = FigureReport {
        homespun_version: env!("CARGO_PKG_VERSION"),
        host: HostDescription::of_this_host(),
        libfabric: LibfabricReport {
            version: libfabric.version().to_owned(),
            built: request.built.map(str::to_owned),
        },
        providers: request.providers.names().to_vec(),
        has_fabtests: fabtests.is_some(),
        has_prefix: request.prefix.is_some(),
        is_quick: request.quick,
        rounds: comparison.rounds,
        figures: Vec::new(),
        sleep: None,
    };
    if !request.json {
        print_head(&report, &libfabric, console)?;
    }
    report.figures = comparison.measure_all_figures(console)?;
    let slept = match measure_sleep_and_print(request, comparison.rounds, sleepers_cores, console) {
        Ok(sleep) => {
            let slept = sleep.require_success();
            report.sleep = Some(sleep);
            slept
        }
        // The results of the programs are shown before this failure is returned.
        Err(failure) => Err(failure),
    };
    if request.json {
        console.print_json(&report)?;
    }
    if let Some(directory) = request.plots {
        record::write_drawings(&report, directory)?;
    }
    if let Some(directory) = request.record {
        record::write_record(&report, directory)?;
    }
    if let Some(file) = request.readme {
        record::replace_tables_in_file(&report, file)?;
    }
    let rows = || report.figures.iter().flat_map(|figure| &figure.rows);
    match rows().filter(|row| !CaseRow::is_complete(row)).count() {
        0 => slept,
        missing => {
            if let Err(failure) = slept {
                console.print_warning(failure);
            }
            Err(CommandFailure::Incomplete { missing, all: rows().count() })
        }
    }
}

/// Measures the same providers while processes poll, sleep and idle, and shows the tables.
fn measure_sleep_and_print(
    request: &ComparisonRequest<'_>,
    rounds: u32,
    cores: Option<(usize, usize)>,
    console: &mut Console,
) -> Result<SleepReport, CommandFailure> {
    let has_rival = |domain: &MeasuredDomain| {
        request.providers.names().iter().any(|name| MeasuredDomain::of_provider(name) == *domain)
    };
    let domains: Vec<MeasuredDomain> = MeasuredDomain::ALL.into_iter().filter(has_rival).collect();
    let report = sleep::measure(
        &sleep::SleepRequest {
            domains: &domains,
            providers: Some(request.providers),
            prefix: request.prefix.map(PathBuf::as_path),
            sizes: request.sizes,
            rounds: Some(rounds),
            quick: request.quick,
            json: request.json,
            cores,
            timeout: request.timeout,
        },
        console,
    )?;
    if !request.json {
        console.print_line(format_args!("\n{}", SleepTables(&report)))?;
    }
    Ok(report)
}

/// The pairs of cores to measure on, one after the other.
fn core_pairs_to_measure(pinned: bool) -> Result<Vec<Option<figure::ComparedCores>>, CommandFailure> {
    if !pinned {
        return Ok(vec![None]);
    }
    let cores = AllowedCores::of_this_process();
    let pairs = cores.choose_pairs_to_compare(&CacheTopology::of_this_host());
    if pairs.is_empty() {
        return Err(CommandFailure::OneCore { available: cores.describe_core_count() });
    }
    let place = |pair: crate::cores::CorePair| {
        Some(figure::ComparedCores { numbers: (pair.first, pair.second), sharing: pair.sharing })
    };
    Ok(pairs.into_iter().map(place).collect())
}

/// Prints the lines above all tables.
fn print_head(
    report: &FigureReport,
    libfabric: &InstalledLibfabric,
    console: &Console,
) -> Result<(), CommandFailure> {
    let built = report.libfabric.built.as_ref().map(|built| format!(", built {built}")).unwrap_or_default();
    let (version, place) = (libfabric.version(), libfabric.describe_library_path());
    console.print_wrapped(format_args!("libfabric {version}{built} ({place})"))?;
    console.print_wrapped(format_args!("{}; {}", report.host.kernel, report.host.processor))?;
    console.print_line(format_args!("times in µs: medians over {} rounds of turns", report.rounds))?;
    console.print_wrapped(figure_table::ABOUT_RATIOS)?;
    console.print_wrapped(figure_table::ABOUT_PERCENTILES)
}
