//! NetPIPE, an unmodified program that measures: messages to and fro between two ranks. It has no use for more.

use crate::DOMAINS;
use crate::launch::Launch;
use crate::mpi::{Mpi, installed};

/// The longest message, in bytes, and how often one of each size goes to and fro.
const LONGEST_BYTES: &str = "8388608";
const REPETITIONS: &str = "3";

/// The lines that NetPIPE writes about each size end like this when it measures, and when it checks the data.
const MEASURED: &str = "usec";
const CHECKED: &str = "Integrity check passed";

/// Takes each size alone, without those just below and above it.
const ROUND_SIZES: [&str; 2] = ["-p", "0"];

/// Runs NetPIPE with these options over each domain. Each line about a size must end like this.
fn netpipe(options: &[&str], verdict: &str) {
    let (Some(_), Some(program)) = (Mpi::Open.launcher(), installed("NPopenmpi", "netpipe-openmpi")) else {
        return;
    };
    for domain in DOMAINS {
        let bounds = ["-l", "1", "-u", LONGEST_BYTES, "-n", REPETITIONS, "-o", "np.out"];
        let outcome = Launch::over(Mpi::Open, domain, 2).run(&program, &[&bounds, options].concat());
        outcome.require_over(Mpi::Open, domain, 2);
        let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
        let sizes: Vec<&str> = said.lines().filter(|line| line.contains(" times --> ")).collect();
        assert!(sizes.len() > 20 && sizes.iter().all(|line| line.trim_end().ends_with(verdict)), "{outcome}");
        let longest =
            sizes.iter().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).max();
        // The check has other sizes, of which the last is beyond half of the longest.
        assert!(longest >= LONGEST_BYTES.parse::<u64>().ok().map(|bytes| bytes / 2), "{outcome}");
    }
}

#[test]
fn data_is_what_was_sent() {
    netpipe(&["-i"], CHECKED);
}

#[test]
fn one_message_at_a_time() {
    netpipe(&[], MEASURED);
}

#[test]
fn receives_posted_before_and_from_anyone() {
    netpipe(&[&ROUND_SIZES[..], &["-a", "-z"]].concat(), MEASURED);
}

#[test]
fn both_directions_at_once() {
    netpipe(&[&ROUND_SIZES[..], &["-a", "-2"]].concat(), MEASURED);
}

#[test]
fn synchronous_sends() {
    netpipe(&[&ROUND_SIZES[..], &["-S"]].concat(), MEASURED);
}

#[test]
fn a_stream_in_one_direction() {
    netpipe(&[&ROUND_SIZES[..], &["-s"]].concat(), MEASURED);
}
