//! The edge between C and Rust: converts results to the error numbers of librpma, and stops panics.
//!
//! A panic is a bug in homespun, and may leave a half-changed object. So the first panic closes the library:
//! the call that panicked and every later one fail with `RPMA_E_UNKNOWN`.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use homespun_rpma::{ConnectionEvent, Error, ErrorCode, Invalid};
use libc::c_int;

use crate::log;

/// Why a call fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("invalid argument: {0}")]
    Argument(#[from] BadArgument),
    /// A context was asked for an address that does not exist, or is not of this host.
    #[error("{name}: {reason}")]
    Address {
        name: String,
        #[source]
        reason: std::io::Error,
    },
    /// The system has refused a descriptor or a thread.
    #[error("the system refused: {0}")]
    System(std::io::Error),
    #[error("{0}, an event that this version of librpma has no number for")]
    EventOfLaterVersion(ConnectionEvent),
    #[error(transparent)]
    Facade(#[from] Error),
}

/// The argument that C code should not have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadArgument {
    #[error("a null pointer")]
    Null,
    #[error("the operation has no flags")]
    NoFlags,
    #[error("an offset or a length without a memory region")]
    NoRegion,
    #[error("an offset of an atomic write that is not a multiple of 8")]
    Misaligned,
    #[error("an unknown value of an enumeration")]
    UnknownValue,
    #[error("a usage with unknown bits")]
    UnknownUsage,
    #[error("a negative time")]
    NegativeTime,
    #[error("a text that is not UTF-8")]
    NotUtf8,
    #[error("room for no completions")]
    NoRoom,
    #[error("private data of no bytes")]
    EmptyPrivateData,
    #[error("an ibv_context of another library")]
    ForeignContext,
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Failure {
        Error::from(invalid).into()
    }
}

impl Failure {
    fn code(&self) -> ErrorCode {
        match self {
            Failure::Argument(_) => ErrorCode::Invalid,
            Failure::Address { .. } | Failure::System(_) => ErrorCode::Provider,
            Failure::EventOfLaterVersion(_) => ErrorCode::Unknown,
            Failure::Facade(error) => error.code(),
        }
    }
}

/// Whether a panic has closed the library.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// Runs the body of a function that returns an error number.
#[inline]
pub(crate) fn run(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    run_unless_broken(&IS_BROKEN, body)
}

#[inline]
fn run_unless_broken(is_broken: &AtomicBool, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // Relaxed: the flag guards no data. A call that races with the first panic finds memory-safe objects.
    if is_broken.load(Ordering::Relaxed) {
        return ErrorCode::Unknown.number();
    }
    // AssertUnwindSafe: no later call reads what the panic has left.
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => {
            let code = failure.code();
            // Programs ask again and again whether there is something, so this is worth no message.
            if !matches!(code, ErrorCode::NoCompletion | ErrorCode::NoEvent) {
                log_failure(&failure);
            }
            code.number()
        }
        Err(payload) => {
            is_broken.store(true, Ordering::Relaxed);
            // The log function may be what has panicked.
            let _ = panic::catch_unwind(|| tracing::error!("internal error: all further calls fail"));
            // A payload may itself panic when it is dropped.
            std::mem::forget(payload);
            ErrorCode::Unknown.number()
        }
    }
}

#[cold]
fn log_failure(failure: &Failure) {
    let _ = panic::catch_unwind(AssertUnwindSafe(|| {
        log::install();
        tracing::error!("{failure}");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_the_numbers_of_librpma() {
        let is_broken = AtomicBool::new(false);
        assert_eq!(run_unless_broken(&is_broken, || Ok(())), 0);
        assert_eq!(run_unless_broken(&is_broken, || Err(BadArgument::Null.into())), -100_004);
        assert_eq!(run_unless_broken(&is_broken, || Err(Error::NoEvent.into())), -100_006);
    }

    #[test]
    fn panic_closes_the_library() {
        let is_broken = AtomicBool::new(false);
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let first = run_unless_broken(&is_broken, || panic!("a bug"));
        panic::set_hook(hook);
        assert_eq!(first, -100_000);
        assert_eq!(run_unless_broken(&is_broken, || unreachable!("the library is closed")), -100_000);
    }
}
