//! `homespun bench --only sleep`, and a part of `--against`: providers of an installed libfabric side by
//! side, polled and asleep.
//!
//! Pairs of our own processes exchange tagged messages over the C interface, with the same code for every
//! provider. So there are percentiles of single round trips, which programs of others do not show; round
//! trips in which both sides sleep on the descriptor of their queue; and the processor time that a pair needs
//! while it sleeps.

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

pub(super) use self::markdown::{brief, section};
pub(super) use self::report::SleepReport;
pub(super) use self::table::SleepTables;

use self::contender::Contender;
use self::order::{RoundTrips, Slept};
use self::pair::{Pair, Setback};
use self::peer::Wait;
use self::report::Shortfall;
use super::against::libfabric;
use super::pair::Placement;
use super::percentiles::{Counts, Times};
use super::providers::Providers;
use super::survey::Domain;
use crate::console::Console;
use crate::failure::Failure;
use crate::run::plugin;

/// How many rounds there are, and in all of them together round trips of each size.
const ROUNDS: u32 = 5;
const ROUND_TRIPS: u32 = 20_000;

/// How long the round trips of one size may take in each round, roughly. Only where hundreds of microseconds
/// go by for each are there fewer then.
const TURN_MS: u64 = 1_000;

/// How long a pair sleeps in each round.
const IDLE_MS: u64 = 2_000;

/// The same where the result is wanted soon.
const ROUNDS_QUICK: u32 = 3;
const ROUND_TRIPS_QUICK: u32 = 1_000;
const TURN_QUICK_MS: u64 = 200;
const IDLE_QUICK_MS: u64 = 200;

/// How many round trips find out how many fit into a turn, and how many a turn has at least.
const TRIAL_ROUND_TRIPS: u32 = 8;

/// The lengths of messages, where none are asked for.
const SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];

/// libfabric's own providers, where none are asked for.
const PROVIDERS: [&str; 4] = ["shm", "tcp", "sockets", "tcp;ofi_rxm"];

/// What is asked for.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// The domains of homespun.
    pub(super) domains: &'a [Domain],
    /// Rivals, as far as there is a domain that they are compared with.
    pub(super) providers: Option<&'a Providers>,
    /// Where libfabric is installed.
    pub(super) prefix: Option<&'a Path>,
    pub(super) sizes: Option<&'a [usize]>,
    pub(super) rounds: Option<u32>,
    pub(super) quick: bool,
    pub(super) json: bool,
    /// The cores of the two processes, chosen before a bare loop has kept this process on one of them; `None`
    /// pins none.
    pub(super) cores: Option<(usize, usize)>,
    pub(super) timeout: Duration,
}

/// How it is measured.
#[derive(Debug, Clone, Copy)]
struct Setup<'a> {
    /// The library: a path, or a name that the loader searches for.
    libfabric: &'a OsStr,
    /// The lengths of messages.
    sizes: &'a [usize],
    /// How often each contender takes its turn.
    rounds: u32,
    /// How many round trips of each size there are in a turn, unless they take too long.
    round_trips: u32,
    /// How long they may take, roughly.
    turn_ms: u64,
    /// How long a pair sleeps in a turn.
    idle_ms: u64,
    /// Where the processes run, and how long they may be silent.
    placement: Placement,
}

/// What the rounds have shown of one contender so far.
#[derive(Debug)]
struct Gathered {
    contender: Contender,
    /// The name of its provider in full, once it has answered.
    provider: Option<String>,
    /// Of each size.
    polled: Attempt<Vec<Times>>,
    /// Of each size.
    descriptor: Attempt<Vec<Times>>,
    idle: Attempt<Vec<[Slept; 2]>>,
    /// How the pair sleeps when it is idle.
    idle_wait: Wait,
}

/// Figures that are gathered until there is a reason why there are none.
#[derive(Debug)]
struct Attempt<T> {
    gathered: T,
    shortfall: Option<Shortfall>,
}

/// Measures, and shows the results.
///
/// # Errors
///
/// Those of setting up; [`Failure::Contenders`], at the end, if a contender failed at something that it
/// offers.
pub(super) fn run(request: &Request<'_>, console: &mut Console) -> Result<(), Failure> {
    let report = measure(request, console)?;
    if request.json {
        console.json(&report)?;
    } else {
        console.line(SleepTables(&report))?;
    }
    report.require_success()
}

/// Measures.
///
/// # Errors
///
/// Those of setting up.
pub(super) fn measure(request: &Request<'_>, console: &mut Console) -> Result<SleepReport, Failure> {
    let (rounds, round_trips, turn_ms, idle_ms) = match request.quick {
        true => (ROUNDS_QUICK, ROUND_TRIPS_QUICK, TURN_QUICK_MS, IDLE_QUICK_MS),
        false => (ROUNDS, ROUND_TRIPS, TURN_MS, IDLE_MS),
    };
    let rounds = request.rounds.unwrap_or(rounds);
    let libfabric: OsString = match request.prefix {
        Some(prefix) => libfabric::library_directory(&absolute(prefix))?.join(libfabric::LIBRARY).into(),
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
        .map_or_else(|| PROVIDERS.map(str::to_owned).to_vec(), |asked| asked.names().to_vec());
    let line_up = Contender::line_up(request.domains, &providers, &plugin::directory(None)?);
    setup.measure(line_up, console)
}

/// A library is loaded by other processes, and a path that begins with no slash is no path to the loader.
fn absolute(prefix: &Path) -> PathBuf {
    path::absolute(prefix).unwrap_or_else(|_| prefix.to_owned())
}

impl Setup<'_> {
    /// Lets all contenders take their turns.
    fn measure(&self, line_up: Vec<Contender>, console: &mut Console) -> Result<SleepReport, Failure> {
        console.start_progress(line_up.len() * self.rounds as usize);
        let mut contenders: Vec<Gathered> =
            line_up.into_iter().map(|contender| Gathered::new(contender, self.sizes.len())).collect();
        let mut version = None;
        let held = self.hold_rounds(&mut contenders, &mut version, console);
        console.end_progress();
        held?;
        Ok(SleepReport::new(self, version, contenders))
    }

    fn hold_rounds(
        &self,
        contenders: &mut [Gathered],
        version: &mut Option<(u16, u16)>,
        console: &Console,
    ) -> Result<(), Failure> {
        for round in 1..=self.rounds {
            for gathered in &mut *contenders {
                console.step(format!("{}, round {round} of {}", gathered.contender.name, self.rounds));
                gathered.take_turn(self, version)?;
                console.step_done();
            }
        }
        Ok(())
    }
}

impl Gathered {
    fn new(contender: Contender, sizes: usize) -> Gathered {
        let times = || Attempt::new(iter::repeat_with(Times::new).take(sizes).collect());
        Gathered {
            contender,
            provider: None,
            polled: times(),
            descriptor: times(),
            idle: Attempt::new(Vec::new()),
            idle_wait: Wait::Descriptor,
        }
    }

    /// Measures what has not failed yet, each way to wait with a pair of its own.
    fn take_turn(&mut self, setup: &Setup<'_>, version: &mut Option<(u16, u16)>) -> Result<(), Failure> {
        if self.polled.goes_on() {
            let measured = self.with_pair(Wait::Polled, setup, version, |pair| latencies(pair, setup));
            self.polled.take_in(measured, |times, turn| add_up(times, &turn))?;
        }
        if self.descriptor.goes_on() {
            let measured = self.with_pair(Wait::Descriptor, setup, version, |pair| {
                Ok((latencies(pair, setup)?, idle(pair, setup)))
            });
            match measured {
                Ok((latencies, slept)) => {
                    self.descriptor.take_in(Ok(latencies), |times, turn| add_up(times, &turn))?;
                    self.idle.take_in(slept, Vec::push)?;
                }
                Err(setback) => self.descriptor.take_in(Err::<(), _>(setback), |_, ()| ())?,
            }
        }
        match &self.descriptor.shortfall {
            Some(Shortfall::NotOffered(_)) if self.idle.goes_on() => {
                self.idle_wait = Wait::Blocking;
                let slept = self.with_pair(Wait::Blocking, setup, version, |pair| idle(pair, setup));
                self.idle.take_in(slept, Vec::push)?;
            }
            Some(failure @ Shortfall::Failure(_)) => self.idle.shortfall = Some(failure.clone()),
            _ => {}
        }
        Ok(())
    }

    fn with_pair<T>(
        &mut self,
        wait: Wait,
        setup: &Setup<'_>,
        version: &mut Option<(u16, u16)>,
        measure: impl FnOnce(&mut Pair) -> Result<T, Setback>,
    ) -> Result<T, Setback> {
        let mut pair = Pair::start(&self.contender, wait, setup)?;
        self.provider = Some(pair.provider().to_owned());
        *version = Some(pair.libfabric());
        let measured = measure(&mut pair);
        pair.close();
        measured
    }
}

impl<T> Attempt<T> {
    fn new(gathered: T) -> Attempt<T> {
        Attempt { gathered, shortfall: None }
    }

    fn goes_on(&self) -> bool {
        self.shortfall.is_none()
    }

    /// Adds the figures of a round, or remembers why there are none.
    ///
    /// # Errors
    ///
    /// If nothing can be measured at all.
    fn take_in<U>(&mut self, measured: Result<U, Setback>, add: impl Fn(&mut T, U)) -> Result<(), Failure> {
        match measured {
            Ok(figures) => add(&mut self.gathered, figures),
            Err(Setback::NotOffered(reason)) => self.shortfall = Some(Shortfall::NotOffered(reason)),
            Err(Setback::Failed(reason)) => self.shortfall = Some(Shortfall::Failure(reason)),
            Err(Setback::Fatal(failure)) => return Err(failure),
        }
        Ok(())
    }
}

/// Adds the round trips of one turn to those of others, size by size.
fn add_up(gathered: &mut [Times], turn: &[Counts]) {
    for (times, counts) in gathered.iter_mut().zip(turn) {
        times.extend_by(counts);
    }
}

/// Single round trips of every size.
fn latencies(pair: &mut Pair, setup: &Setup<'_>) -> Result<Vec<Counts>, Setback> {
    let latencies = setup.sizes.iter().map(|&size_bytes| {
        let mut trial = Times::new();
        // Also the warm-up.
        trial.extend_by(&pair.round_trips(RoundTrips { size_bytes, count: TRIAL_ROUND_TRIPS })?);
        let half_us = trial.percentiles().map_or(0.0, |percentiles| percentiles.p50_us);
        let fitting = setup.turn_ms as f64 * 1e3 / (2.0 * half_us).max(f64::MIN_POSITIVE);
        // A number that is too large becomes the largest that there is.
        let count = (fitting as u32).clamp(TRIAL_ROUND_TRIPS, setup.round_trips.max(TRIAL_ROUND_TRIPS));
        pair.round_trips(RoundTrips { size_bytes, count })
    });
    latencies.collect()
}

/// Lets a pair sleep that has exchanged messages before and does so after.
fn idle(pair: &mut Pair, setup: &Setup<'_>) -> Result<[Slept; 2], Setback> {
    let one = RoundTrips { size_bytes: setup.sizes.first().copied().unwrap_or_default(), count: 1 };
    pair.round_trips(one)?;
    let slept = pair.sleep(setup.idle_ms)?;
    pair.round_trips(one)?;
    Ok(slept)
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;

    /// A report of homespun/tcp, of tcp, which offers no descriptor, and of sockets.
    pub(crate) fn report() -> SleepReport {
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
        let line_up = Contender::line_up(&[Domain::Tcp], &providers, Path::new("/plugin"));
        let gathered = line_up.into_iter().zip([10, 20, 40]).map(|(contender, half_us)| {
            let mut gathered = Gathered::new(contender, setup.sizes.len());
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
