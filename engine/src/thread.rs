//! What the kernel knows of a thread.

use std::mem::{self, MaybeUninit};
use std::ptr;

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

/// Calls a function with all signals blocked. A thread that the function starts inherits this, so it never
/// runs the application's signal handlers, and signals that the application awaits by `sigwait(3)` or
/// `signalfd(2)` do not go to it.
pub fn with_signals_blocked<R>(act: impl FnOnce() -> R) -> R {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are local variables, and `sigfillset` initialises the one that is read.
    let is_blocked = unsafe {
        let mut all = MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let done = act();
    if is_blocked {
        // SAFETY: the successful call has written `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    done
}
