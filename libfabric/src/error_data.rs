//! `err_data` of error entries.

use std::ptr;

use homespun::mutated;
use libc::c_void;
use parking_lot::Mutex;

/// Passes error data to the application, in one of two ways (`fi_cq(3)` and `fi_eq(3)`,
/// "err_data").
///
/// Since libfabric 1.5 an application may pass a buffer and its size. If it passes none, it gets a
/// pointer to the plugin's own buffer, which is valid until the application reads the next error.
#[derive(Debug, Default)]
pub(crate) struct ErrorData(Mutex<Box<[u8]>>);

impl ErrorData {
    /// Passes `data` to the application. If the application has passed a buffer, copies as much as
    /// fits. Otherwise writes to `err_data` a pointer to the plugin's buffer, or null without data.
    ///
    /// Writes the number of bytes to `err_data_size`. `err_data_size` is `None` if the entry has no
    /// such field in the application's version.
    ///
    /// # Safety
    ///
    /// `err_data` and `err_data_size` are valid. If the application has passed a buffer, the buffer
    /// has the size that `err_data_size` states.
    pub(crate) unsafe fn deliver(
        &self,
        data: Box<[u8]>,
        err_data: *mut *mut c_void,
        err_data_size: Option<*mut usize>,
    ) {
        // SAFETY: the caller promises it.
        let room_bytes = err_data_size.map_or(0, |size_bytes| unsafe { size_bytes.read() });
        // SAFETY: as above.
        let has_buffer =
            room_bytes > 0 && unsafe { !err_data.read().is_null() } && !mutated!("fi_cq/err-data-field");
        let given_bytes = if has_buffer {
            let count_bytes = data.len().min(room_bytes);
            // SAFETY: the caller promises that the application's buffer has this size.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), err_data.read().cast(), count_bytes) };
            count_bytes
        } else {
            let len_bytes = data.len();
            let mut kept = self.0.lock();
            *kept = data;
            if mutated!("fi_cq/err-data-lifetime") {
                kept.fill(0);
            }
            let is_given = len_bytes > 0 && !mutated!("fi_cq/err-data-of-provider");
            let start: *mut u8 = if is_given { kept.as_mut_ptr() } else { ptr::null_mut() };
            // SAFETY: the caller promises it.
            unsafe { err_data.write(start.cast()) };
            len_bytes
        };
        if let Some(size_bytes) = err_data_size
            && !mutated!("fi_cq/err-data-size-field")
        {
            // SAFETY: the caller promises it.
            unsafe { size_bytes.write(given_bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_data_is_truncated_to_application_buffer() {
        let mut buffer = [0u8; 4];
        let mut err_data: *mut c_void = buffer.as_mut_ptr().cast();
        let mut size_bytes = 3;
        // SAFETY: the buffer is longer than `size_bytes`.
        unsafe {
            ErrorData::default().deliver(b"abcd"[..].into(), &raw mut err_data, Some(&raw mut size_bytes));
        }
        assert_eq!((&buffer, size_bytes), (b"abc\0", 3));
    }

    #[test]
    fn size_without_buffer_is_ignored() {
        let (kept, mut err_data, mut size_bytes) = (ErrorData::default(), ptr::null_mut(), 28);
        // SAFETY: no buffer is passed; the plugin's buffer is read while it is valid.
        unsafe {
            kept.deliver(b"abcd"[..].into(), &raw mut err_data, Some(&raw mut size_bytes));
            assert_eq!((err_data.cast::<[u8; 4]>().read(), size_bytes), (*b"abcd", 4));
        }
    }

    /// Shows fi_cq/err-data-of-provider, fi_cq-1.4/err-data-may-be-reused.
    #[test]
    fn error_data_without_application_buffer_points_to_ours() {
        let kept = ErrorData::default();
        let mut err_data = ptr::null_mut();
        let mut size_bytes = 0;
        // SAFETY: no buffer is passed; the plugin's buffer is read while it is valid.
        unsafe {
            kept.deliver(b"abcd"[..].into(), &raw mut err_data, Some(&raw mut size_bytes));
            assert_eq!(size_bytes, 4);
            assert_eq!(err_data.cast::<[u8; 4]>().read(), *b"abcd");
            kept.deliver(b"xy"[..].into(), &raw mut err_data, None);
            assert_eq!(err_data.cast::<[u8; 2]>().read(), *b"xy");
            kept.deliver(Box::default(), &raw mut err_data, None);
        }
        assert!(err_data.is_null());
    }
}
