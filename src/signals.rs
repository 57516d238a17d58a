//! Signals of the application, and the threads and waits of a library.

mod waiting;

use std::mem::MaybeUninit;
use std::ptr;

pub use self::waiting::{Interrupted, wait_readable};

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
