//! The objects of C: each is a box, and its address is what C code has.
//!
//! Every object may be used from any thread, so Rust code forms only shared references to it.

use std::ffi::CStr;
use std::ptr;

use libc::c_char;

use crate::edge::{BadArgument, Failure};

/// Returns the object that C code passes.
///
/// # Errors
///
/// [`BadArgument::Null`].
///
/// # Safety
///
/// `object` is null, or was stored by [`OutParam::store`] as an object of this type, or is part of such an
/// object. It is not deleted before the last use of the reference.
#[inline]
pub(crate) unsafe fn object<'a, T: Send + Sync>(object: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller promises that it is null or a valid object.
    unsafe { object.as_ref() }.ok_or(BadArgument::Null.into())
}

/// As [`object`], for an argument that may be null.
///
/// # Safety
///
/// As [`object`].
#[inline]
pub(crate) unsafe fn optional<'a, T: Send + Sync>(object: *const T) -> Option<&'a T> {
    // SAFETY: the caller promises that it is null or a valid object.
    unsafe { object.as_ref() }
}

/// Where C code wants a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutParam<T>(*mut T);

impl<T: Copy> OutParam<T> {
    /// Returns the place that C code passes.
    ///
    /// # Errors
    ///
    /// [`BadArgument::Null`].
    ///
    /// # Safety
    ///
    /// `place` is null, or aligned and writable for one `T` until the last call of [`write`](Self::write).
    #[inline]
    pub(crate) unsafe fn new(place: *mut T) -> Result<OutParam<T>, Failure> {
        if place.is_null() { Err(BadArgument::Null.into()) } else { Ok(OutParam(place)) }
    }

    #[inline]
    pub(crate) fn write(self, value: T) {
        // SAFETY: the caller of `new` has promised that the place is writable.
        unsafe { self.0.write(value) };
    }
}

impl<T: Send + Sync> OutParam<*mut T> {
    /// Makes an object, which C code owns until [`delete`].
    pub(crate) fn store(self, object: T) {
        self.write(Box::into_raw(Box::new(object)));
    }
}

/// Takes an object back from C code, and sets the place of its address to null. `None` if it is null already.
///
/// # Errors
///
/// [`BadArgument::Null`] without a place.
///
/// # Safety
///
/// `place` is null or readable and writable. It has null or an object of this type that was stored by
/// [`OutParam::store`], which no code uses any more.
pub(crate) unsafe fn take<T: Send + Sync>(place: *mut *mut T) -> Result<Option<Box<T>>, Failure> {
    if place.is_null() {
        return Err(BadArgument::Null.into());
    }
    // SAFETY: the place is readable and writable, as the caller promises.
    let object = unsafe { ptr::replace(place, ptr::null_mut()) };
    // SAFETY: an address in the place comes from `Box::into_raw`, and the caller gives the object up.
    Ok((!object.is_null()).then(|| unsafe { Box::from_raw(object) }))
}

/// Deletes an object, and sets the place of its address to null. Does nothing if it is null already.
///
/// # Errors
///
/// As [`take`].
///
/// # Safety
///
/// As [`take`].
pub(crate) unsafe fn delete<T: Send + Sync>(place: *mut *mut T) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    drop(unsafe { take(place) }?);
    Ok(())
}

/// Returns a text that C code passes.
///
/// # Errors
///
/// [`BadArgument::Null`], [`BadArgument::NotUtf8`].
///
/// # Safety
///
/// `text` is null or a C string, which does not change before the last use of the result.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(BadArgument::Null.into());
    }
    // SAFETY: the caller promises a C string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| BadArgument::NotUtf8.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_object_leaves_null() {
        let mut object: *mut String = ptr::null_mut();
        // SAFETY: the place is valid, and has what `store` has put there.
        unsafe {
            OutParam::new(&raw mut object).unwrap().store("text".to_owned());
            assert_eq!(super::object(object).unwrap(), "text");
            delete(&raw mut object).unwrap();
            assert!(object.is_null());
            delete(&raw mut object).unwrap();
            assert!(super::object(object).is_err());
            assert!(delete(ptr::null_mut::<*mut String>()).is_err());
        }
    }
}
