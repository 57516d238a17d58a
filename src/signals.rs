//! Threads that the application's signals do not interrupt.

use std::mem::MaybeUninit;
use std::ptr;

/// Calls a function with all signals blocked. A thread that begins meanwhile never runs the
/// application's handlers, which may count on the thread that they interrupt.
pub(crate) fn without_signals<R>(act: impl FnOnce() -> R) -> R {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are memory of this function, and the first is filled in by the first call.
    let is_blocked = unsafe {
        let mut all = MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let done = act();
    if is_blocked {
        // SAFETY: the call that has succeeded has written it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    done
}
