//! What the kernel says of the processor that a thread runs on.

use std::mem;

/// Returns how often the calling thread has lost its processor although it could go on: the kernel gave it to
/// another thread, or this thread yielded (`ru_nivcsw` in `getrusage(2)`).
pub fn forced_switches() -> u64 {
    // SAFETY: the structure consists of integers, for which all bits may be 0.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes a `rusage` to exclusively borrowed memory of that type.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    debug_assert_eq!(result, 0, "the arguments are valid");
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}
