//! Without homespun the MPI programs fail, because `homespun run` leaves them no fallback. So all
//! messages of the other tests go over homespun.

use std::time::Duration;

use crate::launch::Launch;
use crate::mpi::Mpi;
use crate::programs::EVERY_BYTE;

/// The time limit of a run. `mpirun` may hang when its ranks fail early, but that does not matter here.
const FAILURE_MAX: Duration = Duration::from_secs(30);

/// How many runs there may be until one tells why it fails. Intel's `mpirun` may die of SIGPIPE before it has
/// passed on what its ranks say.
const RUNS_MAX: usize = 3;

#[test]
fn mpi_without_homespun_fails() {
    for (mpi, complaint) in [
        (Mpi::Open, "PML cm cannot be selected"),
        (Mpi::Mpich, "OFI call getinfo failed"),
        (Mpi::Intel, "OFI fi_getinfo() failed"),
    ] {
        let Some(program) = EVERY_BYTE.compile_once(mpi) else { continue };
        let run = || {
            let launcher_variables = vec![("FI_HOMESPUN_DOMAIN", "token-ring")];
            let launch = Launch { launcher_variables, run_max: FAILURE_MAX, ..Launch::new(mpi, 2) };
            let outcome = launch.run(&program, &[]);
            EVERY_BYTE.assert_failure(&outcome);
            outcome.to_string()
        };
        let mut said = Vec::new();
        while said.len() < RUNS_MAX && said.last().is_none_or(|said: &String| !said.contains(complaint)) {
            said.push(run());
        }
        assert!(said.last().is_some_and(|said| said.contains(complaint)), "{}", said.join("\n"));
    }
}
