//! Measures figures (tables of results) row by row. A row has several rounds. In each round the bare
//! loop, homespun and every other contender take a turn.

use std::path::{Path, PathBuf};
use std::time::Duration;

use homespun::info::PROVIDER_NAME;

use super::super::figure::{Case, CaseRow, Cell, ComparedCores, Contender, Figure, Role, Samples, Spread};
use super::super::figure_table;
use super::super::pair::Placement;
use super::super::percentiles::Times;
use super::super::survey::MeasuredDomain;
use super::floor::{BareLoop, Floor, has_floor};
use super::libfabric::InstalledLibfabric;
use super::output;
use super::program::{ComparedProvider, Program};
use super::program_pair::{Conditions, ProgramPair, find_free_port};
use crate::console::Console;
use crate::exchange::measure::{self, Metric};
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;
use crate::size;

/// The name of the bare loop among the contenders.
const FLOOR_NAME: &str = "bare loop";

/// How often a failing program is started before its failure counts.
const TRIES: u32 = 3;

/// The number of operations in the trial run, and the bounds for a round. The trial run's time
/// determines the number of operations in a round. The lower bound is for bandwidth: it exceeds the
/// number of operations that a program keeps in flight.
const TRIAL_ITERATIONS: usize = 100;
const ITERATIONS_MIN: usize = 100;
const ITERATIONS_MAX: usize = 200_000;

/// The smallest number of round trips in a round. It is small: a round trip between threads that share a
/// core may take milliseconds.
const ROUND_TRIPS_MIN: usize = 20;

/// The settings of a comparison.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    pub(super) libfabric: &'a InstalledLibfabric,
    /// The directory of fabtests' programs.
    pub(super) fabtests: Option<&'a Path>,
    /// The providers that homespun is compared with.
    pub(super) providers: &'a [String],
    pub(super) sizes: &'a [usize],
    pub(super) rounds: u32,
    /// The approximate time of each contender in each round.
    pub(super) round_ms: u32,
    /// The pairs of cores to measure on. One `None` means that the system chooses the cores.
    pub(super) places: &'a [Option<ComparedCores>],
    pub(super) timeout: Duration,
    /// Whether rows are printed as they are measured.
    pub(super) shows_rows: bool,
}

/// What a contender does in its turn in each round of a row.
enum Turn<'a> {
    Bare(BareLoop),
    /// Runs a provider with this number of operations.
    Provider(&'a ComparedProvider, usize),
    /// Does nothing, because the contender has failed in this figure.
    Failed,
}

/// The measurements of one contender in one row.
struct Measured {
    medians_us: Vec<f64>,
    times: Times,
    samples: Samples,
}

impl Comparison<'_> {
    /// Measures all figures.
    pub(super) fn measure_all_figures(&self, console: &mut Console) -> Result<Vec<Figure>, CommandFailure> {
        let domains = MeasuredDomain::ALL.map(|domain| (domain, self.providers_of_domain(domain)));
        let domains = domains.into_iter().filter(|(_, contestants)| contestants.len() > 1);
        let domains: Vec<(MeasuredDomain, Vec<ComparedProvider>)> = domains.collect();
        let programs = self.find_programs_or_warn(console);
        let rows = self.places.len() * domains.len() * programs.len() * self.sizes.len();
        console.start_progress(rows * self.rounds as usize);
        let figures = self.measure_figures(&domains, &programs, console);
        console.end_progress();
        figures
    }

    fn measure_figures(
        &self,
        domains: &[(MeasuredDomain, Vec<ComparedProvider>)],
        programs: &[(Program, PathBuf)],
        console: &Console,
    ) -> Result<Vec<Figure>, CommandFailure> {
        let mut figures = Vec::new();
        for place in self.places {
            for (domain, contestants) in domains {
                let placement = Placement { cores: place.map(|cores| cores.numbers), timeout: self.timeout };
                let mut floor = Floor::start(*domain, placement, self.round_ms)?;
                for (program, path) in programs {
                    let mut figure = new_figure(*domain, *program, *place, contestants);
                    self.measure_rows(
                        &mut figure,
                        (*program, path),
                        contestants,
                        placement,
                        &mut floor,
                        console,
                    )?;
                    figures.push(figure);
                }
            }
        }
        Ok(figures)
    }

    /// The providers that take part in a domain, homespun first.
    fn providers_of_domain(&self, domain: MeasuredDomain) -> Vec<ComparedProvider> {
        let homespun = ComparedProvider { name: PROVIDER_NAME.into(), domain: Some(domain.name()) };
        let others = self.providers.iter().filter(|name| MeasuredDomain::of_provider(name) == domain);
        let others = others.map(|name| ComparedProvider { name: name.clone(), domain: None });
        [homespun].into_iter().chain(others).collect()
    }

    /// The programs that are installed.
    fn find_programs_or_warn(&self, console: &Console) -> Vec<(Program, PathBuf)> {
        let pingpong = self.libfabric.pingpong_path();
        let mut programs = vec![(Program::Pingpong, pingpong.clone())];
        for program in Program::FABTESTS {
            match program.installed_path(&pingpong, self.fabtests) {
                Some(path) => programs.push((program, path)),
                None if self.fabtests.is_some() => {
                    let name = program.file_name();
                    console.print_warning(format_args!(
                        "FABTESTS has no {name}, so there is no figure of: {}",
                        program.description()
                    ));
                }
                None => {}
            }
        }
        programs
    }

    /// Measures the rows of a figure.
    fn measure_rows(
        &self,
        figure: &mut Figure,
        (program, path): (Program, &Path),
        contestants: &[ComparedProvider],
        placement: Placement,
        floor: &mut Floor,
        console: &Console,
    ) -> Result<(), CommandFailure> {
        if self.shows_rows {
            console.print_line(format_args!("\n{}", figure_table::format_heading(figure)))?;
        }
        let mut has_failed = vec![false; contestants.len()];
        for &size_bytes in self.sizes {
            let bare_loop = floor.find_fastest_loop(program, size_bytes)?;
            let name = size::format_with_unit(size_bytes as u64);
            console.show_step(format!("{}, {name}", figure.title));
            let run = |provider: &ComparedProvider, iterations| {
                let pair = |port| program.build_pair(path.to_owned(), provider, size_bytes, iterations, port);
                self.time_with_retries(pair, program, provider, size_bytes, placement, console)
            };
            let mut turns: Vec<Turn<'_>> = bare_loop.map(Turn::Bare).into_iter().collect();
            let providers_from = turns.len();
            for (provider, has_failed) in contestants.iter().zip(&has_failed) {
                let trial_us = if *has_failed { None } else { run(provider, TRIAL_ITERATIONS)? };
                let turn = |trial_us| Turn::Provider(provider, self.iterations_per_round(program, trial_us));
                turns.push(trial_us.map_or(Turn::Failed, turn));
            }
            let mut measured: Vec<Measured> = turns.iter().map(Measured::empty_for_turn).collect();
            for round in 1..=self.rounds {
                console.show_step(format!("{}, {name}, round {round} of {}", figure.title, self.rounds));
                for (turn, measured) in turns.iter_mut().zip(&mut measured) {
                    match turn {
                        Turn::Bare(bare_loop) => measured.add_timing(&floor.time_bare_loop(bare_loop)?),
                        Turn::Provider(provider, iterations) => match run(provider, *iterations)? {
                            Some(time_us) => measured.add_mean(time_us),
                            None => *turn = Turn::Failed,
                        },
                        Turn::Failed => {}
                    }
                }
                console.advance_progress();
            }
            for (has_failed, turn) in has_failed.iter_mut().zip(&turns[providers_from..]) {
                *has_failed = matches!(turn, Turn::Failed);
            }
            let cells = turns.iter().zip(measured).map(|(turn, measured)| measured.into_cell(turn)).collect();
            let case = Case { label: name, size_bytes: Some(size_bytes) };
            let row = CaseRow::new(
                case,
                &figure.contenders,
                cells,
                bare_loop.map(|bare_loop| bare_loop.name().to_owned()),
            );
            if self.shows_rows {
                console.print_line(figure_table::format_row(figure, &row))?;
            }
            figure.rows.push(row);
        }
        Ok(())
    }

    /// The number of operations that fit into a round. `trial_us` is the time of each transfer in the
    /// trial run.
    fn iterations_per_round(&self, program: Program, trial_us: f64) -> usize {
        let each_us = if program.metric() == Metric::Latency { 2.0 * trial_us } else { trial_us };
        // The conversion of a float that is too large gives the largest integer.
        let fitting = (f64::from(self.round_ms) * 1e3 / each_us.max(f64::MIN_POSITIVE)) as usize;
        let min = if program.metric() == Metric::Latency { ROUND_TRIPS_MIN } else { ITERATIONS_MIN };
        fitting.clamp(min, ITERATIONS_MAX)
    }

    /// Runs a pair of processes until one run succeeds. Returns the time of a transfer in microseconds.
    /// If every try fails, prints a warning and returns `None`.
    fn time_with_retries(
        &self,
        pair: impl Fn(u16) -> ProgramPair,
        program: Program,
        provider: &ComparedProvider,
        size_bytes: usize,
        Placement { cores, timeout }: Placement,
        console: &Console,
    ) -> Result<Option<f64>, CommandFailure> {
        let conditions = Conditions { libfabric: self.libfabric, cores, timeout };
        let mut reason = String::new();
        for _ in 0..TRIES {
            // Each try gets a new port, because another process may take the port before the server
            // does.
            let port = find_free_port().map_err(CommandFailure::Start)?;
            reason = match pair(port).run(conditions)? {
                Ok(printed) => match output::parse_transfer_us(&printed, size_bytes) {
                    Some(time_us) => return Ok(Some(time_us)),
                    None => "it printed no table".to_owned(),
                },
                Err(reason) => reason,
            };
        }
        let contender = match provider.domain {
            Some(domain) => format!("{} ({domain})", provider.name),
            None => provider.name.clone(),
        };
        let program = format!("{}, {},", program.name(), size::format_with_unit(size_bytes as u64));
        console.print_warning(CommandFailure::NotMeasured { program, contender, reason });
        Ok(None)
    }
}

impl Measured {
    fn empty_for_turn(turn: &Turn<'_>) -> Measured {
        let samples = if matches!(turn, Turn::Bare(_)) { Samples::Operations } else { Samples::Rounds };
        Measured { medians_us: Vec::new(), times: Times::new(), samples }
    }

    fn add_timing(&mut self, timing: &Timing) {
        self.medians_us.push(timing.each_us);
        self.times.extend(&timing.singles_us);
    }

    fn add_mean(&mut self, time_us: f64) {
        self.medians_us.push(time_us);
        self.times.extend(&[time_us]);
    }

    /// The cell of these measurements. `None` if the contender failed in any round.
    fn into_cell(self, turn: &Turn<'_>) -> Option<Cell> {
        let has_failed = matches!(turn, Turn::Failed) || self.medians_us.is_empty();
        let spread = self.times.percentiles().map(|percentiles| Spread { over: self.samples, percentiles });
        (!has_failed).then(|| Cell { median: measure::median(self.medians_us), spread })
    }
}

fn new_figure(
    domain: MeasuredDomain,
    program: Program,
    place: Option<ComparedCores>,
    contestants: &[ComparedProvider],
) -> Figure {
    let contender = |name: &str, role| Contender { name: name.to_owned(), role };
    let providers = contestants.iter().map(|provider| match provider.domain {
        Some(_) => contender(&provider.name, Role::Homespun),
        None => contender(&provider.name, Role::Other),
    });
    let medium = match domain {
        MeasuredDomain::Shm => "shared memory",
        MeasuredDomain::Tcp => "TCP",
    };
    let floor = has_floor(domain, program).then(|| contender(FLOOR_NAME, Role::Floor));
    let slug = place.as_ref().map_or("unpinned", ComparedCores::file_name_part);
    Figure {
        name: format!("{}-{}-{slug}", domain.name(), program.name()),
        title: format!("{} over {medium}: {}", program.file_name(), program.description()),
        place: place
            .as_ref()
            .map_or_else(|| "cores chosen by the system".to_owned(), ComparedCores::describe),
        cores: place,
        quantity: program.quantity(),
        is_in_summary: program.is_in_summary(),
        drawings: program.drawings(),
        contenders: floor.into_iter().chain(providers).collect(),
        rows: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contender_that_fails_in_a_later_round_has_no_cell() {
        let provider = ComparedProvider { name: "shm".into(), domain: None };
        let turn = Turn::Provider(&provider, TRIAL_ITERATIONS);
        let measured = |times_us: &[f64]| {
            let mut measured = Measured::empty_for_turn(&turn);
            times_us.iter().for_each(|time_us| measured.add_mean(*time_us));
            measured
        };
        let cell = measured(&[1.0, 9.0, 3.0]).into_cell(&turn).expect("three rounds");
        let spread = cell.spread.expect("three rounds");
        assert_eq!((cell.median, spread.over, spread.percentiles.samples), (3.0, Samples::Rounds, 3));
        assert_eq!(measured(&[1.0]).into_cell(&Turn::Failed), None);
        assert_eq!(measured(&[]).into_cell(&turn), None);
    }
}
