//! Every size of one domain, measured through the fabric and without it, in turns.

use super::bare;
use super::pair::{Fabric, MediumKind, Pair, Placement, settings};
use super::report::{DomainReport, Medians, SizeReport};
use super::step::{Step, Way};
use crate::console::Console;
use crate::exchange::channel::Channel;
use crate::exchange::measure::{self, Metric};
use crate::exchange::run::Run;
use crate::failure::Failure;
use crate::size;

/// From which size on one cross-memory copy is the least that physics asks; below, a ring is faster.
const READV_MIN_BYTES: usize = 16 * 1024;

/// How many round trips, and how many windows full of messages, find out how many fit into a round.
const TRIAL_ROUND_TRIPS: u32 = 32;
const TRIAL_WINDOWS: u32 = 8;

/// How many of them a round has at least.
const ROUND_TRIPS_MIN: u32 = 16;
const WINDOWS_MIN: u32 = 8;

/// How many operations a round has at most.
const COUNT_MAX: u32 = 1 << 22;

/// A domain that a bare loop is known for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domain {
    Shm,
    Tcp,
}

/// What is measured of each domain.
#[derive(Debug)]
pub(super) struct Survey<'a> {
    pub(super) sizes: &'a [usize],
    pub(super) rounds: u32,
    /// How long each way takes in each round, roughly.
    pub(super) round_ms: u32,
    pub(super) tagged: bool,
    pub(super) placement: Placement,
}

impl Domain {
    pub(super) const ALL: [Domain; 2] = [Domain::Shm, Domain::Tcp];

    /// The name that `getinfo` has for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Domain::Shm => "shm",
            Domain::Tcp => "tcp",
        }
    }

    fn medium(self) -> MediumKind {
        match self {
            Domain::Shm => MediumKind::Memory,
            Domain::Tcp => MediumKind::Socket,
        }
    }

    /// What messages of a size are measured against.
    fn bare_way(self, size_bytes: usize, can_readv: bool) -> Way {
        match self {
            Domain::Tcp => Way::Socket,
            Domain::Shm if can_readv && size_bytes >= READV_MIN_BYTES => Way::Readv,
            Domain::Shm => Way::Ring,
        }
    }
}

impl Survey<'_> {
    /// How many steps of progress a domain has.
    pub(super) fn progress_steps(&self) -> usize {
        self.sizes.len() * self.rounds as usize
    }

    /// Measures a domain.
    pub(super) fn of(&self, domain: Domain, console: &Console) -> Result<DomainReport, Failure> {
        let fabric = Fabric { domain: domain.name(), tagged: self.tagged };
        let mut pair = Pair::start(domain.medium(), Some(fabric), self.placement)?;
        self.measured_by(&mut pair, domain, console).map_err(|failure| pair.blamed_for(failure))
    }

    fn measured_by(
        &self,
        pair: &mut Pair,
        domain: Domain,
        console: &Console,
    ) -> Result<DomainReport, Failure> {
        let (port, address) = pair.open_port(domain.name())?;
        let mut channel = Channel::open(&port, address, settings(self.tagged, self.placement.timeout))?;
        let refusal = pair.readv_refusal().map(ToString::to_string);
        let mut sizes = Vec::new();
        for &size_bytes in self.sizes {
            let way = domain.bare_way(size_bytes, refusal.is_none());
            let contest = Contest::prepare(self, pair, &mut channel, way, size_bytes)?;
            let mut rounds = Rounds::default();
            for round in 1..=self.rounds {
                let size = size::with_unit(size_bytes as u64);
                console.step(format!("{}, {size}, round {round} of {}", domain.name(), self.rounds));
                contest.hold_round(pair, &mut channel, &mut rounds)?;
                console.step_done();
            }
            sizes.push(SizeReport::new(size_bytes, way, rounds.medians()));
        }
        let cross_memory_copy = (domain == Domain::Shm).then_some(refusal.is_none());
        Ok(DomainReport {
            domain: domain.name(),
            cross_memory_copy,
            cross_memory_copy_refusal: refusal,
            sizes,
        })
    }
}

/// Messages of one size: each metric, through the fabric and without it.
struct Contest {
    /// Latency and then bandwidth, each through the fabric and then without it.
    steps: [Step; 4],
    /// Copies within this process, to compare with; where a message is large enough for that to mean something.
    memcpy: Option<Run>,
}

/// What the rounds of one size have measured so far.
#[derive(Default)]
struct Rounds {
    steps_us: [Vec<f64>; 4],
    memcpy_us: Vec<f64>,
}

impl Contest {
    /// Finds out how often each is done in a round.
    fn prepare(
        survey: &Survey<'_>,
        pair: &mut Pair,
        channel: &mut Channel<'_>,
        bare: Way,
        size_bytes: usize,
    ) -> Result<Contest, Failure> {
        let mut sized = |way, metric| {
            let window = Run::new(size_bytes, Some(1)).window;
            let (trial, least, operations) = match metric {
                Metric::Latency => (TRIAL_ROUND_TRIPS, ROUND_TRIPS_MIN, 2.0),
                Metric::Bandwidth => (TRIAL_WINDOWS * window, WINDOWS_MIN * window, 1.0),
            };
            let trial = Step { way, metric, run: Run::new(size_bytes, Some(trial)) };
            let each_us = operations * pair.lead(&trial, Some(channel))?;
            let fitting = f64::from(survey.round_ms) * 1e3 / each_us.max(f64::MIN_POSITIVE);
            // A number that is too large becomes the largest that there is.
            let count = (fitting as u32).clamp(least, COUNT_MAX);
            Ok::<Step, Failure>(Step { run: Run::new(size_bytes, Some(count)), ..trial })
        };
        let steps = [
            sized(Way::Fabric, Metric::Latency)?,
            sized(bare, Metric::Latency)?,
            sized(Way::Fabric, Metric::Bandwidth)?,
            sized(bare, Metric::Bandwidth)?,
        ];
        let is_copied = bare != Way::Socket && size_bytes >= READV_MIN_BYTES;
        let memcpy = is_copied.then(|| steps[3].run);
        Ok(Contest { steps, memcpy })
    }

    /// Measures all of them once, so that what else the host does hits them alike.
    fn hold_round(
        &self,
        pair: &mut Pair,
        channel: &mut Channel<'_>,
        rounds: &mut Rounds,
    ) -> Result<(), Failure> {
        for (samples_us, step) in rounds.steps_us.iter_mut().zip(&self.steps) {
            samples_us.push(pair.lead(step, Some(channel))?);
        }
        if let Some(run) = &self.memcpy {
            rounds.memcpy_us.push(bare::memcpy_us(run)?);
        }
        Ok(())
    }
}

impl Rounds {
    fn medians(self) -> Medians {
        let [latency_us, bare_latency_us, message_us, bare_message_us] = self.steps_us.map(measure::median);
        let memcpy_us = (!self.memcpy_us.is_empty()).then(|| measure::median(self.memcpy_us));
        Medians { latency_us, bare_latency_us, message_us, bare_message_us, memcpy_us }
    }
}
