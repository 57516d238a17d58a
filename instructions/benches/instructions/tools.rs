//! The versions of all tools that affect counts.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::process::Command;

use crate::Result;

pub(crate) fn versions() -> Result<BTreeMap<String, String>> {
    // SAFETY: the C library returns a static string.
    let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let valgrind = Command::new("valgrind").arg("--version").output();
    let valgrind = valgrind.map_err(|error| format!("valgrind, which counts, cannot be run: {error}"))?;
    let versions = [
        ("glibc", glibc.to_str()?),
        ("rustc", env!("HOMESPUN_RUSTC")),
        ("rustflags", env!("HOMESPUN_RUSTFLAGS")),
        ("target", env!("HOMESPUN_TARGET")),
        ("valgrind", std::str::from_utf8(&valgrind.stdout)?.trim()),
    ];
    Ok(versions.map(|(name, version)| (name.into(), version.into())).into())
}
