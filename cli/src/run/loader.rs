//! Whether the system's loader finds libfabric.

use std::env;
use std::process::{Command, Stdio};

const LIBFABRIC: &str = "libfabric.so.1";

/// Whether a program that wants libfabric would be given one.
///
/// The loader itself is asked, since its answer depends on `LD_LIBRARY_PATH`, a cache and the system: it is to load
/// libfabric into this very program, and complains where it cannot (`ld.so(8)`). True also where it does not say.
pub(super) fn finds_libfabric() -> bool {
    let Ok(program) = env::current_exe() else { return true };
    let mut command = Command::new(program);
    command.arg("--version").env("LD_PRELOAD", LIBFABRIC).stdin(Stdio::null());
    command.output().map_or(true, |output| !String::from_utf8_lossy(&output.stderr).contains(LIBFABRIC))
}
