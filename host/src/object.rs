//! Objects of any class: structures that begin with a `struct fid`.

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use homespun::Errno;
use homespun_fi::abi::FI_ENABLE;
use homespun_fi::abi::fid::Fid;
use libc::{c_int, c_void};

use crate::library::check_result;

/// An open object, such as `struct fid_ep`. Clones share the object.
///
/// An object keeps its parent and everything bound to it open. It is closed when its last clone is dropped.
pub struct Object<T>(Arc<Open<T>>);

struct Open<T> {
    object: *mut T,
    /// Handles of the objects that this object needs. They are dropped after this object is closed.
    needs: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

// SAFETY: an object of libfabric belongs to no thread. The safe methods open, bind, enable and close objects.
// Every threading model but FI_THREAD_DOMAIN allows these calls at any time from any thread, and this crate
// never requests FI_THREAD_DOMAIN. Other calls go through the raw pointer, in unsafe code that has to respect
// the threading model.
unsafe impl<T> Send for Open<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Open<T> {}

impl<T: 'static> Object<T> {
    /// Opens an object. `call` writes the object to its argument, and returns 0 or a negative error number.
    ///
    /// # Safety
    ///
    /// If `call` returns 0, it has written an open object that begins with a `struct fid`.
    pub unsafe fn open<const N: usize>(
        needs: [Arc<dyn Any + Send + Sync>; N],
        call: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Object<T>, Errno> {
        let mut object = ptr::null_mut();
        check_result(call(&raw mut object))?;
        Ok(Object(Arc::new(Open { object, needs: Mutex::new(needs.into()) })))
    }

    /// A pointer to the object, for calls through its vtables.
    pub fn as_ptr(&self) -> *mut T {
        self.0.object
    }

    /// A pointer to the object as a `struct fid`, with which all classes begin.
    pub fn as_fid(&self) -> *mut Fid {
        self.0.object.cast()
    }

    /// Opens an object in this one, as [`open`](Object::open) does. `call` also gets a pointer to this one.
    ///
    /// # Safety
    ///
    /// As for [`open`](Object::open).
    pub(crate) unsafe fn open_child<C: 'static>(
        &self,
        call: impl FnOnce(*mut T, *mut *mut C) -> c_int,
    ) -> Result<Object<C>, Errno> {
        // SAFETY: the caller promises it.
        unsafe { Object::open([self.0.clone()], |child| call(self.as_ptr(), child)) }
    }

    /// `fi_ep_bind(3)` and similar calls. The bound object stays open as long as this object.
    pub fn bind<O: 'static>(&self, other: &Object<O>, flags: u64) -> Result<(), Errno> {
        // SAFETY: both objects are open.
        check_result(unsafe { ((*(*self.as_fid()).ops).bind)(self.as_fid(), other.as_fid(), flags) })?;
        self.0.needs.lock().unwrap_or_else(PoisonError::into_inner).push(other.0.clone());
        Ok(())
    }

    /// `fi_enable(3)`.
    pub fn enable(&self) -> Result<(), Errno> {
        // SAFETY: the object is open, and this command has no argument.
        check_result(unsafe { ((*(*self.as_fid()).ops).control)(self.as_fid(), FI_ENABLE, ptr::null_mut()) })
    }

    /// `fi_control(3)`. Returns its result.
    ///
    /// # Safety
    ///
    /// The argument is of the type that the command requires for this class of object.
    pub unsafe fn control(&self, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: the object is open; the caller promises the rest.
        unsafe { ((*(*self.as_fid()).ops).control)(self.as_fid(), command, arg) }
    }

    /// `fi_close(3)`. Fails with `EBUSY` while there are other clones, or objects that need this object. On
    /// failure returns the object, which is still open.
    pub fn close(self) -> Result<(), (Object<T>, Errno)> {
        let mut open = Arc::try_unwrap(self.0).map_err(|shared| (Object(shared), Errno::EBUSY))?;
        // SAFETY: the object is open.
        match check_result(unsafe { close_fid(open.object.cast()) }) {
            Ok(()) => {
                open.object = ptr::null_mut();
                Ok(())
            }
            Err(error) => Err((Object(Arc::new(open)), error)),
        }
    }
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Object<T> {
        Object(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.0.object).finish()
    }
}

impl<T> Drop for Open<T> {
    fn drop(&mut self) {
        if !self.object.is_null() {
            // SAFETY: the object is open, and its last owner is gone. If the provider refuses to close it,
            // the object leaks.
            unsafe { close_fid(self.object.cast()) };
        }
    }
}

/// # Safety
///
/// The object is open. If this returns 0, the caller no longer uses the object.
unsafe fn close_fid(fid: *mut Fid) -> c_int {
    // SAFETY: the caller promises that the object is open.
    unsafe { ((*(*fid).ops).close)(fid) }
}
