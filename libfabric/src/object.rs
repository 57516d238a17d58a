//! Objects as C holds them: a `struct fid_*` with our state behind it, in one allocation.
//!
//! C gets a pointer to the front part and may write there (libfabric sets `api_version`, layers replace
//! `ops`), so Rust code forms references to the state behind it alone.

use std::mem::{ManuallyDrop, needs_drop};
use std::sync::Arc;

use homespun::Errno;
use libc::c_void;

use crate::abi::fid::{FiOps, Fid};
use crate::c_misuse::CMisuse;
use crate::edge::Failure;

/// The Rust object behind one kind of C object. C calls from any thread.
///
/// # Safety
///
/// [`Front`](Self::Front) begins with a [`Fid`], and `CLASS` is used by no other implementation.
pub(crate) unsafe trait State: Sized + Send + Sync {
    /// The structure that C knows.
    type Front;

    /// Its `FI_CLASS_*`.
    const CLASS: usize;
}

#[repr(C)]
struct Object<S: State> {
    front: S::Front,
    state: S,
}

/// The head of a new object.
pub(crate) fn new_fid<S: State>(context: *mut c_void, ops: &'static FiOps) -> Fid {
    Fid { fclass: S::CLASS, context, ops }
}

/// Makes an object and hands it to C, which owns it until [`close`].
pub(crate) fn open<S: State>(front: S::Front, state: S) -> *mut S::Front {
    const { assert!(!needs_drop::<S::Front>()) };
    Box::into_raw(Box::new(Object { front, state })).cast()
}

/// The state behind a pointer that C passed in.
///
/// # Errors
///
/// EINVAL for a null pointer and for an object of another class.
///
/// # Safety
///
/// `object` is null or points to an open object whose class is right for its type, of this plugin if it is
/// `S::CLASS`, and that is not closed before the returned reference is dropped.
#[inline]
pub(crate) unsafe fn state<'a, S: State>(object: *const c_void) -> Result<&'a S, Failure> {
    let object: *const Object<S> = object.cast();
    if object.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: every object begins with a `Fid`, says the caller, and so does `Object<S>`.
    if unsafe { (*object.cast::<Fid>()).fclass } != S::CLASS {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: of this class there are only objects made by `open`; the caller keeps it alive. State is
    // shared: it is only ever borrowed like this, until `close` takes it.
    Ok(unsafe { &(*object).state })
}

/// Takes an object back from C. Its memory stays until its state has ended: until then a queue may
/// know of the object, and another thread look at what C has written there.
///
/// # Errors
///
/// As [`state`]; EBUSY when `in_use` says so. The object is untouched then.
///
/// # Safety
///
/// As [`state`], and the object is not used any more unless an error is returned.
pub(crate) unsafe fn close<S: State>(
    object: *mut c_void,
    in_use: impl FnOnce(&S) -> bool,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise is ours.
    if in_use(unsafe { state::<S>(object) }?) {
        return Err(CMisuse::InUse.into());
    }
    let object: *mut Object<S> = object.cast();
    // SAFETY: `state` has established that this came from `open`, and the caller gives it up: there
    // is no reference to the state. The front has nothing to end, and the allocation is of the same
    // layout.
    unsafe {
        (&raw mut (*object).state).drop_in_place();
        drop(Box::from_raw(object.cast::<ManuallyDrop<Object<S>>>()));
    }
    Ok(())
}

/// Counts the objects that depend on an object, so that closing it too early gets EBUSY.
#[derive(Debug, Default)]
pub(crate) struct InUse(Arc<()>);

/// Held by an object for as long as it depends on another.
#[derive(Debug)]
pub(crate) struct Lease {
    _count: Arc<()>,
}

impl InUse {
    /// A lease for one dependent.
    pub(crate) fn lease(&self) -> Lease {
        Lease { _count: Arc::clone(&self.0) }
    }

    /// Whether there are leases.
    pub(crate) fn is_leased(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::unsupported::Unsupported;

    struct Thing(InUse);

    // SAFETY: the front is a `Fid`; the class is not one of libfabric's.
    unsafe impl State for Thing {
        type Front = Fid;
        const CLASS: usize = 1000;
    }

    static OPS: FiOps = FiOps {
        size: size_of::<FiOps>(),
        close: Unsupported::STUB,
        bind: Unsupported::STUB,
        control: Unsupported::STUB,
        ops_open: Unsupported::STUB,
        tostr: Unsupported::STUB,
        ops_set: Unsupported::STUB,
    };

    #[test]
    fn object_is_found_by_class_and_closed_once_unleased() {
        let thing = open(new_fid::<Thing>(std::ptr::null_mut(), &OPS), Thing(InUse::default()));
        // SAFETY: `thing` is open until the successful `close`.
        unsafe {
            let lease = state::<Thing>(thing.cast()).map(|thing| thing.0.lease()).unwrap();
            assert_eq!(
                close::<Thing>(thing.cast(), |thing| thing.0.is_leased()).err(),
                Some(Errno::EBUSY.into())
            );
            drop(lease);
            (*thing).fclass = 999;
            assert_eq!(state::<Thing>(thing.cast()).err(), Some(Errno::EINVAL.into()));
            (*thing).fclass = Thing::CLASS;
            assert!(close::<Thing>(thing.cast(), |thing| thing.0.is_leased()).is_ok());
        }
    }

    /// Something that finds itself when it ends.
    struct Known(Arc<AtomicUsize>);

    // SAFETY: the front is a `Fid`; the class is not one of libfabric's.
    unsafe impl State for Known {
        type Front = Fid;
        const CLASS: usize = 1001;
    }

    impl Drop for Known {
        fn drop(&mut self) {
            self.0.store(ptr::from_ref(self).addr(), Ordering::Relaxed);
        }
    }

    #[test]
    fn closed_object_is_dropped_at_its_original_address() {
        let ended_at = Arc::new(AtomicUsize::new(0));
        let known = open(new_fid::<Known>(ptr::null_mut(), &OPS), Known(ended_at.clone()));
        // SAFETY: `known` is open until it is closed.
        let at = unsafe { ptr::from_ref(state::<Known>(known.cast()).unwrap()).addr() };
        // SAFETY: as above.
        assert!(unsafe { close::<Known>(known.cast(), |_| false) }.is_ok());
        assert_eq!(ended_at.load(Ordering::Relaxed), at);
    }

    #[test]
    fn null_object_is_refused() {
        // SAFETY: null is allowed.
        let nothing = unsafe { state::<Thing>(std::ptr::null()) };
        assert_eq!(nothing.err(), Some(Errno::EINVAL.into()));
    }
}
