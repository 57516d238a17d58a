//! Cookies. By a cookie, a process that reads a peer's memory verifies that the memory is still exposed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A random number in the memory of this process, valid while memory is exposed on a link.
///
/// A peer that copies exposed memory then also copies the cookie. If the peer does not find the cookie, it
/// discards the copy: the memory is no longer exposed, or another process has reused the id of this process.
#[derive(Debug)]
pub(crate) struct Cookie {
    cell: Box<AtomicU64>,
    value: u64,
}

/// The address and the value of a process's cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CookieLocation {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

impl Cookie {
    pub(crate) fn generate() -> io::Result<Cookie> {
        let no_random = |error: getrandom::Error| {
            error.raw_os_error().map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error)
        };
        let value = getrandom::u64().map_err(no_random)?;
        Ok(Cookie { cell: Box::new(AtomicU64::new(value)), value })
    }

    pub(crate) fn location(&self) -> CookieLocation {
        CookieLocation { address: self.cell.as_ptr() as u64, value: self.value }
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        // Invalidate the cookie before the application gets the exposed memory back.
        self.cell.store(!self.value, Ordering::SeqCst);
    }
}
