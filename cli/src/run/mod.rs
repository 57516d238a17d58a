//! `homespun run`: a command whose libfabric, and whose Open MPI, MPICH or Intel MPI, use homespun.

mod environment;
mod loader;
pub(crate) mod plugin;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use homespun::Fabric;
use homespun::params::Params;

use self::environment::Environment;
use crate::console::Console;
use crate::exchange::port;
use crate::failure::Failure;

/// Run a command over homespun: any that uses libfabric, and mpirun of Open MPI, MPICH or Intel MPI.
///
/// Sets FI_PROVIDER_PATH and FI_PROVIDER, so that libfabric loads homespun and nothing else, and for Open MPI
/// the variables that have its messages go through libfabric (OMPI_MCA_pml, _mtl, _mtl_ofi_provider_include,
/// _btl and _osc) and let there be more ranks than cores (OMPI_MCA_rmaps_base_oversubscribe, unless it is set
/// already), for MPICH those that have all messages go through libfabric (MPIR_CVAR_CH4_NETMOD,
/// MPIR_CVAR_NOLOCAL), and for Intel MPI those that do the same (I_MPI_FABRICS, I_MPI_OFI_PROVIDER,
/// I_MPI_COLL_INTRANODE) and keep its scripts from replacing FI_PROVIDER_PATH (I_MPI_OFI_LIBRARY_INTERNAL; and,
/// unless it is set already, I_MPI_REMOVED_VAR_WARNING, since versions without such scripts would warn of it).
/// The command then takes the place of this one, so its exit status and what signals do to it are its own.
///
/// Open MPI's mpirun gives its environment to the ranks on this host. To those on other hosts it gives what its option -x names.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Offer only this domain: shm or tcp. By default an application has the choice; Open MPI and Intel MPI
    /// take tcp.
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// The directory that holds libhomespun_fi.so. By default it is looked for beside this program, where cargo
    /// puts it; in ../lib/homespun and ../lib as seen from there; and in FI_PROVIDER_PATH.
    #[arg(long, value_name = "DIR")]
    provider_dir: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  homespun run -- mpirun -np 4 ./app                two ranks or more of an MPI program, over TCP
  homespun run --domain shm -- mpirun -np 2 ./app   over shared memory
  homespun run -- fi_info                           what libfabric sees of homespun

Exit status: that of the command; 127 if there is no such command, 126 if it cannot be run, 1 if homespun itself lacks
something, 2 if the command line was not understood.";

/// The programs that start the ranks of an MPI program, and what contains them.
const MPI_LAUNCHERS: [(&str, &str); 4] =
    [("mpirun", OPEN_MPI), ("mpiexec", OPEN_MPI), ("orterun", OPEN_MPI), ("mpiexec.hydra", WITH_HYDRA)];

const OPEN_MPI: &str = "Open MPI (openmpi-bin in Debian and Ubuntu, openmpi in Fedora)";
const WITH_HYDRA: &str = "MPICH or Intel MPI (mpich and impi-rt in the Python package index)";

/// Becomes the command.
///
/// # Errors
///
/// Whatever kept it from that; it does not return otherwise.
pub(crate) fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    // Whatever the environment leaves of them, the command gets the one that is asked for.
    port::require_domain_of(&Fabric::with_params(Params::default()), arguments.domain.as_deref())?;
    let directory = plugin::directory(arguments.provider_dir.as_deref())?;
    let (program, rest) = arguments.command.split_first().ok_or(Failure::NoData("a command"))?;
    if !loader::finds_libfabric() {
        // No reason to stop: the command may bring a libfabric of its own.
        console.complain(
            "the system finds no libfabric.so.1, so this works only for a command that brings its own \
             (to install it: libfabric1 in Debian and Ubuntu, libfabric in Fedora)",
        );
    }
    let environment = Environment::new(&directory, arguments.domain.as_deref());
    let mut command = Command::new(program);
    command.args(rest);
    environment.give_to(&mut command);
    Err(why_not(program, command.exec()))
}

/// Why a program could not be executed.
fn why_not(program: &OsString, error: io::Error) -> Failure {
    let name = Path::new(program);
    // What is there and is not found all the same wants an interpreter that is not there.
    if error.kind() != io::ErrorKind::NotFound || (name.components().count() > 1 && name.exists()) {
        return Failure::NotExecuted { command: program.clone(), error };
    }
    if let Some((_, mpi)) = MPI_LAUNCHERS.iter().find(|(launcher, _)| name.as_os_str() == *launcher) {
        return Failure::NoMpi { command: program.clone(), mpi };
    }
    Failure::NoCommand { command: program.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_launcher_is_told_from_a_missing_command() {
        let said = |name: &str, kind: io::ErrorKind| why_not(&name.into(), kind.into()).to_string();
        assert!(said("mpirun", io::ErrorKind::NotFound).contains("openmpi-bin"));
        assert!(said("mpiexec.hydra", io::ErrorKind::NotFound).contains("impi-rt"));
        assert_eq!(said("no-such", io::ErrorKind::NotFound), "there is no command no-such");
        assert_eq!(said("./no-such", io::ErrorKind::NotFound), "there is no command ./no-such");
        assert!(said("/dev/null", io::ErrorKind::NotFound).starts_with("cannot run /dev/null: "));
        assert!(said("mpirun", io::ErrorKind::PermissionDenied).starts_with("cannot run mpirun: "));
    }
}
