//! The bare loops with which contenders are compared. A bare loop runs on the same cores as the
//! contenders.

use super::super::bare::{self, Copies, Copying};
use super::super::pair::{Pair, Placement};
use super::super::step::{Step, Way};
use super::super::survey::MeasuredDomain;
use super::super::trial::{calibrate_run, find_fastest_way};
use super::program::Program;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;

/// The name of the bare loop that copies within one process.
const COPY_NAME: &str = "memcpy";

/// Two processes connected by a medium, without a fabric.
#[derive(Debug)]
pub(super) struct Floor {
    domain: MeasuredDomain,
    pair: Pair,
    can_readv: bool,
    round_ms: u32,
}

/// The bare loop for one program and size.
#[derive(Debug, Clone, Copy)]
pub(super) enum BareLoop {
    Step(Step),
    Copies(Copies),
}

/// Whether some bare loop does as much work as the program. Over TCP a read takes a request and an
/// answer, and a write takes an acknowledgement. The bare loop over TCP has no requests, answers or
/// acknowledgements.
pub(super) fn has_floor(domain: MeasuredDomain, program: Program) -> bool {
    domain == MeasuredDomain::Shm || !matches!(program, Program::RmaWrite | Program::RmaRead)
}

impl Floor {
    pub(super) fn start(
        domain: MeasuredDomain,
        placement: Placement,
        round_ms: u32,
    ) -> Result<Floor, CommandFailure> {
        let pair = Pair::start(domain.medium_kind(), None, placement)?;
        let can_readv = pair.readv_refusal().is_none();
        Ok(Floor { domain, pair, can_readv, round_ms })
    }

    /// Finds the fastest bare loop that does the program's work. `None` if there is no bare loop (see
    /// [`has_floor`]).
    pub(super) fn find_fastest_loop(
        &mut self,
        program: Program,
        size_bytes: usize,
    ) -> Result<Option<BareLoop>, CommandFailure> {
        if !has_floor(self.domain, program) {
            return Ok(None);
        }
        let metric = program.metric();
        let copying = match (self.domain, program) {
            (MeasuredDomain::Shm, Program::RmaWrite) => Some(Copying::To),
            (MeasuredDomain::Shm, Program::RmaRead) => Some(Copying::From),
            _ => None,
        };
        if let Some(copying) = copying {
            let run = calibrate_run(size_bytes, metric, self.round_ms, |run| {
                Ok(bare::time_copies(&Copies { copying, metric, run })?.each_us)
            })?;
            return Ok(Some(BareLoop::Copies(Copies { copying, metric, run })));
        }
        let ways: Vec<Way> = self.domain.candidate_bare_ways(size_bytes, self.can_readv);
        let pair = &mut self.pair;
        let step =
            find_fastest_way(&ways, size_bytes, metric, self.round_ms, |step| pair.measure_step(step, None))?;
        Ok(Some(BareLoop::Step(step)))
    }

    /// Measures the bare loop once.
    pub(super) fn time_bare_loop(&mut self, bare_loop: &BareLoop) -> Result<Timing, CommandFailure> {
        match bare_loop {
            BareLoop::Step(step) => self.pair.measure_step(step, None),
            BareLoop::Copies(copies) => bare::time_copies(copies),
        }
    }
}

impl BareLoop {
    /// The bare loop's name in results.
    pub(super) fn name(&self) -> &'static str {
        match self {
            BareLoop::Step(step) => step.way.name(),
            BareLoop::Copies(_) => COPY_NAME,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rma_over_tcp_has_no_floor() {
        for program in [Program::Pingpong].into_iter().chain(Program::FABTESTS) {
            let is_access = program.file_name() == "fi_rma_bw";
            assert!(has_floor(MeasuredDomain::Shm, program), "{program:?}");
            assert_eq!(has_floor(MeasuredDomain::Tcp, program), !is_access, "{program:?}");
        }
    }
}
