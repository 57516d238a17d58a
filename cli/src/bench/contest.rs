//! One contest: the fabric and its bare loops take turns.

use super::access::AccessOperation;
use super::bare::{self, Copies, Copying};
use super::pair::Pair;
use super::percentiles::{Percentiles, Times};
use super::report::Medians;
use super::step::{Step, Way};
use super::trial::{calibrate_run, find_fastest_way};
use crate::exchange::conversation::Conversation;
use crate::exchange::measure::{self, Metric};
use crate::exchange::run::Run;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;

/// The length of a message that imitates a part of an access without payload: the request of a read, or
/// the answer to a write.
const ANSWER_BYTES: usize = 8;

/// The bare loop that an access is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BareAccess {
    /// Copies to or from shared memory.
    Copies(Copying),
    /// Messages. The bare latency is half of a round trip with the payload plus half of a round trip
    /// with [`ANSWER_BYTES`]. The bare bandwidth is that of one-way messages with the payload.
    Messages(Way),
}

impl BareAccess {
    /// The bare loop's name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            BareAccess::Copies(_) => "memcpy",
            BareAccess::Messages(way) => way.name(),
        }
    }
}

/// The measurements of one kind of operation and one size. Both metrics are measured through the fabric
/// and through a bare loop.
pub(super) struct Contest {
    /// Latency through the fabric and through the bare loop, then bandwidth through both.
    parts: [Part; 4],
    /// The bare loop's name for latency, and for bandwidth.
    bare_names: [&'static str; 2],
    /// Copies within this process, measured for comparison. `None` for accesses, for small messages, and
    /// for domains without shared memory.
    memcpy: Option<Run>,
}

/// The measurements of a contest so far.
pub(super) struct Rounds {
    parts: [PartRounds; 4],
    memcpy_us: Vec<f64>,
}

/// The measurements of one part so far.
pub(super) struct PartRounds {
    medians_us: Vec<f64>,
    singles: Times,
}

/// A part of a contest, measured once in each round.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// A step that both processes take.
    Step(Step),
    /// Half of a round trip with the payload plus half of a round trip with [`ANSWER_BYTES`].
    ThereAndBack(Step, Step),
    /// Copies by this process alone.
    Copies(Copies),
}

/// The two processes, and the settings of their measurements.
pub(super) struct Measuring<'a, 'p> {
    pub(super) pair: &'a mut Pair,
    pub(super) conversation: &'a mut Conversation<'p>,
    /// The approximate time of each part in a round.
    pub(super) round_ms: u32,
}

impl Contest {
    /// Prepares a contest of messages, which go through the fabric the way `fabric`. Chooses the fastest of
    /// the ways in `bare`, and the number of messages in a round.
    pub(super) fn prepare_for_messages(
        measuring: &mut Measuring<'_, '_>,
        fabric: Way,
        bare: &[Way],
        size_bytes: usize,
        has_memcpy: bool,
    ) -> Result<Contest, CommandFailure> {
        let latency = measuring.find_fastest_way(bare, size_bytes, Metric::Latency)?;
        let bandwidth = measuring.find_fastest_way(bare, size_bytes, Metric::Bandwidth)?;
        let mut fabric = |metric| {
            let part = |run| Part::Step(Step { way: fabric, metric, run });
            measuring.calibrate_part(size_bytes, metric, part)
        };
        let parts = [
            fabric(Metric::Latency)?,
            Part::Step(latency),
            fabric(Metric::Bandwidth)?,
            Part::Step(bandwidth),
        ];
        let memcpy = has_memcpy.then_some(bandwidth.run);
        Ok(Contest { parts, bare_names: [latency.way.name(), bandwidth.way.name()], memcpy })
    }

    /// Prepares a contest of accesses: chooses their number in a round.
    pub(super) fn prepare_for_accesses(
        measuring: &mut Measuring<'_, '_>,
        operation: AccessOperation,
        bare: BareAccess,
        size_bytes: usize,
    ) -> Result<Contest, CommandFailure> {
        let name = bare.name();
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
            measuring.calibrate_part(size_bytes, Metric::Latency, |run| fabric(Metric::Latency, run))?,
            measuring.calibrate_part(size_bytes, Metric::Latency, |run| bare(Metric::Latency, run))?,
            measuring.calibrate_part(size_bytes, Metric::Bandwidth, |run| fabric(Metric::Bandwidth, run))?,
            measuring.calibrate_part(size_bytes, Metric::Bandwidth, |run| bare(Metric::Bandwidth, run))?,
        ];
        Ok(Contest { parts, bare_names: [name; 2], memcpy: None })
    }

    /// The names of the bare loops: of latency and of bandwidth.
    pub(super) fn bare_names(&self) -> [&'static str; 2] {
        self.bare_names
    }

    /// Measures every part once. The parts alternate, so other load of the host slows all of them alike.
    pub(super) fn run_round(
        &self,
        measuring: &mut Measuring<'_, '_>,
        rounds: &mut Rounds,
    ) -> Result<(), CommandFailure> {
        for (samples, part) in rounds.parts.iter_mut().zip(&self.parts) {
            samples.add_round(&measuring.time_part(part)?);
        }
        if let Some(run) = &self.memcpy {
            rounds.memcpy_us.push(bare::time_memcpy(run)?.each_us);
        }
        Ok(())
    }
}

impl Measuring<'_, '_> {
    /// A part with as many operations as fit into a round.
    fn calibrate_part(
        &mut self,
        size_bytes: usize,
        metric: Metric,
        part: impl Fn(Run) -> Part,
    ) -> Result<Part, CommandFailure> {
        let run = calibrate_run(size_bytes, metric, self.round_ms, |run| {
            let trial = part(run);
            Ok(trial.round_trip_factor() * self.time_part(&trial)?.each_us)
        })?;
        Ok(part(run))
    }

    fn find_fastest_way(
        &mut self,
        ways: &[Way],
        size_bytes: usize,
        metric: Metric,
    ) -> Result<Step, CommandFailure> {
        let pair = &mut *self.pair;
        find_fastest_way(ways, size_bytes, metric, self.round_ms, |step| pair.measure_step(step, None))
    }

    /// Measures a part once.
    fn time_part(&mut self, part: &Part) -> Result<Timing, CommandFailure> {
        let Measuring { pair, conversation, .. } = self;
        match part {
            Part::Step(step) => pair.measure_step(step, Some(conversation)),
            Part::ThereAndBack(there, back) => {
                let there = pair.measure_step(there, Some(conversation))?;
                let back = pair.measure_step(back, Some(conversation))?;
                // The result is the sum of two measurements. No single operation took that time, so
                // there are no times of single operations.
                Ok(Timing { each_us: there.each_us + back.each_us, singles_us: Vec::new() })
            }
            Part::Copies(copies) => bare::time_copies(copies),
        }
    }
}

impl Part {
    /// The factor from a measured time to the time of a whole operation. It is 2 if the measured time is
    /// half of a round trip, or the sum of two such halves.
    fn round_trip_factor(&self) -> f64 {
        match self {
            Part::ThereAndBack(..) => 2.0,
            Part::Step(Step { way, metric: Metric::Latency, .. }) if !matches!(way, Way::Access(_)) => 2.0,
            Part::Step(_) | Part::Copies(_) => 1.0,
        }
    }
}

impl Rounds {
    pub(super) fn new() -> Rounds {
        Rounds { parts: [(); 4].map(|()| PartRounds::new()), memcpy_us: Vec::new() }
    }

    pub(super) fn into_medians(self) -> Medians {
        let [latency, bare_latency, message, bare_message] = self.parts;
        let memcpy_us = (!self.memcpy_us.is_empty()).then(|| measure::median(self.memcpy_us));
        Medians {
            latency_percentiles: latency.percentiles(),
            bare_latency_percentiles: bare_latency.percentiles(),
            latency_us: latency.median_us(),
            bare_latency_us: bare_latency.median_us(),
            message_us: message.median_us(),
            bare_message_us: bare_message.median_us(),
            memcpy_us,
        }
    }
}

impl PartRounds {
    pub(super) fn new() -> PartRounds {
        PartRounds { medians_us: Vec::new(), singles: Times::new() }
    }

    pub(super) fn add_round(&mut self, timing: &Timing) {
        self.medians_us.push(timing.each_us);
        self.singles.extend(&timing.singles_us);
    }

    /// The median over rounds.
    pub(super) fn median_us(&self) -> f64 {
        measure::median(self.medians_us.clone())
    }

    /// The percentiles of single operations, if any were timed one by one.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        self.singles.percentiles()
    }
}
