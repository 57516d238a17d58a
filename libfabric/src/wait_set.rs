//! Wait sets: `fi_poll(3)`.

use homespun::{Errno, Misuse, WaitObject, WaitSet};
use libc::{c_int, c_void};

use crate::abi::eq::{FiOpsWait, FiWaitAttr, FidWait};
use crate::abi::fabric::FidFabric;
use crate::abi::fid::{FiOps, Fid};
use crate::abi::{FI_CLASS_WAIT, FI_WAIT_SET};
use crate::edge::{Failure, run_entry_point};
use crate::object::{self, Dependents, Lease, State};
use crate::states::FabricState;
use crate::wait::{control_wait_object, parse_wait_object, timeout_from_millis};

/// The state behind a `struct fid_wait`.
pub(crate) struct WaitSetState {
    pub(crate) set: WaitSet,
    /// The `FI_WAIT_*` value with which the application opened the wait set.
    wait_obj: u32,
    dependents: Dependents,
    _fabric: Lease,
}

// SAFETY: `struct fid_wait` begins with a `struct fid`.
unsafe impl State for WaitSetState {
    type Front = FidWait;
    const CLASS: usize = FI_CLASS_WAIT;
}

static FID_OPS: FiOps = FiOps { close, control, ..FiOps::UNSUPPORTED };

static OPS: FiOpsWait = FiOpsWait { size: size_of::<FiOpsWait>(), wait };

/// The wait attributes of a queue or a counter.
pub(crate) struct WaitAttr {
    pub(crate) object: WaitObject,
    pub(crate) set: Option<WaitSet>,
    /// The lease that keeps the set open.
    pub(crate) lease: Option<Lease>,
}

impl WaitAttr {
    /// Reads `wait_obj` and, if it is `FI_WAIT_SET`, `wait_set`.
    ///
    /// # Errors
    ///
    /// EINVAL if `wait_obj` is unknown, or if `wait_set` is null or no wait set.
    ///
    /// # Safety
    ///
    /// If `wait_obj` is `FI_WAIT_SET`, `wait_set` is null or an open object.
    pub(crate) unsafe fn read(wait_obj: u32, wait_set: *mut FidWait) -> Result<WaitAttr, Failure> {
        let object = parse_wait_object(wait_obj)?;
        if wait_obj != FI_WAIT_SET {
            return Ok(WaitAttr { object, set: None, lease: None });
        }
        // SAFETY: the caller promises it.
        let state = unsafe { object::state::<WaitSetState>(wait_set.cast())? };
        Ok(WaitAttr { object, set: Some(state.set.clone()), lease: Some(state.dependents.lease()) })
    }
}

/// `fi_wait_open`.
pub(crate) unsafe extern "C" fn open_wait_set(
    fabric: *mut FidFabric,
    attr: *mut FiWaitAttr,
    waitset: *mut *mut FidWait,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open fabric.
        let fabric = unsafe { object::state::<FabricState>(fabric.cast())? };
        if attr.is_null() || waitset.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null, so valid.
        let (wait_obj, flags) = unsafe { ((*attr).wait_obj, (*attr).flags) };
        if flags != 0 {
            return Err(Misuse::Flags(flags).into());
        }
        let state = WaitSetState {
            set: fabric.fabric.open_wait_set(parse_wait_object(wait_obj)?)?,
            wait_obj,
            dependents: Dependents::default(),
            _fabric: fabric.dependents.lease(),
        };
        let front =
            FidWait { fid: object::new_fid::<WaitSetState>(std::ptr::null_mut(), &FID_OPS), ops: &OPS };
        // SAFETY: not null, so writable.
        unsafe { waitset.write(object::open(front, state)) };
        Ok(0)
    })
}

unsafe extern "C" fn close(waitset: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<WaitSetState>(waitset.cast(), |state| state.dependents.has_any())? };
        Ok(0)
    })
}

unsafe extern "C" fn control(waitset: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open wait set.
        let state = unsafe { object::state::<WaitSetState>(waitset.cast())? };
        // SAFETY: the caller passes an argument that fits the command.
        unsafe { control_wait_object(&state.set, state.wait_obj, command, arg) }
    })
}

/// `fi_wait`.
unsafe extern "C" fn wait(waitset: *mut FidWait, timeout: c_int) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open wait set.
        let state = unsafe { object::state::<WaitSetState>(waitset.cast())? };
        state.set.wait(timeout_from_millis(timeout)).map_err(|ended| Failure(ended.errno()))?;
        Ok(0)
    })
}
