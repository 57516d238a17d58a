//! Memory files: anonymous files in memory, which processes share by their descriptors (`memfd_create(2)`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};

/// The seals that keep any process from changing the size of a file.
pub(crate) const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Creates a file of this size, all zero, that no process can resize.
///
/// # Errors
///
/// EFBIG if RLIMIT_FSIZE forbids files of this size; otherwise the error of the system call.
pub(crate) fn create_sealed(name: &str, len_bytes: u64) -> io::Result<OwnedFd> {
    // Beyond the limit, `ftruncate` would send SIGXFSZ, which by default ends the process.
    if getrlimit(Resource::Fsize).current.is_some_and(|max_bytes| len_bytes > max_bytes) {
        return Err(rustix::io::Errno::FBIG.into());
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // The sysctl vm.memfd_noexec may forbid files that could be executed. Linux before 6.3 does not know the
    // flag.
    let file = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|error| match error {
        rustix::io::Errno::INVAL => memfd_create(name, flags),
        error => Err(error),
    })?;
    ftruncate(&file, len_bytes)?;
    fcntl_add_seals(&file, SIZE_SEALS | SealFlags::SEAL)?;
    Ok(file)
}

/// Whether [`create_sealed`] has failed because a limit (RLIMIT_FSIZE) or a policy (seccomp) forbids the
/// file. The next try would fail, too.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let forbidding = [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::FBIG];
    rustix::io::Errno::from_io_error(error).is_some_and(|errno| forbidding.contains(&errno))
}
