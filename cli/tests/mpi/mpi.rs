//! The implementations of MPI, and where they are installed.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use homespun_suite::prerequisites::Prerequisite;

/// The variable that names MPICH's directory (`bin/mpicc`, `bin/mpirun`). The directory may be a virtual
/// environment with the wheel `mpich` of the Python package index. This wheel contains its own
/// libfabric.
const MPICH_DIRECTORY: &str = "HOMESPUN_MPICH";

/// The variable that names Intel MPI's directory (`bin/mpicc`, `bin/mpiexec.hydra`). The directory may
/// be a virtual environment with the wheels `impi-rt` and `impi-devel` of the Python package index.
const INTEL_MPI_DIRECTORY: &str = "HOMESPUN_INTEL_MPI";

/// An implementation of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mpi {
    /// Open MPI, with the system's libfabric.
    Open,
    /// MPICH, with its own libfabric.
    Mpich,
    /// Intel MPI, for x86-64 only, with its own libfabric.
    Intel,
}

impl Mpi {
    /// The path of the command that starts the ranks, if it is installed.
    pub(crate) fn find_launcher(self) -> Option<PathBuf> {
        self.find_command(match self {
            Mpi::Open | Mpi::Mpich => "mpirun",
            // Intel MPI's `mpirun` is a script that finds this command only through PATH.
            Mpi::Intel => "mpiexec.hydra",
        })
    }

    /// The path of one of the MPI's commands, if it is installed.
    pub(crate) fn find_command(self, name: &str) -> Option<PathBuf> {
        let (variable, title) = match self {
            Mpi::Open => {
                let package = if name == "mpicc" { "libopenmpi-dev" } else { "openmpi-bin" };
                return find_program(name, package);
            }
            Mpi::Mpich => (MPICH_DIRECTORY, "MPICH"),
            Mpi::Intel => (INTEL_MPI_DIRECTORY, "Intel MPI"),
        };
        let directory = env::var_os(variable);
        if self == Mpi::Intel && directory.is_none() && !cfg!(target_arch = "x86_64") {
            Prerequisite::PROCESSOR_OF_INTEL_MPI.report_skipped(name);
            return None;
        }
        let command = directory.map(|directory| Path::new(&directory).join("bin").join(name));
        report_if_not_file(command, &format!("{title}, whose directory {variable} names"))
    }

    /// The environment variables for the MPI's compiler and ranks, besides those of `homespun run`.
    pub(crate) fn environment(self) -> Vec<(&'static str, OsString)> {
        let set: &[(&str, &str)] = match self {
            Mpi::Open => &[
                // Each rank reports its provider and its domain.
                ("OMPI_MCA_mtl_ofi_verbose", "1"),
                ("OMPI_MCA_mtl_base_verbose", "1"),
                // On a busy host, pinned ranks that never yield would wait long for each other.
                ("OMPI_MCA_mpi_yield_when_idle", "1"),
                ("OMPI_MCA_hwloc_base_binding_policy", "none"),
                // Tests may run as root, in a container.
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ],
            Mpi::Mpich => &[("MPIR_CVAR_DEBUG_SUMMARY", "1"), ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")],
            // Rank 0 reports the provider and the domains. Idle ranks sleep between polls. Ranks are not
            // pinned.
            Mpi::Intel => &[("I_MPI_DEBUG", "4"), ("I_MPI_THREAD_YIELD", "3"), ("I_MPI_PIN", "0")],
        };
        let mut variables: Vec<_> = set.iter().map(|&(name, value)| (name, value.into())).collect();
        if self == Mpi::Intel {
            // Intel MPI's compiler searches this directory for headers and libraries.
            variables.extend(env::var_os(INTEL_MPI_DIRECTORY).map(|directory| ("I_MPI_ROOT", directory)));
        }
        variables
    }
}

/// The path of a program of an MPI or of a benchmark, if it is installed.
pub(crate) fn find_program(program: &str, package: &str) -> Option<PathBuf> {
    report_if_not_file(search_path(program), &format!("{program} (Debian: {package})"))
}

/// The path of a program, if a directory of PATH has it.
pub(crate) fn search_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

fn report_if_not_file(command: Option<PathBuf>, what: &str) -> Option<PathBuf> {
    Prerequisite::MPI.report_skipped_if_none(command.filter(|path| path.is_file()), what)
}
