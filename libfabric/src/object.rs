//! The objects of C. Each is one allocation: a `struct fid_*`, followed by the plugin's state.
//!
//! C code may write to the `struct fid_*`: libfabric sets `api_version`, and layers replace `ops`.
//! So Rust code forms references only to the state behind it.

use std::mem::{ManuallyDrop, needs_drop};
use std::sync::Arc;

use homespun::Errno;
use libc::c_void;

use crate::abi::fid::{FiOps, Fid};
use crate::c_misuse::CMisuse;
use crate::edge::Failure;

/// The state behind one kind of C object. C code may use the object from any thread.
///
/// # Safety
///
/// [`Front`](Self::Front) begins with a [`Fid`], and no other implementation has the same `CLASS`.
pub(crate) unsafe trait State: Sized + Send + Sync {
    /// The structure that C code uses.
    type Front;

    /// The `FI_CLASS_*` of the object.
    const CLASS: usize;
}

#[repr(C)]
struct Object<S: State> {
    front: S::Front,
    state: S,
}

/// Returns the `struct fid` of a new object.
pub(crate) fn new_fid<S: State>(context: *mut c_void, ops: &'static FiOps) -> Fid {
    Fid { fclass: S::CLASS, context, ops }
}

/// Allocates an object for C code, which owns it until [`close`].
pub(crate) fn open<S: State>(front: S::Front, state: S) -> *mut S::Front {
    const { assert!(!needs_drop::<S::Front>()) };
    Box::into_raw(Box::new(Object { front, state })).cast()
}

/// Returns the state behind a pointer that C code passes.
///
/// # Errors
///
/// EINVAL for a null pointer and for an object of another class.
///
/// # Safety
///
/// `object` is null, or an open object whose class matches its type. If its class is `S::CLASS`,
/// this plugin made it. The object stays open until the returned reference is dropped.
#[inline]
pub(crate) unsafe fn state<'a, S: State>(object: *const c_void) -> Result<&'a S, Failure> {
    let object: *const Object<S> = object.cast();
    if object.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: the caller passes an open object, and every object begins with a `Fid`.
    if unsafe { (*object.cast::<Fid>()).fclass } != S::CLASS {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: all objects of this class come from `open`, and the caller keeps this object open.
    // Until `close`, code gets references to the state only here, and only shared ones.
    Ok(unsafe { &(*object).state })
}

/// Closes an object: drops its state, then frees its memory. While the state is being dropped, a
/// queue may still refer to the object, and another thread may still read the fields that C code
/// wrote.
///
/// # Errors
///
/// As [`state`]. EBUSY if `in_use` returns true. After an error the object is still open.
///
/// # Safety
///
/// As [`state`]. Unless this function returns an error, no code uses the object again.
pub(crate) unsafe fn close<S: State>(
    object: *mut c_void,
    in_use: impl FnOnce(&S) -> bool,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    if in_use(unsafe { state::<S>(object) }?) {
        return Err(CMisuse::InUse.into());
    }
    let object: *mut Object<S> = object.cast();
    // SAFETY: `state` has checked that the object came from `open`. The caller gives the object up,
    // so no reference to the state exists. The front needs no drop, and the allocation has the same
    // layout.
    unsafe {
        (&raw mut (*object).state).drop_in_place();
        drop(Box::from_raw(object.cast::<ManuallyDrop<Object<S>>>()));
    }
    Ok(())
}

/// Counts the objects that depend on one object. Closing that object too early fails with EBUSY.
#[derive(Debug, Default)]
pub(crate) struct Dependents(Arc<()>);

/// The reference that an object holds while it depends on another.
#[derive(Debug)]
pub(crate) struct Lease {
    _count: Arc<()>,
}

impl Dependents {
    /// Returns a lease for one dependent object.
    pub(crate) fn lease(&self) -> Lease {
        Lease { _count: Arc::clone(&self.0) }
    }

    /// Whether there are leases.
    pub(crate) fn has_any(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct TestObject(Dependents);

    // SAFETY: the front is a `Fid`; the class is not one of libfabric's.
    unsafe impl State for TestObject {
        type Front = Fid;
        const CLASS: usize = 1000;
    }

    static OPS: FiOps = FiOps::UNSUPPORTED;

    #[test]
    fn state_checks_the_class_and_close_checks_leases() {
        let object =
            open(new_fid::<TestObject>(std::ptr::null_mut(), &OPS), TestObject(Dependents::default()));
        // SAFETY: `object` is open until the successful `close`.
        unsafe {
            let lease = state::<TestObject>(object.cast()).map(|object| object.0.lease()).unwrap();
            assert_eq!(
                close::<TestObject>(object.cast(), |object| object.0.has_any()).err(),
                Some(Errno::EBUSY.into())
            );
            drop(lease);
            (*object).fclass = 999;
            assert_eq!(state::<TestObject>(object.cast()).err(), Some(Errno::EINVAL.into()));
            (*object).fclass = TestObject::CLASS;
            assert!(close::<TestObject>(object.cast(), |object| object.0.has_any()).is_ok());
        }
    }

    /// A state that records its address when it is dropped.
    struct DropRecorder(Arc<AtomicUsize>);

    // SAFETY: the front is a `Fid`; the class is not one of libfabric's.
    unsafe impl State for DropRecorder {
        type Front = Fid;
        const CLASS: usize = 1001;
    }

    impl Drop for DropRecorder {
        fn drop(&mut self) {
            self.0.store(ptr::from_ref(self).addr(), Ordering::Relaxed);
        }
    }

    #[test]
    fn closed_object_is_dropped_at_its_original_address() {
        let ended_at = Arc::new(AtomicUsize::new(0));
        let recorder = open(new_fid::<DropRecorder>(ptr::null_mut(), &OPS), DropRecorder(ended_at.clone()));
        // SAFETY: `recorder` is open until it is closed.
        let at = unsafe { ptr::from_ref(state::<DropRecorder>(recorder.cast()).unwrap()).addr() };
        // SAFETY: as above.
        assert!(unsafe { close::<DropRecorder>(recorder.cast(), |_| false) }.is_ok());
        assert_eq!(ended_at.load(Ordering::Relaxed), at);
    }

    #[test]
    fn null_object_is_refused() {
        // SAFETY: null is allowed.
        let nothing = unsafe { state::<TestObject>(std::ptr::null()) };
        assert_eq!(nothing.err(), Some(Errno::EINVAL.into()));
    }
}
