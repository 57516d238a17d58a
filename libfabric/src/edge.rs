//! The edge between C and Rust: converts results for C, and stops panics.
//!
//! A panic must not reach C code: since Rust 1.81, a panic that leaves an `extern "C"` function
//! aborts the process. So every entry point that runs code of homespun runs it through
//! [`run_entry_point`].
//!
//! A panic is a bug in homespun. It may leave a half-changed object that refers to the
//! application's buffers. So the first panic closes the plugin: the call that panicked and every
//! later call fail with `-FI_EOTHER` (or null). Later calls do not access homespun's state.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use homespun::{Errno, Error, Misuse};

use crate::c_misuse::CMisuse;
use crate::unsupported::Status;

/// The error of a call, as C gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Errno);

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure(errno)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let errno = error.errno();
        match error {
            // The user can mend this, and the application gets only the number.
            Error::Bind { exhausted: Some(_), .. } => tracing::warn!(%error, "call failed"),
            _ if errno != Errno::EAGAIN => tracing::debug!(%error, "call failed"),
            _ => {}
        }
        Failure(errno)
    }
}

impl From<Misuse> for Failure {
    fn from(misuse: Misuse) -> Self {
        Error::from(misuse).into()
    }
}

impl From<CMisuse> for Failure {
    fn from(misuse: CMisuse) -> Self {
        tracing::debug!(error = %misuse, "call failed");
        Failure(misuse.errno())
    }
}

impl<T> Status for *const T {
    fn failure(_: Errno) -> Self {
        std::ptr::null()
    }
}

impl<T> Status for *mut T {
    fn failure(_: Errno) -> Self {
        std::ptr::null_mut()
    }
}

impl Status for () {
    fn failure(_: Errno) -> Self {}
}

/// Runs calls until one of them panics. Refuses all later calls.
struct Edge {
    broken: AtomicBool,
}

impl Edge {
    const fn new() -> Self {
        Edge { broken: AtomicBool::new(false) }
    }

    #[inline]
    fn run_entry_point<R: Status>(&self, call: impl FnOnce() -> Result<R, Failure>) -> R {
        // Relaxed: the flag guards no data. While the first panic unwinds, another thread may still
        // read `false` and enter. That is safe: the state is memory-safe, and unwinding releases
        // the locks.
        if self.broken.load(Ordering::Relaxed) {
            return R::failure(Errno::EOTHER);
        }
        // AssertUnwindSafe: the closure may leave inconsistent state, but no call reads the state
        // once the flag is set. For a call that races with the panic, see above.
        match panic::catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(answer)) => answer,
            Ok(Err(Failure(errno))) => R::failure(errno),
            Err(payload) => {
                self.broken.store(true, Ordering::Relaxed);
                log_panic();
                // A payload may itself panic when it is dropped.
                std::mem::forget(payload);
                R::failure(Errno::EOTHER)
            }
        }
    }
}

/// Logs the panic to the host. The default panic hook has already printed its message and location.
#[cold]
fn log_panic() {
    // The subscriber itself may have panicked.
    let _ = panic::catch_unwind(|| {
        tracing::error!("internal error: homespun panicked, all further calls fail");
    });
}

static EDGE: Edge = Edge::new();

/// Runs the body of an entry point and turns its result into C's return value.
#[inline]
pub(crate) fn run_entry_point<R: Status>(call: impl FnOnce() -> Result<R, Failure>) -> R {
    EDGE.run_entry_point(call)
}

#[cfg(test)]
mod tests {
    use libc::{c_char, c_int};

    use super::*;

    #[test]
    fn results_convert_to_c_return_values() {
        let edge = Edge::new();
        assert_eq!(edge.run_entry_point(|| Ok(7)), 7);
        assert_eq!(edge.run_entry_point::<isize>(|| Err(Failure(Errno::EAGAIN))), -11);
        assert_eq!(edge.run_entry_point::<c_int>(|| Err(CMisuse::DeferredWork.into())), -38);
    }

    #[test]
    fn panic_becomes_an_error_and_closes_the_edge() {
        let edge = Edge::new();
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let first: c_int = edge.run_entry_point(|| panic!("a bug"));
        panic::set_hook(hook);
        assert_eq!(first, -Errno::EOTHER.raw());

        let mut ran = false;
        let second: isize = edge.run_entry_point(|| {
            ran = true;
            Ok(0)
        });
        assert_eq!(second, -256);
        assert!(!ran);
        assert!(edge.run_entry_point::<*const c_char>(|| Ok(c"text".as_ptr())).is_null());
    }
}
