//! Asks the system's loader for libfabric.

use std::env;
use std::process::{Command, Stdio};

const LIBFABRIC: &str = "libfabric.so.1";

/// Whether the loader finds libfabric for a program that needs it.
///
/// The answer depends on `LD_LIBRARY_PATH`, the loader's cache and the system. So this function starts
/// this program with libfabric in `LD_PRELOAD`. If the loader does not find the library, it prints an
/// error (`ld.so(8)`). Returns true if the program cannot be started.
pub(super) fn can_loader_find_libfabric() -> bool {
    let Ok(program) = env::current_exe() else { return true };
    let mut command = Command::new(program);
    command.arg("--version").env("LD_PRELOAD", LIBFABRIC).stdin(Stdio::null());
    command.output().map_or(true, |output| !String::from_utf8_lossy(&output.stderr).contains(LIBFABRIC))
}
