//! The error of a call that refuses an operation, with the caller's buffer.

use std::{error, fmt};

use crate::errno::Errno;
use crate::error::Error;

/// The error of a refused call, with the value that the caller had handed over. The call has
/// changed nothing.
///
/// `?` converts this error into the [`Error`]. A caller may instead take the value back and try
/// again:
///
/// ```
/// # use homespun_engine::error::{Again, Error};
/// # use homespun_engine::rejected::Rejected;
/// # fn send(message: Vec<u8>) -> Result<(), Rejected<Vec<u8>>> {
/// #     Err(Rejected { error: Again::QueueFull.into(), returned: message })
/// # }
/// /// Posts a message, or hands it back if that has to wait.
/// fn try_send(message: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
///     match send(message) {
///         Ok(()) => Ok(None),
///         Err(Rejected { error: Error::Again(_), returned: buffer }) => Ok(Some(buffer)),
///         Err(rejected) => Err(rejected.into()),
///     }
/// }
/// # assert_eq!(try_send(vec![7]), Ok(Some(vec![7])));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Rejected<B> {
    /// The reason.
    pub error: Error,
    /// The value that the caller handed over: buffers, a request, or an object that cannot be
    /// closed yet.
    pub returned: B,
}

impl<B> Rejected<B> {
    /// Returns the positive error number that a C caller gets.
    pub fn errno(&self) -> Errno {
        self.error.errno()
    }

    /// Keeps the error, and applies `change` to the returned value.
    #[must_use]
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Rejected<C> {
        Rejected { error: self.error, returned: change(self.returned) }
    }
}

impl<B> From<Rejected<B>> for Error {
    fn from(rejected: Rejected<B>) -> Error {
        rejected.error
    }
}

impl<B> fmt::Display for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

/// Leaves out `returned`, which may be long. A `main` that returns an error prints this form.
impl<B> fmt::Debug for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B> error::Error for Rejected<B> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Misuse;

    #[test]
    fn rejected_converts_to_its_error() {
        let error = Error::from(Misuse::NoAddressVector);
        let rejected = Rejected { error: error.clone(), returned: [1, 2] };
        assert_eq!((rejected.to_string(), rejected.errno()), (error.to_string(), Errno::ENOAV));
        assert_eq!(rejected.clone().map(|[first, _]| first).returned, 1);
        let of_any_kind: Box<dyn error::Error> = Box::new(rejected.clone());
        assert_eq!(of_any_kind.to_string(), error.to_string());
        assert_eq!(Error::from(rejected), error);
    }
}
