//! Compares MPI programs over homespun with the same programs over the transports of Open MPI and the
//! providers of libfabric, for more and more ranks on this host:
//!
//! ```text
//! cargo build --release                                # the plugin and the command homespun
//! cargo bench --bench mpi                              # everything; takes about 20 minutes
//! cargo bench --bench mpi -- halo alltoall 8           # two of the programs, with 8 ranks
//! cargo bench --bench mpi -- --record docs/mpi.md      # also writes the tables to this page
//! ```
//!
//! It needs Open MPI (Debian: openmpi-bin, libopenmpi-dev) and NetPIPE (netpipe-openmpi). `LIBFABRIC` names
//! the prefix of another libfabric than the system's. `MPICH` names the prefix of an MPICH that uses
//! libfabric; without it MPICH is not measured. docs/mpi.md explains the tables.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its result")]

mod arguments;
mod contender;
mod host;
mod installed;
mod page;
mod run;

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::contender::{Contender, Mpi};
use crate::installed::Installed;
use crate::page::{Section, Times};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How many rounds are measured, unless the arguments say another number. In each round every contender has
/// a turn.
const ROUNDS: usize = 3;

/// The numbers of ranks.
const RANKS: [usize; 4] = [2, 8, 16, 48];

/// What is measured: an MPI, a program, and a number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    mpi: Mpi,
    program: Program,
    ranks: usize,
}

/// The programs. The sources of all but NetPIPE are in `programs/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Halo,
    AllToAll,
    AllReduce,
    NetPipe,
}

const PROGRAMS: [Program; 4] = [Program::Halo, Program::AllToAll, Program::AllReduce, Program::NetPipe];

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Halo => "halo",
            Program::AllToAll => "alltoall",
            Program::AllReduce => "allreduce",
            Program::NetPipe => "netpipe",
        }
    }
}

impl Case {
    /// All cases, in the order of the page.
    fn all() -> impl Iterator<Item = Case> {
        let with_ranks = |mpi, program| RANKS.map(|ranks| Case { mpi, program, ranks });
        Mpi::ALL
            .into_iter()
            .flat_map(move |mpi| PROGRAMS.into_iter().flat_map(move |program| with_ranks(mpi, program)))
            // NetPIPE is a ping-pong of two ranks, and its package is built for Open MPI.
            .filter(|case| case.program != Program::NetPipe || case.ranks == 2 && case.mpi == Mpi::Open)
    }

    fn title(self) -> String {
        format!("{}: {}, {} ranks", self.mpi.name(), self.program.name(), self.ranks)
    }
}

fn main() -> ExitCode {
    match measure_and_report() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mpi: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_and_report() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let installed = Installed::find()?;
    if installed.mpich().is_none() {
        eprintln!(
            "MPICH is not measured: set MPICH to the prefix of one that uses libfabric (pip install mpich)"
        );
    }
    println!("{}", host::describe(&installed));
    let cases = Case::all().filter(|case| arguments.includes(*case) && installed.has(case.mpi));
    for case in cases {
        let section = measure(case, &installed, arguments.rounds)?;
        println!("\n{section}");
        if let Some(page) = &arguments.record {
            page::record(page, &section, &host::describe(&installed))?;
        }
    }
    Ok(())
}

/// Lets the contenders run in turns. A contender that fails in a round has no time in this round.
fn measure(case: Case, installed: &Installed, rounds: usize) -> Result<Section> {
    let program = installed.compile(case)?;
    let contenders = Contender::all(case.mpi);
    let mut times: Vec<BTreeMap<u64, Vec<f64>>> = vec![BTreeMap::new(); contenders.len()];
    for round in 0..rounds {
        for (contender, times) in contenders.iter().zip(&mut times) {
            match run::run(case, contender, installed, &program) {
                Ok(lines) => {
                    for (size, us) in lines {
                        times.entry(size).or_default().push(us);
                    }
                }
                Err(error) => eprintln!("{}, {}, round {round}: {error}", case.title(), contender.name()),
            }
        }
    }
    Ok(Section::new(case, contenders, times.into_iter().map(Times::median_of_rounds).collect()))
}
