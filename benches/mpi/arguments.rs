//! The arguments of the benchmark.

use std::path::PathBuf;

use crate::{Case, PROGRAMS, RANKS, ROUNDS, Result};

pub(crate) struct Arguments {
    programs: Vec<String>,
    mpis: Vec<String>,
    ranks: Vec<usize>,
    pub(crate) rounds: usize,
    /// The page to write the tables to.
    pub(crate) record: Option<PathBuf>,
}

const USAGE: &str = "arguments: [openmpi | mpich] [halo | alltoall | allreduce | netpipe] [2 | 8 | 16 | 48] \
    [--rounds N] [--record PAGE]";

impl Arguments {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments> {
        let mut parsed =
            Arguments { programs: vec![], mpis: vec![], ranks: vec![], rounds: ROUNDS, record: None };
        // Cargo adds --bench.
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--rounds" => parsed.rounds = arguments.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?,
                "--record" => parsed.record = Some(arguments.next().ok_or(USAGE)?.into()),
                "openmpi" | "mpich" => parsed.mpis.push(argument),
                name if PROGRAMS.iter().any(|program| program.name() == name) => {
                    parsed.programs.push(argument);
                }
                number => {
                    let ranks = number.parse().ok().filter(|ranks| RANKS.contains(ranks));
                    parsed.ranks.push(ranks.ok_or_else(|| format!("{number} is unknown; {USAGE}"))?);
                }
            }
        }
        Ok(parsed)
    }

    /// Whether the arguments name this case. Arguments that name no MPI, no program or no number of ranks
    /// name all of them.
    pub(crate) fn includes(&self, case: Case) -> bool {
        let names = |list: &[String], name: &str| list.is_empty() || list.iter().any(|named| named == name);
        names(&self.mpis, case.mpi.argument())
            && names(&self.programs, case.program.name())
            && (self.ranks.is_empty() || self.ranks.contains(&case.ranks))
    }
}
