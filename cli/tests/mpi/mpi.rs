//! The implementations of MPI that programs run over, and where they are.

use std::env;
use std::path::{Path, PathBuf};

/// Names the directory into which MPICH was installed (`bin/mpicc`, `bin/mpirun`). The wheel that the Python package
/// index has under the name `mpich` is one, once installed into a virtual environment; it brings a libfabric of its own.
const MPICH_DIRECTORY: &str = "HOMESPUN_MPICH";

/// An implementation of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mpi {
    /// Open MPI, with the system's libfabric.
    Open,
    /// MPICH, with one of its own.
    Mpich,
}

impl Mpi {
    pub(crate) const ALL: [Mpi; 2] = [Mpi::Open, Mpi::Mpich];

    /// The path of one of its commands, if it is installed.
    pub(crate) fn command(self, name: &str) -> Option<PathBuf> {
        match self {
            Mpi::Open => installed(name, if name == "mpicc" { "libopenmpi-dev" } else { "openmpi-bin" }),
            Mpi::Mpich => {
                let directory = env::var_os(MPICH_DIRECTORY);
                let command = directory.map(|directory| Path::new(&directory).join("bin").join(name));
                found(command, &format!("MPICH, whose directory {MPICH_DIRECTORY} names"))
            }
        }
    }

    /// What else its ranks find in their environment, beside what `homespun run` puts there.
    pub(crate) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Mpi::Open => &[
                // Each rank says which provider it has, and which domain.
                ("OMPI_MCA_mtl_ofi_verbose", "1"),
                ("OMPI_MCA_mtl_base_verbose", "1"),
                // Ranks that never yield, each kept on a core, wait long for each other where something else runs too.
                ("OMPI_MCA_mpi_yield_when_idle", "1"),
                ("OMPI_MCA_hwloc_base_binding_policy", "none"),
                // Tests may run as root, in a container.
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ],
            Mpi::Mpich => &[("MPIR_CVAR_DEBUG_SUMMARY", "1"), ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")],
        }
    }
}

/// The path of a program, if it is installed.
pub(crate) fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let command =
        env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file());
    found(command, &format!("{program} (Debian: {package})"))
}

#[expect(clippy::print_stderr, reason = "who runs the test has to see that nothing was tested")]
fn found(command: Option<PathBuf>, what: &str) -> Option<PathBuf> {
    let command = command.filter(|path| path.is_file());
    if command.is_none() {
        assert!(env::var_os("CI").is_none(), "in CI there must be {what}");
        eprintln!("SKIPPED: no {what}");
    }
    command
}
