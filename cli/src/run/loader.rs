//! Asks the system's loader for libfabric.

use std::env;
use std::process::{Command, Stdio};

const LIBFABRIC: &str = "libfabric.so.1";

/// Whether the loader finds libfabric for a program that needs it.
///
/// The answer depends on `LD_LIBRARY_PATH`, a cache and the system, so the loader itself is asked: it has to
/// preload libfabric into this program, and complains if it cannot (`ld.so(8)`). True if the loader cannot be
/// asked.
pub(super) fn finds_libfabric() -> bool {
    let Ok(program) = env::current_exe() else { return true };
    let mut command = Command::new(program);
    command.arg("--version").env("LD_PRELOAD", LIBFABRIC).stdin(Stdio::null());
    command.output().map_or(true, |output| !String::from_utf8_lossy(&output.stderr).contains(LIBFABRIC))
}
