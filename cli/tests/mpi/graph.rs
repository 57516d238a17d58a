//! Distributed graphs, which MPICH makes of probes: `docs/decisions/peek.md` tells of its fault, and what keeps it rare.

use std::thread;

use crate::DOMAINS;
use crate::launch::{Launch, Outcome};
use crate::mpi::Mpi;
use crate::programs::{GRAPH, Program};

const CALLS: u32 = 1000;

/// How many of all calls may have wrong neighbours. If a peek received messages before it answered, most would.
const WRONG_MAX_PERCENT: u32 = 12;

/// How many runs a test makes to find one with no more. A rank that waits for a processor, which other programs have, often
/// finds two messages of its peer afterwards, where a rank that runs finds one: then the fault shows.
const RUNS_MAX: usize = 6;

/// Ranks that take turns on one processor always find two messages where ranks that run find one.
const EACH_ON_A_CORE: &[&str] = &["-bind-to", "core"];

/// How many calls had wrong neighbours.
#[track_caller]
fn wrong_calls(program: Program, outcome: &Outcome) -> u32 {
    let line = outcome.line(program.verdict()).unwrap_or_else(|| panic!("{outcome}"));
    let count = line.strip_prefix(&format!("{}: 2 ranks, ", program.verdict()));
    let count = count.and_then(|rest| rest.strip_suffix(&format!(" wrong of {CALLS}")));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{outcome}"))
}

#[test]
#[expect(clippy::print_stderr, reason = "who runs the test has to see that nothing was tested")]
fn mpich_rarely_counts_wrong_neighbours() {
    let Some(program) = GRAPH.compiled(Mpi::Mpich) else { return };
    if thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        eprintln!("SKIPPED: two ranks that run at the same time need two processors");
        return;
    }
    for domain in DOMAINS {
        let mut counts = Vec::new();
        while !counts.iter().any(|wrong| wrong * 100 <= WRONG_MAX_PERCENT * CALLS) {
            assert!(counts.len() < RUNS_MAX, "over {domain}, of {CALLS} calls each: {counts:?}");
            let launch = Launch::over(Mpi::Mpich, domain, 2).options(EACH_ON_A_CORE);
            let outcome = launch.run(&program, &[&CALLS.to_string()]);
            outcome.require_over(Mpi::Mpich, domain, 2);
            counts.push(wrong_calls(GRAPH, &outcome));
        }
    }
}
