//! NetPIPE: an unmodified benchmark that sends messages back and forth between two ranks.

use crate::DOMAINS;
use crate::launch::Launch;
use crate::mpi::{Mpi, find_program};

/// The longest message, and the number of repetitions of each size.
const LONGEST_BYTES: &str = "8388608";
const REPETITIONS: &str = "3";

/// How NetPIPE's line for each size ends if it checks the data.
const CHECKED: &str = "Integrity check passed";

#[test]
fn netpipe_data_is_intact() {
    let (Some(_), Some(program)) = (Mpi::Open.find_launcher(), find_program("NPopenmpi", "netpipe-openmpi"))
    else {
        return;
    };
    for domain in DOMAINS {
        let options = ["-l", "1", "-u", LONGEST_BYTES, "-n", REPETITIONS, "-o", "np.out", "-i"];
        let outcome = Launch { domain: Some(domain), ..Launch::new(Mpi::Open, 2) }.run(&program, &options);
        outcome.assert_success_over(Mpi::Open, domain, 2);
        let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
        let sizes: Vec<&str> = said.lines().filter(|line| line.contains(" times --> ")).collect();
        assert!(sizes.len() > 20 && sizes.iter().all(|line| line.trim_end().ends_with(CHECKED)), "{outcome}");
        let longest =
            sizes.iter().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).max();
        // To check data, NetPIPE uses other sizes. The largest of them is at least half of
        // `LONGEST_BYTES`.
        assert!(longest >= LONGEST_BYTES.parse::<u64>().ok().map(|bytes| bytes / 2), "{outcome}");
    }
}
