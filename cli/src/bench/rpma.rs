//! `homespun bench --rpma`: a write and the flush behind it, in librpma's terms.
//!
//! One process writes to memory of the other one, and flushes the write: to visibility in memory, or to
//! persistence in a mapped file. In turns with that, this process alone does what a program without a
//! fabric would do: it copies, or it copies to the mapped file and calls `msync(2)`.

mod flushed_file;
#[expect(unsafe_code, reason = "maps memory, and registers it in librpma's terms")]
mod memory;
mod pair;
mod report;
mod table;
pub(crate) mod target;

use std::path::Path;

use homespun_rpma::FlushType;

use self::flushed_file::{FilePlace, FlushedFile};
use self::memory::Mapping;
use self::pair::RpmaPair;
use self::report::{FlushReport, RpmaDomainReport, RpmaReport, flush_name};
use super::bare::{self, Copies, Copying};
use super::contest::PartRounds;
use super::pair::Placement;
use super::survey::MeasuredDomain;
use super::trial::calibrate_run;
use crate::console::Console;
use crate::exchange::measure::{self, Metric};
use crate::exchange::run::Run;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;
use crate::size;

/// The default lengths of writes.
const SIZES: [usize; 6] = [8, 64, 512, 4 << 10, 64 << 10, 1 << 20];

const FLUSH_TYPES: [FlushType; 2] = [FlushType::Visibility, FlushType::Persistent];

/// The options of the measurement.
#[derive(Debug)]
pub(super) struct RpmaRequest<'a> {
    pub(super) domains: &'a [MeasuredDomain],
    pub(super) sizes: Option<&'a [usize]>,
    pub(super) rounds: u32,
    /// The approximate time of each measurement in a round.
    pub(super) round_ms: u32,
    /// The directory of the file.
    pub(super) directory: &'a Path,
    pub(super) json: bool,
    pub(super) placement: Placement,
    /// How the two processes run, in words.
    pub(super) described_placement: String,
}

/// The two ways to write and flush, which take turns.
#[derive(Debug)]
struct Turns<'a> {
    pair: &'a mut RpmaPair,
    /// The same file as the target's.
    mapping: &'a Mapping,
    /// What is copied.
    source: &'a [u8],
    flush_type: FlushType,
}

/// Measures, and shows the results.
pub(super) fn run(request: &RpmaRequest<'_>, console: &mut Console) -> Result<(), CommandFailure> {
    let sizes = request.sizes.unwrap_or(&SIZES);
    // A region has at least one byte.
    let region_bytes = sizes.iter().copied().max().unwrap_or_default().max(1);
    let file = FlushedFile::create(request.directory, region_bytes)?;
    let place = FilePlace::of(&file);
    if !request.json {
        print_head(request, &place, console)?;
    }
    console.start_progress(request.domains.len() * FLUSH_TYPES.len() * sizes.len() * request.rounds as usize);
    let measured: Result<Vec<_>, CommandFailure> = request
        .domains
        .iter()
        .map(|domain| request.measure_domain(*domain, sizes, &file, region_bytes, console))
        .collect();
    console.end_progress();
    let report = RpmaReport {
        homespun_version: env!("CARGO_PKG_VERSION"),
        rounds: request.rounds,
        cores: request.placement.cores.map(|(own, other)| [own, other]),
        directory: place.directory.display().to_string(),
        file_system: place.file_system,
        domains: measured?,
    };
    if request.json { console.print_json(&report) } else { Ok(()) }
}

/// Prints the lines above all tables.
fn print_head(request: &RpmaRequest<'_>, place: &FilePlace, console: &Console) -> Result<(), CommandFailure> {
    console.print_line(format_args!(
        "one write with a flush behind it at a time; medians over {} rounds",
        request.rounds
    ))?;
    console.print_wrapped(&request.described_placement)?;
    let file_system = place.file_system.as_deref().unwrap_or("an unknown file system");
    console.print_wrapped(format_args!(
        "persistent: to a mapped file in {}, on {file_system}",
        place.directory.display()
    ))?;
    if place.is_in_memory() {
        console.print_wrapped(format_args!(
            "{file_system} has no device, so msync(2) writes nothing: --dir names another directory"
        ))?;
    }
    console.print_wrapped(
        "latency: from the post of the write to the completion of the flush, in us; p50, p99: percentiles of \
         single latencies",
    )?;
    console.print_wrapped(
        "bare us: a copy by one process, in us, and for persistent also an msync(2) of the file",
    )?;
    console.print_wrapped("ratio: the fabric's time divided by the bare one; above 1 the fabric is slower")
}

impl RpmaRequest<'_> {
    fn measure_domain(
        &self,
        domain: MeasuredDomain,
        sizes: &[usize],
        file: &FlushedFile,
        region_bytes: usize,
        console: &Console,
    ) -> Result<RpmaDomainReport, CommandFailure> {
        let mapping = Mapping::of_file(file.file(), region_bytes)
            .map_err(|error| CommandFailure::Bare { doing: "mapping the file", error })?;
        let mut pair = RpmaPair::start(domain, file, region_bytes, self.placement)?;
        let source = vec![1; region_bytes];
        let show = |line: String| if self.json { Ok(()) } else { console.print_line(line) };
        show(format!("\n{}", table::flush_heading(domain.name())))?;
        let mut flushes = Vec::new();
        for flush_type in FLUSH_TYPES {
            let mut turns = Turns { pair: &mut pair, mapping: &mapping, source: &source, flush_type };
            for &size_bytes in sizes {
                let report = self.measure_size(&mut turns, domain, size_bytes, console)?;
                show(table::flush_row(&report))?;
                flushes.push(report);
            }
        }
        Ok(RpmaDomainReport { domain: domain.name(), flushes })
    }

    /// Measures all rounds of one size.
    fn measure_size(
        &self,
        turns: &mut Turns<'_>,
        domain: MeasuredDomain,
        size_bytes: usize,
        console: &Console,
    ) -> Result<FlushReport, CommandFailure> {
        let name = format!("{} {}", flush_name(turns.flush_type), size::format_with_unit(size_bytes as u64));
        let calibrate = |time: &mut dyn FnMut(Run) -> Result<Timing, CommandFailure>| {
            calibrate_run(size_bytes, Metric::Latency, self.round_ms, |run| Ok(time(run)?.each_us))
        };
        let fabric_run = calibrate(&mut |run| turns.time_fabric(&run))?;
        let bare_run = calibrate(&mut |run| turns.time_bare(&run))?;
        let (mut fabric, mut bare) = (PartRounds::new(), PartRounds::new());
        for round in 1..=self.rounds {
            console.show_step(format!("{}, {name}, round {round} of {}", domain.name(), self.rounds));
            fabric.add_round(&turns.time_fabric(&fabric_run)?);
            bare.add_round(&turns.time_bare(&bare_run)?);
            console.advance_progress();
        }
        Ok(FlushReport::new(turns.flush_type, size_bytes, &fabric, &bare))
    }
}

impl Turns<'_> {
    fn time_fabric(&mut self, run: &Run) -> Result<Timing, CommandFailure> {
        self.pair.time_flushes(self.flush_type, run)
    }

    /// Times what this process does alone in place of a write and a flush.
    fn time_bare(&self, run: &Run) -> Result<Timing, CommandFailure> {
        match self.flush_type {
            FlushType::Visibility => {
                bare::time_copies(&Copies { copying: Copying::To, metric: Metric::Latency, run: *run })
            }
            FlushType::Persistent => measure::time_round_trips(run, || {
                self.mapping.write(&self.source[..run.size_bytes]);
                self.mapping
                    .sync(run.size_bytes)
                    .map_err(|error| CommandFailure::Bare { doing: "calling msync", error })
            }),
        }
    }
}
