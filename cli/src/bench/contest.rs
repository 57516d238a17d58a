//! One contest: the fabric and what it is measured against, in turns.

use super::access::Operation;
use super::bare::{self, Copies, Copying};
use super::pair::Pair;
use super::report::Medians;
use super::step::{Step, Way};
use crate::exchange::channel::Channel;
use crate::exchange::measure::{self, Metric};
use crate::exchange::run::Run;
use crate::failure::Failure;

/// How many round trips, and how many windows full of messages, find out how many fit into a round.
const TRIAL_ROUND_TRIPS: u32 = 32;
const TRIAL_WINDOWS: u32 = 8;

/// How many of them a round has at least.
const ROUND_TRIPS_MIN: u32 = 16;
const WINDOWS_MIN: u32 = 8;

/// How many operations a round has at most.
const COUNT_MAX: u32 = 1 << 22;

/// How long the answer to an access is, without the bytes that are read.
const ANSWER_BYTES: usize = 8;

/// What access to memory is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BareAccess {
    /// Copies to or from shared memory.
    Copies(Copying),
    /// Messages: one with the bytes and one without, in opposite directions.
    Messages(Way),
}

impl BareAccess {
    /// Its name, as results have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            BareAccess::Copies(_) => "memcpy",
            BareAccess::Messages(way) => way.name(),
        }
    }
}

/// Operations of one kind and size: each metric, through the fabric and without it.
pub(super) struct Contest {
    /// Latency and then bandwidth, each through the fabric and then without it.
    parts: [Part; 4],
    /// Copies within this process, to compare with; where a message is large enough for that to mean something.
    memcpy: Option<Run>,
}

/// What the rounds of one contest have measured so far.
#[derive(Default)]
pub(super) struct Rounds {
    parts_us: [Vec<f64>; 4],
    memcpy_us: Vec<f64>,
}

/// What takes its turn in each round.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// A step of both processes.
    Step(Step),
    /// Half of a round trip with the bytes, and half of one without.
    ThereAndBack(Step, Step),
    /// Copies by this process alone.
    Copies(Copies),
}

/// Who measures, and how long.
pub(super) struct Measuring<'a, 'p> {
    pub(super) pair: &'a mut Pair,
    pub(super) channel: &'a mut Channel<'p>,
    /// How long each part takes in each round, roughly.
    pub(super) round_ms: u32,
}

impl Contest {
    /// Finds out how many messages there are in a round.
    pub(super) fn of_messages(
        measuring: &mut Measuring<'_, '_>,
        bare: Way,
        size_bytes: usize,
        has_memcpy: bool,
    ) -> Result<Contest, Failure> {
        let mut sized =
            |way, metric| measuring.sized(size_bytes, metric, |run| Part::Step(Step { way, metric, run }));
        let parts = [
            sized(Way::Fabric, Metric::Latency)?,
            sized(bare, Metric::Latency)?,
            sized(Way::Fabric, Metric::Bandwidth)?,
            sized(bare, Metric::Bandwidth)?,
        ];
        let memcpy = has_memcpy.then(|| parts[3].run());
        Ok(Contest { parts, memcpy })
    }

    /// Finds out how many accesses there are in a round.
    pub(super) fn of_accesses(
        measuring: &mut Measuring<'_, '_>,
        operation: Operation,
        bare: BareAccess,
        size_bytes: usize,
    ) -> Result<Contest, Failure> {
        let fabric = |metric, run| Part::Step(Step { way: Way::Access(operation), metric, run });
        let bare = |metric, run: Run| match (bare, metric) {
            (BareAccess::Copies(copying), _) => Part::Copies(Copies { copying, metric, run }),
            (BareAccess::Messages(way), Metric::Bandwidth) => Part::Step(Step { way, metric, run }),
            (BareAccess::Messages(way), Metric::Latency) => {
                let back = Run::new(ANSWER_BYTES, Some(run.round_trips));
                Part::ThereAndBack(Step { way, metric, run }, Step { way, metric, run: back })
            }
        };
        let parts = [
            measuring.sized(size_bytes, Metric::Latency, |run| fabric(Metric::Latency, run))?,
            measuring.sized(size_bytes, Metric::Latency, |run| bare(Metric::Latency, run))?,
            measuring.sized(size_bytes, Metric::Bandwidth, |run| fabric(Metric::Bandwidth, run))?,
            measuring.sized(size_bytes, Metric::Bandwidth, |run| bare(Metric::Bandwidth, run))?,
        ];
        Ok(Contest { parts, memcpy: None })
    }

    /// Measures all of them once, so that what else the host does hits them alike.
    pub(super) fn hold_round(
        &self,
        measuring: &mut Measuring<'_, '_>,
        rounds: &mut Rounds,
    ) -> Result<(), Failure> {
        for (samples_us, part) in rounds.parts_us.iter_mut().zip(&self.parts) {
            samples_us.push(measuring.part_us(part)?);
        }
        if let Some(run) = &self.memcpy {
            rounds.memcpy_us.push(bare::memcpy_us(run)?);
        }
        Ok(())
    }
}

impl Measuring<'_, '_> {
    /// A part of about as many operations as fit into a round.
    fn sized(
        &mut self,
        size_bytes: usize,
        metric: Metric,
        part: impl Fn(Run) -> Part,
    ) -> Result<Part, Failure> {
        let window = Run::new(size_bytes, Some(1)).window;
        let (trial, least) = match metric {
            Metric::Latency => (TRIAL_ROUND_TRIPS, ROUND_TRIPS_MIN),
            Metric::Bandwidth => (TRIAL_WINDOWS * window, WINDOWS_MIN * window),
        };
        let trial = part(Run::new(size_bytes, Some(trial)));
        let each_us = trial.halves() * self.part_us(&trial)?;
        let fitting = f64::from(self.round_ms) * 1e3 / each_us.max(f64::MIN_POSITIVE);
        // A number that is too large becomes the largest that there is.
        let count = (fitting as u32).clamp(least, COUNT_MAX);
        Ok(part(Run::new(size_bytes, Some(count))))
    }

    /// What a part measures, in microseconds.
    fn part_us(&mut self, part: &Part) -> Result<f64, Failure> {
        let Measuring { pair, channel, .. } = self;
        match part {
            Part::Step(step) => pair.lead(step, Some(channel)),
            Part::ThereAndBack(there, back) => {
                Ok(pair.lead(there, Some(channel))? + pair.lead(back, Some(channel))?)
            }
            Part::Copies(copies) => bare::copies_us(copies),
        }
    }
}

impl Part {
    /// How many times what it measures each of its operations takes.
    fn halves(&self) -> f64 {
        match self {
            Part::ThereAndBack(..) => 2.0,
            Part::Step(Step { way, metric: Metric::Latency, .. }) if !matches!(way, Way::Access(_)) => 2.0,
            Part::Step(_) | Part::Copies(_) => 1.0,
        }
    }

    fn run(&self) -> Run {
        match self {
            Part::Step(Step { run, .. })
            | Part::ThereAndBack(Step { run, .. }, _)
            | Part::Copies(Copies { run, .. }) => *run,
        }
    }
}

impl Rounds {
    pub(super) fn medians(self) -> Medians {
        let [latency_us, bare_latency_us, message_us, bare_message_us] = self.parts_us.map(measure::median);
        let memcpy_us = (!self.memcpy_us.is_empty()).then(|| measure::median(self.memcpy_us));
        Medians { latency_us, bare_latency_us, message_us, bare_message_us, memcpy_us }
    }
}
