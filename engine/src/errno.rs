//! Fabric error numbers, as `fi_errno(3)` names them.

use std::{fmt, io};

use crate::error::Error;

/// A positive fabric error number.
///
/// Errors of the operating system keep their numbers. Errors that only libfabric has start at 256.
/// A number need not have a name here, since a peer or a kernel may report any number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(i32);

/// Smaller numbers are the system's.
const FIRST_FABRIC_ERRNO: i32 = 256;

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// Returns the constant's name (`"EAGAIN"`), if this number has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Returns the text of `fi_strerror(3)` for this number.
            pub const fn description(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "Unknown error",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    ENODEV = 19, "No such device";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    EPIPE = 32, "Broken pipe";
    EDEADLK = 35, "Resource deadlock avoided";
    ENOSYS = 38, "Function not implemented";
    ENOMSG = 42, "No message of desired type";
    ENODATA = 61, "No data available";
    EPROTO = 71, "Protocol error";
    EOVERFLOW = 75, "Value too large for defined data type";
    EMSGSIZE = 90, "Message too long";
    ENOPROTOOPT = 92, "Protocol not available";
    EOPNOTSUPP = 95, "Operation not supported";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETDOWN = 100, "Network is down";
    ENETUNREACH = 101, "Network is unreachable";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTDOWN = 112, "Host is down";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ECANCELED = 125, "Operation canceled";
    EKEYREJECTED = 129, "Key was rejected by service";
    EOTHER = 256, "Unspecified error";
    ETOOSMALL = 257, "Provided buffer is too small";
    EOPBADSTATE = 258, "Operation not permitted in current state";
    EAVAIL = 259, "Error available";
    EBADFLAGS = 260, "Flags not supported";
    ENOEQ = 261, "Missing or unavailable event queue";
    EDOMAIN = 262, "Invalid resource domain";
    ENOCQ = 263, "Missing or unavailable completion queue";
    ECRC = 264, "CRC error";
    ETRUNC = 265, "Truncation error";
    ENOKEY = 266, "Required key not available";
    ENOAV = 267, "Missing or unavailable address vector";
    EOVERRUN = 268, "Queue has been overrun";
    ENORX = 269, "Receiver not ready, no receive buffers available";
}

impl Errno {
    /// Wraps a raw positive error number.
    pub const fn new(raw: i32) -> Self {
        Errno(raw)
    }

    /// Returns the positive error number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl From<io::Error> for Errno {
    /// Returns the system's error number. If the standard library made the error itself, returns
    /// the nearest number, or `EIO` if no number is near.
    fn from(error: io::Error) -> Errno {
        if let Some(raw) = error.raw_os_error() {
            return Errno(raw);
        }
        if let Some(source) = error.get_ref() {
            if let Some(errno) = source.downcast_ref::<Errno>() {
                return *errno;
            }
            if let Some(error) = source.downcast_ref::<Error>() {
                return error.errno();
            }
        }
        match error.kind() {
            io::ErrorKind::InvalidInput => Errno::EINVAL,
            io::ErrorKind::NotFound => Errno::ENOENT,
            io::ErrorKind::OutOfMemory => Errno::ENOMEM,
            io::ErrorKind::PermissionDenied => Errno::EACCES,
            io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
            io::ErrorKind::Unsupported => Errno::ENOSYS,
            io::ErrorKind::WouldBlock => Errno::EAGAIN,
            _ => Errno::EIO,
        }
    }
}

/// An error of the operating system becomes the same error. An error that only libfabric has
/// becomes the source of an error of kind `Other`.
impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        if errno.0 < FIRST_FABRIC_ERRNO {
            io::Error::from_raw_os_error(errno.0)
        } else {
            io::Error::other(errno)
        }
    }
}

impl std::error::Error for Errno {}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{InUse, Misuse, SystemRequest};

    #[test]
    fn errno_of_io_error_is_the_system_error_number() {
        assert_eq!(Errno::from(io::Error::from_raw_os_error(98)), Errno::EADDRINUSE);
        assert_eq!(Errno::from(io::Error::from(io::ErrorKind::TimedOut)), Errno::ETIMEDOUT);
        assert_eq!(Errno::from(io::Error::other("of an application")), Errno::EIO);
    }

    #[test]
    fn errno_survives_conversion_to_io_error_and_back() {
        for errno in [Errno::EADDRINUSE, Errno::EIO, Errno::EOPBADSTATE, Errno::new(999)] {
            assert_eq!(Errno::from(io::Error::from(errno)), errno);
        }
        let busy = Error::from(Misuse::Busy(InUse::CounterBound));
        let refused = SystemRequest::Socket.refused(Errno::ECONNREFUSED);
        for error in [busy, refused, Misuse::NoAddressVector.into()] {
            assert_eq!(Errno::from(io::Error::from(error.clone())), error.errno());
        }
        assert_eq!(io::Error::from(Errno::EADDRINUSE).kind(), io::ErrorKind::AddrInUse);
        assert_eq!(io::Error::from(Errno::ENOCQ).to_string(), Errno::ENOCQ.description());
    }

    #[test]
    fn names_and_descriptions_agree_with_the_number() {
        assert_eq!(Errno::new(11), Errno::EAGAIN);
        assert_eq!(format!("{:?} {}", Errno::ETRUNC, Errno::ETRUNC), "ETRUNC Truncation error");
        assert_eq!(format!("{:?} {}", Errno::new(999), Errno::new(999)), "Errno(999) Unknown error");
    }
}
