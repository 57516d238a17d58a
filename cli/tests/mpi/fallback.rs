//! Without homespun the MPI programs fail, because `homespun run` leaves them no fallback. So all
//! messages of the other tests go over homespun. Another test shows that without `--domain` a program
//! uses the domain `auto`.

use std::time::Duration;

use crate::chosen_links::ChosenLinks;
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
            let launch = Launch::with_launcher_variable(mpi, ("FI_HOMESPUN_DOMAIN", "token-ring"), 2);
            let outcome = launch.with_run_max(FAILURE_MAX).run(&program, &[]);
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

#[test]
fn open_mpi_without_a_domain_uses_auto() {
    let Some(program) = EVERY_BYTE.compile_once(Mpi::Open) else { return };
    let outcome = Launch::with_variable(Mpi::Open, ("OMPI_MCA_pml", "ob1"), 2).run(&program, &[]);
    outcome.assert_success_over(Mpi::Open, "auto", 2);
}

#[test]
fn mpich_without_a_domain_uses_auto() {
    let Some(program) = EVERY_BYTE.compile_once(Mpi::Mpich) else { return };
    let launch = Launch::with_variable(Mpi::Mpich, ("MPIR_CVAR_CH4_NETMOD", "ucx"), 2);
    let (outcome, logs) = launch.run_with_logs(&program);
    EVERY_BYTE.assert_success(&outcome, 2);
    ChosenLinks::parse(&logs).assert_all_near(2);
}

#[test]
fn intel_mpi_without_a_domain_uses_auto() {
    let Some(program) = EVERY_BYTE.compile_once(Mpi::Intel) else { return };
    let outcome = Launch::with_variable(Mpi::Intel, ("I_MPI_OFI_PROVIDER", "sockets"), 2).run(&program, &[]);
    outcome.assert_success_over(Mpi::Intel, "auto", 2);
}
