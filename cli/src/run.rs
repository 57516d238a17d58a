//! `homespun run`: executes a command so that it uses homespun through libfabric, librpma, Open MPI, MPICH
//! or Intel MPI.

mod environment;
mod librpma;
mod loader;
mod open_mpi;
pub(crate) mod plugin;
mod superuser;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use homespun::params::{OfferedName, Params};

use self::environment::Environment;
use crate::console::Console;
use crate::exchange::port;
use crate::failure::CommandFailure;

/// Run a command over homespun: a program that uses libfabric or librpma, or mpirun of Open MPI, MPICH or
/// Intel MPI.
///
/// Sets environment variables and executes the command in place of this process. So exit status and
/// signals are those of the command. Options of homespun come before the command.
///
/// FI_PROVIDER_PATH and FI_PROVIDER make libfabric load homespun and no other provider. With --as,
/// FI_HOMESPUN_AS and FI_PROVIDER have the name given there.
///
/// For Open MPI, OMPI_MCA_pml, _mtl, _mtl_ofi_provider_include, _btl and _osc send its messages through
/// libfabric. OMPI_MCA_rmaps_base_oversubscribe, unless it is already set, allows more ranks than cores.
///
/// For MPICH, MPIR_CVAR_CH4_NETMOD and MPIR_CVAR_NOLOCAL send all messages through libfabric.
///
/// For Intel MPI, I_MPI_FABRICS, I_MPI_OFI_PROVIDER and I_MPI_COLL_INTRANODE do the same.
/// I_MPI_OFI_LIBRARY_INTERNAL keeps Intel MPI's scripts from replacing FI_PROVIDER_PATH. Versions that
/// no longer know this variable print a warning. I_MPI_REMOVED_VAR_WARNING, unless it is already set,
/// silences the warning.
///
/// Open MPI's mpirun passes its environment to the ranks on this host. Ranks on other hosts get only the
/// variables that its option -x names.
///
/// With --rpma, only LD_PRELOAD is set, and with --domain FI_HOMESPUN_DOMAIN.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// Offer only this domain to applications that name none: auto, shm or tcp. The default is the domain in
    /// FI_HOMESPUN_DOMAIN, or else auto.
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// Offer homespun under this name, tcp or sockets, in place of libfabric's own provider. This is for
    /// programs that accept only providers whose names they know. All their processes must use homespun.
    #[arg(long = "as", value_name = "NAME")]
    offered_name: Option<OfferedName>,
    /// The directory of libhomespun_fi.so. The default is the first of these that has the file: the
    /// directory of this program; ../lib/homespun, ../lib and ../lib64 relative to it; in a build tree, the
    /// other directories of cargo; and those in FI_PROVIDER_PATH.
    #[arg(long, value_name = "DIR")]
    provider_dir: Option<PathBuf>,
    /// Put homespun's librpma.so.0 in place of librpma, for a program that uses librpma. The library is
    /// searched in the directory of this program, in ../lib/homespun relative to it, and in a build tree in
    /// the other directories of cargo.
    #[arg(long, conflicts_with_all = ["offered_name", "provider_dir"])]
    rpma: bool,
    /// The command and its arguments. A -- before them is needed only if the command's name begins with -.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  homespun run mpirun -np 4 ./app          an MPI program: ranks of one host
                                           share memory, others use TCP
  homespun run -d tcp mpirun -np 2 ./app   over TCP alone
  homespun run fi_info                     libfabric's view of homespun
  homespun run --as tcp ./app              a program that accepts only tcp
  homespun run --rpma ./server 0.0.0.0 7204    a program that uses librpma

Exit status: that of the command; 127 if there is no such command, 126 if it cannot be executed, \
1 if the plugin, the library or the domain is missing, 2 if the command line was wrong.";

/// The launchers of MPI programs. If a launcher is missing, the user should install the MPI named beside
/// it.
const MPI_LAUNCHERS: [(&str, &str); 4] =
    [("mpirun", OPEN_MPI), ("mpiexec", OPEN_MPI), ("orterun", OPEN_MPI), ("mpiexec.hydra", WITH_HYDRA)];

const OPEN_MPI: &str = "Open MPI (openmpi-bin in Debian and Ubuntu, openmpi in Fedora)";
const WITH_HYDRA: &str = "MPICH or Intel MPI (mpich and impi-rt in the Python package index)";

/// Executes the command in place of this process.
///
/// # Errors
///
/// The reason why the command could not be executed. After success this function does not return.
pub(crate) fn exec_command(arguments: &RunArguments, console: &Console) -> Result<(), CommandFailure> {
    let domain = find_domain(arguments.domain.as_deref())?;
    if arguments.rpma {
        return exec_with_librpma(&arguments.command, domain.as_deref());
    }
    let directory = plugin::find_directory(arguments.provider_dir.as_deref())?;
    let (program, rest) = arguments.command.split_first().ok_or(CommandFailure::EmptyCommand)?;
    let name = arguments.offered_name.unwrap_or_else(|| Params::from_env().offered_name);
    if name != OfferedName::Homespun && open_mpi::is_launcher(program) {
        return Err(CommandFailure::OpenMpiExcludes { command: program.clone(), name });
    }
    if !loader::can_loader_find_libfabric() {
        // This is only a warning, since the command may have its own libfabric.
        console.print_warning(
            "the system has no libfabric.so.1, so only commands with their own libfabric will work \
             (to install it: libfabric1 in Debian and Ubuntu, libfabric in Fedora)",
        );
    }
    if let Some(warning) = superuser::warning_of_missing_consent(&arguments.command) {
        console.print_warning(warning);
    }
    let environment = Environment::new(&directory, domain.as_deref(), name);
    let mut command = Command::new(program);
    command.args(rest);
    environment.set_environment(&mut command);
    Err(execution_failure(program, command.exec()))
}

/// Executes a program of librpma in place of this process.
fn exec_with_librpma(command_line: &[OsString], domain: Option<&str>) -> Result<(), CommandFailure> {
    let (program, rest) = command_line.split_first().ok_or(CommandFailure::EmptyCommand)?;
    let mut command = Command::new(program);
    command.args(rest);
    librpma::set_environment(&mut command, domain)?;
    Err(execution_failure(program, command.exec()))
}

/// Returns the requested domain's name in the spelling of `getinfo`. Returns `None` if no domain is
/// requested.
///
/// Warns about bad parameters in the environment. The command itself would only log them, and
/// libfabric's log is usually off.
///
/// # Errors
///
/// [`CommandFailure::NoDomain`] if the requested domain does not exist. If none is requested,
/// [`CommandFailure::NoDomain`] if the domain in FI_HOMESPUN_DOMAIN does not exist. The fabric's error if
/// FI_HOMESPUN_IFACE matches no interface.
fn find_domain(requested: Option<&str>) -> Result<Option<String>, CommandFailure> {
    let of_user = Params::from_env().domain;
    let found = port::find_domain(requested.or(of_user.as_deref()))?;
    Ok(found.filter(|_| requested.is_some()))
}

/// The reason why a program could not be executed.
fn execution_failure(program: &OsString, error: io::Error) -> CommandFailure {
    let name = Path::new(program);
    // A script without its interpreter gives the same error as a missing command.
    if error.kind() != io::ErrorKind::NotFound || (name.components().count() > 1 && name.exists()) {
        return CommandFailure::NotExecuted { command: program.clone(), error };
    }
    if let Some((_, mpi)) = MPI_LAUNCHERS.iter().find(|(launcher, _)| name.as_os_str() == *launcher) {
        return CommandFailure::NoMpi { command: program.clone(), mpi };
    }
    CommandFailure::NoCommand { command: program.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_launcher_and_missing_command_have_distinct_messages() {
        let message =
            |name: &str, kind: io::ErrorKind| execution_failure(&name.into(), kind.into()).to_string();
        assert!(message("mpirun", io::ErrorKind::NotFound).contains("openmpi-bin"));
        assert!(message("mpiexec.hydra", io::ErrorKind::NotFound).contains("impi-rt"));
        assert_eq!(message("no-such", io::ErrorKind::NotFound), "there is no command no-such");
        assert_eq!(message("./no-such", io::ErrorKind::NotFound), "there is no command ./no-such");
        assert!(message("/dev/null", io::ErrorKind::NotFound).starts_with("cannot run /dev/null: "));
        assert!(message("mpirun", io::ErrorKind::PermissionDenied).starts_with("cannot run mpirun: "));
    }
}
