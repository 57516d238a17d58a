//! Recognises the launchers of Open MPI.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// The names of Open MPI's launchers. Other MPIs, too, use the first two names.
const LAUNCHERS: [&str; 6] = ["mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"];

/// Open MPI's names in the version texts of its launchers.
const MARKS: [&str; 3] = ["Open MPI", "OpenRTE", "PRRTE"];

/// Whether a program is a launcher of Open MPI. If the program has a launcher's name, runs it with
/// `--version`.
pub(super) fn is_launcher(program: &OsStr) -> bool {
    let name = Path::new(program).file_name();
    if !LAUNCHERS.iter().any(|launcher| name == Some(OsStr::new(launcher))) {
        return false;
    }
    // If the launcher cannot be executed, `homespun run` reports the error when it executes the command.
    let asked = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    asked.is_ok_and(|output| {
        let said = String::from_utf8_lossy(&output.stdout);
        MARKS.iter().any(|mark| said.contains(mark))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn launcher_is_recognised_by_its_name_and_version() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let is_open_mpi = |name: &str, version: &str| {
            let path = directory.path().join(name);
            fs::write(&path, format!("#!/bin/sh\necho '{version}'\n")).expect("a temporary directory");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a temporary directory");
            is_launcher(path.as_os_str())
        };
        assert!(is_open_mpi("mpirun", "mpirun (Open MPI) 4.1.4"));
        assert!(is_open_mpi("orterun", "orterun (OpenRTE) 4.1.4"));
        assert!(!is_open_mpi("mpirun", "HYDRA build details:"));
        assert!(!is_open_mpi("app", "app (Open MPI) 4.1.4"));
        assert!(!is_launcher("mpirun-of-another-kind".as_ref()));
    }
}
