//! `homespun bench --only sleep`, also a part of `--against`: compares providers of an installed
//! libfabric while processes poll and while they sleep.
//!
//! Pairs of this program's processes exchange tagged messages over the C interface, with the same code
//! for every provider. They measure three quantities that libfabric's own programs do not show. The
//! first is percentiles of single round trips. The second is the time of round trips in which both sides
//! sleep on the descriptor of their queue. The third is the processor time of a pair that sleeps without
//! messages.

mod contender;
mod markdown;
mod messages;
mod order;
mod pair;
pub(crate) mod peer;
mod report;
mod table;

use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

pub(super) use self::markdown::{render_brief, render_section};
pub(super) use self::report::SleepReport;
pub(super) use self::table::SleepTables;

use self::contender::SleepContender;
use self::order::{RoundTrips, Slept};
use self::pair::{MeasureError, SleepPair};
use self::peer::Wait;
use self::report::Shortfall;
use super::against::libfabric;
use super::pair::Placement;
use super::percentiles::{Counts, Times};
use super::providers::Providers;
use super::survey::MeasuredDomain;
use crate::console::Console;
use crate::failure::CommandFailure;
use crate::run::plugin;

/// The number of rounds, and the number of round trips of each size, over all rounds.
const ROUNDS: u32 = 5;
const ROUND_TRIPS: u32 = 20_000;

/// The approximate time limit for the round trips of one size in a round. Round trips of hundreds of
/// microseconds reach this limit, so fewer of them are made.
const TURN_MS: u64 = 1_000;

/// How long a pair sleeps in each round.
const IDLE_MS: u64 = 2_000;

/// With `--quick`: the number of rounds, the number of round trips over all rounds, their time limit in
/// a round, and how long a pair sleeps in a round.
const ROUNDS_QUICK: u32 = 3;
const ROUND_TRIPS_QUICK: u32 = 1_000;
const TURN_QUICK_MS: u64 = 200;
const IDLE_QUICK_MS: u64 = 200;

/// The number of round trips in a trial run, and the least number in a turn.
const TRIAL_ROUND_TRIPS: u32 = 8;

/// The default lengths of messages.
const SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];

/// The default rivals of homespun: libfabric's own providers.
const PROVIDERS: [&str; 4] = ["shm", "tcp", "sockets", "tcp;ofi_rxm"];

/// The options of the measurement.
#[derive(Debug)]
pub(super) struct SleepRequest<'a> {
    /// The domains of homespun.
    pub(super) domains: &'a [MeasuredDomain],
    /// The rivals, or `None` for the default rivals. Rivals whose medium is not among `domains` are
    /// skipped.
    pub(super) providers: Option<&'a Providers>,
    /// The prefix of the libfabric installation.
    pub(super) prefix: Option<&'a Path>,
    pub(super) sizes: Option<&'a [usize]>,
    pub(super) rounds: Option<u32>,
    pub(super) quick: bool,
    pub(super) json: bool,
    /// The cores of the two processes, or `None` to pin neither. The caller must choose the cores before
    /// a bare loop pins this process, because a pinned process may run on only one core.
    pub(super) cores: Option<(usize, usize)>,
    pub(super) timeout: Duration,
}

/// The parameters of the measurement.
#[derive(Debug, Clone, Copy)]
struct Setup<'a> {
    /// The library: a path, or a name that the loader searches for.
    libfabric: &'a OsStr,
    /// The lengths of messages.
    sizes: &'a [usize],
    /// The number of turns of each contender.
    rounds: u32,
    /// The number of round trips of each size in a turn. `turn_ms` may reduce the number.
    round_trips: u32,
    /// The approximate time limit for the round trips of one size in a turn, in milliseconds.
    turn_ms: u64,
    /// How long a pair sleeps in a turn.
    idle_ms: u64,
    /// The cores of the processes, and their time-out.
    placement: Placement,
}

/// The results of one contender so far.
#[derive(Debug)]
struct ContenderResults {
    contender: SleepContender,
    /// The provider's full name. `None` until a process has opened the provider.
    provider: Option<String>,
    /// One entry for each size.
    polled: Attempt<Vec<Times>>,
    /// One entry for each size.
    descriptor: Attempt<Vec<Times>>,
    idle: Attempt<Vec<[Slept; 2]>>,
    /// How the processes of an idle pair sleep.
    idle_wait: Wait,
}

/// Results of one kind, or the reason why there are none.
#[derive(Debug)]
struct Attempt<T> {
    gathered: T,
    shortfall: Option<Shortfall>,
}

/// Measures all contenders and shows the results.
///
/// # Errors
///
/// Any failure of the setup. At the end, [`CommandFailure::ContendersFailed`] if a contender failed at
/// something that it offers.
pub(super) fn run(request: &SleepRequest<'_>, console: &mut Console) -> Result<(), CommandFailure> {
    let report = measure(request, console)?;
    if request.json {
        console.print_json(&report)?;
    } else {
        console.print_line(SleepTables(&report))?;
    }
    report.require_success()
}

/// Measures all contenders.
///
/// # Errors
///
/// Any failure of the setup.
pub(super) fn measure(
    request: &SleepRequest<'_>,
    console: &mut Console,
) -> Result<SleepReport, CommandFailure> {
    let (rounds, round_trips, turn_ms, idle_ms) = match request.quick {
        true => (ROUNDS_QUICK, ROUND_TRIPS_QUICK, TURN_QUICK_MS, IDLE_QUICK_MS),
        false => (ROUNDS, ROUND_TRIPS, TURN_MS, IDLE_MS),
    };
    let rounds = request.rounds.unwrap_or(rounds);
    let libfabric: OsString = match request.prefix {
        Some(prefix) => {
            libfabric::find_library_directory(&absolute_prefix(prefix))?.join(libfabric::LIBRARY).into()
        }
        None => libfabric::LIBRARY.into(),
    };
    let setup = Setup {
        libfabric: &libfabric,
        sizes: request.sizes.unwrap_or(&SIZES),
        rounds,
        round_trips: round_trips.div_ceil(rounds),
        turn_ms,
        idle_ms,
        placement: Placement { cores: request.cores, timeout: request.timeout },
    };
    let providers = request
        .providers
        .map_or_else(|| PROVIDERS.map(str::to_owned).to_vec(), |requested| requested.names().to_vec());
    let line_up = SleepContender::all_contenders(request.domains, &providers, &plugin::find_directory(None)?);
    setup.measure_contenders(line_up, console)
}

/// Makes the prefix absolute, because other processes load the library by its path.
fn absolute_prefix(prefix: &Path) -> PathBuf {
    path::absolute(prefix).unwrap_or_else(|_| prefix.to_owned())
}

impl Setup<'_> {
    /// Runs the turns of all contenders.
    fn measure_contenders(
        &self,
        line_up: Vec<SleepContender>,
        console: &mut Console,
    ) -> Result<SleepReport, CommandFailure> {
        console.start_progress(line_up.len() * self.rounds as usize);
        let mut contenders: Vec<ContenderResults> =
            line_up.into_iter().map(|contender| ContenderResults::new(contender, self.sizes.len())).collect();
        let mut version = None;
        let measured = self.run_rounds(&mut contenders, &mut version, console);
        console.end_progress();
        measured?;
        Ok(SleepReport::new(self, version, contenders))
    }

    fn run_rounds(
        &self,
        contenders: &mut [ContenderResults],
        version: &mut Option<(u16, u16)>,
        console: &Console,
    ) -> Result<(), CommandFailure> {
        for round in 1..=self.rounds {
            for gathered in &mut *contenders {
                console.show_step(format!("{}, round {round} of {}", gathered.contender.name, self.rounds));
                gathered.measure_one_turn(self, version)?;
                console.advance_progress();
            }
        }
        Ok(())
    }
}

impl ContenderResults {
    fn new(contender: SleepContender, sizes: usize) -> ContenderResults {
        let times = || Attempt::new(iter::repeat_with(Times::new).take(sizes).collect());
        ContenderResults {
            contender,
            provider: None,
            polled: times(),
            descriptor: times(),
            idle: Attempt::new(Vec::new()),
            idle_wait: Wait::Descriptor,
        }
    }

    /// Makes each measurement that has not failed in an earlier round. For each way to wait, starts a
    /// new pair of processes.
    fn measure_one_turn(
        &mut self,
        setup: &Setup<'_>,
        version: &mut Option<(u16, u16)>,
    ) -> Result<(), CommandFailure> {
        if self.polled.is_ok() {
            let measured = self
                .measure_with_new_pair(Wait::Polled, setup, version, |pair| measure_latencies(pair, setup));
            self.polled.record_round(measured, |times, turn| add_counts(times, &turn))?;
        }
        if self.descriptor.is_ok() {
            let measured = self.measure_with_new_pair(Wait::Descriptor, setup, version, |pair| {
                Ok((measure_latencies(pair, setup)?, measure_idle(pair, setup)))
            });
            match measured {
                Ok((latencies, slept)) => {
                    self.descriptor.record_round(Ok(latencies), |times, turn| add_counts(times, &turn))?;
                    self.idle.record_round(slept, Vec::push)?;
                }
                Err(error) => self.descriptor.record_round(Err::<(), _>(error), |_, ()| ())?,
            }
        }
        match &self.descriptor.shortfall {
            Some(Shortfall::NotOffered(_)) if self.idle.is_ok() => {
                self.idle_wait = Wait::Blocking;
                let slept = self
                    .measure_with_new_pair(Wait::Blocking, setup, version, |pair| measure_idle(pair, setup));
                self.idle.record_round(slept, Vec::push)?;
            }
            Some(failure @ Shortfall::Failure(_)) => self.idle.shortfall = Some(failure.clone()),
            _ => {}
        }
        Ok(())
    }

    fn measure_with_new_pair<T>(
        &mut self,
        wait: Wait,
        setup: &Setup<'_>,
        version: &mut Option<(u16, u16)>,
        measure: impl FnOnce(&mut SleepPair) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let mut pair = SleepPair::start(&self.contender, wait, setup)?;
        self.provider = Some(pair.provider().to_owned());
        *version = Some(pair.libfabric_version());
        let measured = measure(&mut pair);
        pair.close();
        measured
    }
}

impl<T> Attempt<T> {
    fn new(gathered: T) -> Attempt<T> {
        Attempt { gathered, shortfall: None }
    }

    fn is_ok(&self) -> bool {
        self.shortfall.is_none()
    }

    /// Adds the results of a round. If there are none, keeps the reason.
    ///
    /// # Errors
    ///
    /// A fatal failure: no contender can be measured after it.
    fn record_round<U>(
        &mut self,
        measured: Result<U, MeasureError>,
        add: impl Fn(&mut T, U),
    ) -> Result<(), CommandFailure> {
        match measured {
            Ok(figures) => add(&mut self.gathered, figures),
            Err(MeasureError::NotOffered(reason)) => self.shortfall = Some(Shortfall::NotOffered(reason)),
            Err(MeasureError::Failed(reason)) => self.shortfall = Some(Shortfall::Failure(reason)),
            Err(MeasureError::Fatal(failure)) => return Err(failure),
        }
        Ok(())
    }
}

/// Adds the round trips of one turn to those of earlier turns, size by size.
fn add_counts(gathered: &mut [Times], turn: &[Counts]) {
    for (times, counts) in gathered.iter_mut().zip(turn) {
        times.merge_counts(counts);
    }
}

/// Measures single round trips of every size.
fn measure_latencies(pair: &mut SleepPair, setup: &Setup<'_>) -> Result<Vec<Counts>, MeasureError> {
    let latencies = setup.sizes.iter().map(|&size_bytes| {
        let mut trial = Times::new();
        // The trial is also the warm-up.
        trial.merge_counts(&pair.measure_round_trips(RoundTrips { size_bytes, count: TRIAL_ROUND_TRIPS })?);
        let half_us = trial.percentiles().map_or(0.0, |percentiles| percentiles.p50_us);
        let fitting = setup.turn_ms as f64 * 1e3 / (2.0 * half_us).max(f64::MIN_POSITIVE);
        // The conversion of a float that is too large gives the largest integer.
        let count = (fitting as u32).clamp(TRIAL_ROUND_TRIPS, setup.round_trips.max(TRIAL_ROUND_TRIPS));
        pair.measure_round_trips(RoundTrips { size_bytes, count })
    });
    latencies.collect()
}

/// Lets a pair sleep, and exchange a message before and after.
fn measure_idle(pair: &mut SleepPair, setup: &Setup<'_>) -> Result<[Slept; 2], MeasureError> {
    let one = RoundTrips { size_bytes: setup.sizes.first().copied().unwrap_or_default(), count: 1 };
    pair.measure_round_trips(one)?;
    let slept = pair.sleep_both(setup.idle_ms)?;
    pair.measure_round_trips(one)?;
    Ok(slept)
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;

    /// A report with three contenders: homespun/tcp; tcp, which has no descriptor to sleep on; and
    /// sockets.
    pub(crate) fn make_sleep_report() -> SleepReport {
        let setup = Setup {
            libfabric: OsStr::new("/opt/libfabric/lib/libfabric.so.1"),
            sizes: &[8, 4 << 10],
            rounds: 5,
            round_trips: 100,
            turn_ms: 100,
            idle_ms: 100,
            placement: Placement { cores: Some((0, 1)), timeout: Duration::from_secs(1) },
        };
        let providers = ["tcp".to_owned(), "sockets".to_owned()];
        let line_up =
            SleepContender::all_contenders(&[MeasuredDomain::Tcp], &providers, Path::new("/plugin"));
        let gathered = line_up.into_iter().zip([10, 20, 40]).map(|(contender, half_us)| {
            let mut gathered = ContenderResults::new(contender, setup.sizes.len());
            for (polled, descriptor) in
                gathered.polled.gathered.iter_mut().zip(&mut gathered.descriptor.gathered)
            {
                polled.add(Duration::from_micros(half_us));
                descriptor.add(Duration::from_micros(2 * half_us));
            }
            if gathered.contender.name == "tcp" {
                gathered.descriptor.shortfall = Some(Shortfall::NotOffered("fi_cq_open: ENOSYS".into()));
            }
            let slept = |processor_ms_per_s| Slept { processor_ms_per_s, wake_ups_per_s: 0.5 };
            gathered.idle.gathered.push([slept(1.0), slept(2.0)]);
            gathered
        });
        SleepReport::new(&setup, Some((2, 0)), gathered.collect())
    }
}
