//! Open MPI as the superuser.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::geteuid;

/// The variables without which Open MPI's launchers refuse to start as the superuser. Each must be 1.
const CONSENT: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];

/// The option of Open MPI's launchers that replaces both variables.
const CONSENT_OPTION: &str = "--allow-run-as-root";

/// The names under which Open MPI installs its launcher. Other MPIs use some of these as well.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi"];

/// Returns a warning, which lists the missing variables, if Open MPI will refuse to run this command as the
/// superuser.
pub(super) fn warning_of_missing_consent(command: &[OsString]) -> Option<String> {
    if !geteuid().is_root() || !needs_consent(command) {
        return None;
    }
    let missing = list_missing_variables(|name| env::var_os(name));
    let launcher = command.first().filter(|program| !missing.is_empty() && is_open_mpi(program))?;
    let launcher = launcher.display();
    let missing = missing.join(" and ");
    Some(format!("as root, {launcher} of Open MPI starts nothing unless the environment has {missing}"))
}

fn needs_consent(command: &[OsString]) -> bool {
    let name = command.first().and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| LAUNCHERS.iter().any(|launcher| name == *launcher))
        && !command.iter().any(|argument| argument == CONSENT_OPTION)
}

/// Returns the variables of [`CONSENT`] that are not 1, as assignments of a shell.
fn list_missing_variables(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
    let missing = CONSENT.into_iter().filter(|name| lookup(name).is_none_or(|value| value != "1"));
    missing.map(|name| format!("{name}=1")).collect()
}

/// Whether the version that a launcher prints is Open MPI's. False if the launcher cannot be started.
fn is_open_mpi(launcher: &OsStr) -> bool {
    let output = Command::new(launcher).arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Open MPI"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_needs_consent(command: &[&str]) -> bool {
        needs_consent(&command.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn only_launchers_without_the_option_need_consent() {
        assert!(command_needs_consent(&["mpirun", "-np", "2", "app"]));
        assert!(command_needs_consent(&["/opt/openmpi/bin/mpiexec", "app"]));
        assert!(!command_needs_consent(&["mpirun", "--allow-run-as-root", "app"]));
        assert!(!command_needs_consent(&["mpiexec.hydra", "app"]));
        assert!(!command_needs_consent(&["env", "mpirun"]));
        assert!(!command_needs_consent(&[]));
    }

    #[test]
    fn variables_that_are_not_1_are_missing() {
        let missing = |set: &[(&str, &str)]| {
            list_missing_variables(|name| {
                set.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value))
            })
        };
        let [allow, confirm] = CONSENT;
        assert_eq!(missing(&[]), [format!("{allow}=1"), format!("{confirm}=1")]);
        assert_eq!(missing(&[(allow, "1")]), [format!("{confirm}=1")]);
        assert_eq!(missing(&[(allow, "0"), (confirm, "1")]), [format!("{allow}=1")]);
        assert!(missing(&[(allow, "1"), (confirm, "1")]).is_empty());
    }
}
