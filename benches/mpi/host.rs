//! Describes the host and the versions that are compared.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use crate::contender::Mpi;
use crate::installed::Installed;

/// One line for the page.
pub(crate) fn describe(installed: &Installed) -> String {
    let cores = available_parallelism().map_or(0, usize::from);
    let libfabric = first_line_with(
        Command::new("fi_info")
            .arg("--version")
            .envs(installed.libfabric().map(|path| ("LD_LIBRARY_PATH", path))),
        "libfabric: ",
    );
    let open_mpi = first_line_with(Command::new("mpirun").arg("--version"), "(Open MPI) ");
    let mpich = installed.mpich().map(|prefix| {
        let version = first_line_with(&mut Command::new(prefix.join("bin/mpichversion")), "MPICH Version:");
        format!(", {} {version}", Mpi::Mpich.name())
    });
    format!(
        "homespun {}, Open MPI {open_mpi}{}, libfabric {libfabric}; {}, {cores} cores, Linux {}",
        env!("CARGO_PKG_VERSION"),
        mpich.unwrap_or_default(),
        read_value("/proc/cpuinfo", "model name\t: "),
        read_value("/proc/sys/kernel/osrelease", ""),
    )
}

/// What follows `mark` in the first line of the output that has it.
fn first_line_with(command: &mut Command, mark: &str) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    rest_of_line(&String::from_utf8_lossy(&output), mark)
}

fn read_value(file: &str, mark: &str) -> String {
    rest_of_line(&fs::read_to_string(file).unwrap_or_default(), mark)
}

fn rest_of_line(text: &str, mark: &str) -> String {
    let found = text.lines().find_map(|line| Some(line.split_once(mark)?.1.trim().to_owned()));
    found.unwrap_or_else(|| "of an unknown version".to_owned())
}
