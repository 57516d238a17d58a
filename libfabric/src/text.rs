//! Texts for C code.

use std::ffi::CString;
use std::ptr;
use std::sync::LazyLock;

use homespun::cq::strerror;
use libc::{c_char, c_int};

/// A number above every error number of libfabric and homespun. It and every higher number are
/// described as unknown.
const ERRNO_END: c_int = 512;

static DESCRIPTIONS: LazyLock<Vec<CString>> = LazyLock::new(|| {
    (0..=ERRNO_END).map(|number| CString::new(strerror(number)).unwrap_or_default()).collect()
});

/// Describes an error number, as `fi_cq_strerror` does. Returns a static text, and copies as much
/// of it as fits into `buf`.
///
/// # Safety
///
/// `buf` is null or writable for `len_bytes`.
pub(crate) unsafe fn describe_errno(errno: c_int, buf: *mut c_char, len_bytes: usize) -> *const c_char {
    let known = if (0..ERRNO_END).contains(&errno) { errno } else { ERRNO_END };
    let Some(text) = DESCRIPTIONS.get(known.cast_unsigned() as usize) else { return ptr::null() };
    // SAFETY: the caller promises it.
    unsafe { copy_terminated(text.as_bytes(), buf, len_bytes) };
    text.as_ptr()
}

/// Copies as much of a text as fits, and then a zero byte. Copies nothing if the buffer has no
/// room.
///
/// # Safety
///
/// `buf` is null or writable for `len_bytes`.
pub(crate) unsafe fn copy_terminated(text: &[u8], buf: *mut c_char, len_bytes: usize) {
    if buf.is_null() || len_bytes == 0 {
        return;
    }
    let count_bytes = text.len().min(len_bytes - 1);
    // SAFETY: the text has at least `count_bytes`, and the buffer one more.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), count_bytes);
        buf.add(count_bytes).write(0);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use homespun::Errno;

    use super::*;

    fn describe_to_str(errno: c_int) -> &'static str {
        // SAFETY: null is allowed, and the text is static.
        unsafe { CStr::from_ptr(describe_errno(errno, ptr::null_mut(), 0)) }.to_str().unwrap()
    }

    #[test]
    fn every_error_number_has_a_text() {
        assert_eq!(describe_to_str(Errno::ETRUNC.raw()), Errno::ETRUNC.description());
        for unknown in [-1, 0, 511, 512, c_int::MAX, c_int::MIN] {
            assert_eq!(describe_to_str(unknown), Errno::new(9999).description(), "{unknown}");
        }
    }

    #[test]
    fn text_is_truncated_to_short_buffer() {
        let mut buf = [0x7f; 6];
        // SAFETY: the buffer is longer than 5.
        unsafe { describe_errno(Errno::ECANCELED.raw(), buf.as_mut_ptr(), 5) };
        assert_eq!(buf.map(|c: c_char| c as u8), *b"Oper\0\x7f");
    }
}
