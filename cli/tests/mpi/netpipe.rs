//! NetPIPE: an unmodified benchmark that sends messages back and forth between two ranks.

use crate::DOMAINS;
use crate::launch::Launch;
use crate::mpi::{Mpi, find_program};

/// The longest message, and the number of repetitions of each size.
const LONGEST_BYTES: &str = "8388608";
const REPETITIONS: &str = "3";

/// NetPIPE prints a line for each size. If NetPIPE measures, the line ends with `MEASURED`; if NetPIPE
/// checks the data, with `CHECKED`.
const MEASURED: &str = "usec";
const CHECKED: &str = "Integrity check passed";

/// Makes NetPIPE measure each size without the sizes just below and above it.
const ROUND_SIZES: [&str; 2] = ["-p", "0"];

/// Runs NetPIPE with these options over each domain. The line of each size must end with `verdict`.
fn run_netpipe(options: &[&str], verdict: &str) {
    let (Some(_), Some(program)) = (Mpi::Open.find_launcher(), find_program("NPopenmpi", "netpipe-openmpi"))
    else {
        return;
    };
    for domain in DOMAINS {
        let bounds = ["-l", "1", "-u", LONGEST_BYTES, "-n", REPETITIONS, "-o", "np.out"];
        let outcome = Launch::with_domain(Mpi::Open, domain, 2).run(&program, &[&bounds, options].concat());
        outcome.assert_success_over(Mpi::Open, domain, 2);
        let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
        let sizes: Vec<&str> = said.lines().filter(|line| line.contains(" times --> ")).collect();
        assert!(sizes.len() > 20 && sizes.iter().all(|line| line.trim_end().ends_with(verdict)), "{outcome}");
        let longest =
            sizes.iter().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).max();
        // To check data, NetPIPE uses other sizes. The largest of them is at least half of
        // `LONGEST_BYTES`.
        assert!(longest >= LONGEST_BYTES.parse::<u64>().ok().map(|bytes| bytes / 2), "{outcome}");
    }
}

#[test]
fn netpipe_data_is_intact() {
    run_netpipe(&["-i"], CHECKED);
}

#[test]
fn netpipe_measures_one_message_at_a_time() {
    run_netpipe(&[], MEASURED);
}

#[test]
fn netpipe_measures_preposted_receives_from_any_source() {
    run_netpipe(&[&ROUND_SIZES[..], &["-a", "-z"]].concat(), MEASURED);
}

#[test]
fn netpipe_measures_both_directions_at_once() {
    run_netpipe(&[&ROUND_SIZES[..], &["-a", "-2"]].concat(), MEASURED);
}

#[test]
fn netpipe_measures_synchronous_sends() {
    run_netpipe(&[&ROUND_SIZES[..], &["-S"]].concat(), MEASURED);
}

#[test]
fn netpipe_measures_a_stream_in_one_direction() {
    run_netpipe(&[&ROUND_SIZES[..], &["-s"]].concat(), MEASURED);
}
