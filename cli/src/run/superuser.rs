//! Open MPI as the superuser.

use std::env;
use std::ffi::OsString;

use rustix::process::geteuid;

use super::open_mpi;

/// Open MPI's launchers refuse to start as the superuser unless each of these variables is 1.
const CONSENT: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];

/// The option of Open MPI's launchers that replaces both variables.
const CONSENT_OPTION: &str = "--allow-run-as-root";

/// Returns a warning if Open MPI will refuse to run this command as the superuser. The warning lists the
/// missing variables.
pub(super) fn warning_of_missing_consent(command: &[OsString]) -> Option<String> {
    if !geteuid().is_root() || has_consent_option(command) {
        return None;
    }
    let missing = list_missing_variables(|name| env::var_os(name));
    let launcher = command.first().filter(|program| !missing.is_empty() && open_mpi::is_launcher(program))?;
    let launcher = launcher.display();
    let missing = missing.join(" and ");
    Some(format!("as root, {launcher} of Open MPI starts nothing unless the environment has {missing}"))
}

fn has_consent_option(command: &[OsString]) -> bool {
    command.iter().any(|argument| argument == CONSENT_OPTION)
}

/// Returns an assignment, as a shell reads it, for each variable of [`CONSENT`] that is not 1.
fn list_missing_variables(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
    let missing = CONSENT.into_iter().filter(|name| lookup(name).is_none_or(|value| value != "1"));
    missing.map(|name| format!("{name}=1")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_with_the_option_of_consent_is_recognised() {
        let has_option =
            |command: &[&str]| has_consent_option(&command.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(has_option(&["mpirun", "--allow-run-as-root", "app"]));
        assert!(!has_option(&["mpirun", "-np", "2", "app"]));
        assert!(!has_option(&[]));
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
