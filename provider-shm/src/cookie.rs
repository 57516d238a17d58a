//! Cookies: how a process that reads another one's memory knows that it reads what it was told to.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number in this process's memory that stands there as long as what is exposed on a link stays in place.
///
/// Whoever copies exposed memory copies the cookie after it. If it is not there any more, or not there at all since another
/// process has the number that this one had, what was copied is not to be believed.
#[derive(Debug)]
pub(crate) struct Cookie {
    cell: Box<AtomicU64>,
    value: u64,
}

/// Where a process has a cookie, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CookieLocation {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

impl Cookie {
    pub(crate) fn generate() -> io::Result<Cookie> {
        let no_number = |error: getrandom::Error| {
            error.raw_os_error().map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error)
        };
        let value = getrandom::u64().map_err(no_number)?;
        Ok(Cookie { cell: Box::new(AtomicU64::new(value)), value })
    }

    pub(crate) fn at(&self) -> CookieLocation {
        CookieLocation { address: self.cell.as_ptr() as u64, value: self.value }
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        // Before the owner of exposed memory gets it back and writes to it.
        self.cell.store(!self.value, Ordering::SeqCst);
    }
}
