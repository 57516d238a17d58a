//! Distributed graphs, which MPICH builds with probes. MPICH has a fault: some calls return wrong
//! neighbours. `docs/design/messages.md` describes it, and how homespun keeps it rare.

use std::thread;

use homespun_suite::prerequisites::Prerequisite;

use crate::DOMAINS;
use crate::launch::{Launch, Outcome};
use crate::mpi::Mpi;
use crate::programs::{GRAPH, Program};

const CALLS: u32 = 1000;

/// The largest accepted number of calls with wrong neighbours. Tens of times as many would be wrong if a peek
/// (`FI_PEEK`) found what was received behind the end of another receive.
const WRONG_MAX: u32 = CALLS / 100;

/// How many runs there may be until one is good. A busy machine spoils runs: a call goes wrong if a rank
/// finds two messages of its peer at once, and this often happens after the rank has waited for a processor.
const RUNS_MAX: usize = 5;

/// Pins each rank to a core. If ranks shared a core, each would always find two messages of its peer at
/// once.
const EACH_ON_A_CORE: &[&str] = &["-bind-to", "core"];

/// The number of calls with wrong neighbours.
#[track_caller]
fn parse_wrong_calls(program: Program, outcome: &Outcome) -> u32 {
    let line = outcome.find_line(program.success_line_prefix()).unwrap_or_else(|| panic!("{outcome}"));
    let count = line.strip_prefix(&format!("{}: 2 ranks, ", program.success_line_prefix()));
    let count = count.and_then(|rest| rest.strip_suffix(&format!(" wrong of {CALLS}")));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{outcome}"))
}

#[test]
fn mpich_rarely_counts_wrong_neighbours() {
    let Some(program) = GRAPH.compile_once(Mpi::Mpich) else { return };
    if thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        return Prerequisite::TWO_PROCESSORS.report_skipped("each rank needs its own");
    }
    for domain in DOMAINS {
        let run = || {
            let launch = Launch::with_domain(Mpi::Mpich, domain, 2).with_options(EACH_ON_A_CORE);
            let outcome = launch.run(&program, &[&CALLS.to_string()]);
            outcome.assert_success_over(Mpi::Mpich, domain, 2);
            parse_wrong_calls(GRAPH, &outcome)
        };
        let mut counts = Vec::new();
        while counts.len() < RUNS_MAX && counts.last().is_none_or(|wrong| *wrong > WRONG_MAX) {
            counts.push(run());
        }
        let is_good = counts.last().is_some_and(|wrong| *wrong <= WRONG_MAX);
        assert!(is_good, "over {domain}, of {CALLS} calls each: {counts:?}");
    }
}
