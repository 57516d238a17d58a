//! `fi_cntr(3)`.

use homespun::mutated;
use homespun::{Counter, CounterAttr, Errno, Misuse};
use libc::{c_int, c_void};

use crate::abi::domain::FidDomain;
use crate::abi::eq::{FiCntrAttr, FiOpsCntr, FidCntr};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::{FI_CLASS_CNTR, FI_CNTR_EVENTS_COMP, FI_GETOPSFLAG, FI_SETOPSFLAG};
use crate::c_misuse::CMisuse;
use crate::edge::{Failure, run_entry_point};
use crate::object::{self, Dependents, Lease, State};
use crate::states::DomainState;
use crate::unsupported::{Status, StubFn};
use crate::wait::{control_wait_object, timeout_from_millis};
use crate::wait_set::WaitAttr;

/// The object behind a `struct fid_cntr`.
pub(crate) struct CounterState {
    pub(crate) counter: Counter,
    /// The `FI_WAIT_*` value with which the application opened the counter.
    wait_obj: u32,
    pub(crate) dependents: Dependents,
    _domain: Lease,
    _wait_set: Option<Lease>,
}

// SAFETY: `struct fid_cntr` begins with a `struct fid`.
unsafe impl State for CounterState {
    type Front = FidCntr;
    const CLASS: usize = FI_CLASS_CNTR;
}

static FID_OPS: FiOps = FiOps { close, control, ..FiOps::UNSUPPORTED };

static OPS: FiOpsCntr = FiOpsCntr {
    size: size_of::<FiOpsCntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
    export_xpu: StubFn::STUB,
};

/// The value of a counter; 0 if the call fails.
impl Status for u64 {
    fn failure(_: Errno) -> Self {
        0
    }
}

/// `fi_cntr_open`.
pub(crate) unsafe extern "C" fn open_counter(
    domain: *mut FidDomain,
    attr: *mut FiCntrAttr,
    cntr: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if attr.is_null() || cntr.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null, so valid; the fields exist in every version of the structure.
        let (events, wait_obj, wait_set, flags) =
            unsafe { ((*attr).events, (*attr).wait_obj, (*attr).wait_set, (*attr).flags) };
        if events != FI_CNTR_EVENTS_COMP {
            return Err(CMisuse::CounterEvents.into());
        }
        if flags != 0 && !mutated!("fi_cntr/counter-flags-are-zero") {
            return Err(Misuse::Flags(flags).into());
        }
        // SAFETY: if the counter waits by a wait set, the caller passes an open one.
        let WaitAttr { object: wait, set: wait_set, lease } = unsafe { WaitAttr::read(wait_obj, wait_set)? };
        let state = CounterState {
            counter: domain.domain.open_counter(&CounterAttr { wait, wait_set })?,
            wait_obj,
            dependents: Dependents::default(),
            _domain: domain.dependents.lease(),
            _wait_set: lease,
        };
        let front = FidCntr { fid: object::new_fid::<CounterState>(context, &FID_OPS), ops: &OPS };
        // SAFETY: not null, so writable.
        unsafe { cntr.write(object::open(front, state)) };
        Ok(0)
    })
}

unsafe extern "C" fn close(cntr: *mut Fid) -> c_int {
    run_entry_point(|| {
        let in_use = |state: &CounterState| state.dependents.has_any() || state.counter.is_in_use();
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<CounterState>(cntr.cast(), in_use)? };
        Ok(0)
    })
}

unsafe extern "C" fn control(cntr: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open counter.
        let state = unsafe { object::state::<CounterState>(cntr.cast())? };
        match command {
            FI_GETOPSFLAG | FI_SETOPSFLAG if arg.is_null() => Err(Errno::EINVAL.into()),
            FI_GETOPSFLAG => {
                // SAFETY: for this command `arg` points to flags.
                unsafe { arg.cast::<u64>().write(0) };
                Ok(0)
            }
            // SAFETY: as above.
            FI_SETOPSFLAG => match unsafe { arg.cast::<u64>().read() } {
                0 => Ok(0),
                _ if mutated!("fi_cntr/counter-op-flags") => Ok(0),
                flags => Err(Misuse::Flags(flags).into()),
            },
            // SAFETY: the caller passes the argument that the command takes.
            _ => unsafe { control_wait_object(&state.counter, state.wait_obj, command, arg) },
        }
    })
}

/// # Safety
///
/// `cntr` is null or an open counter, and stays open.
unsafe fn counter_from_fid<'a>(cntr: *mut FidCntr) -> Result<&'a Counter, Failure> {
    // SAFETY: the caller promises it.
    Ok(&unsafe { object::state::<CounterState>(cntr.cast())? }.counter)
}

unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    // SAFETY: the caller passes an open counter.
    run_entry_point(|| Ok(unsafe { counter_from_fid(cntr)? }.read()))
}

unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    // SAFETY: as above.
    run_entry_point(|| Ok(unsafe { counter_from_fid(cntr)? }.read_error()))
}

unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { apply_change(cntr, |counter| counter.add(value)) }
}

unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { apply_change(cntr, |counter| counter.add_error(value)) }
}

unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { apply_change(cntr, |counter| counter.set(value)) }
}

unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { apply_change(cntr, |counter| counter.set_error(value)) }
}

/// # Safety
///
/// As [`counter_from_fid`].
unsafe fn apply_change(cntr: *mut FidCntr, change: impl FnOnce(&Counter)) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller promises it.
        change(unsafe { counter_from_fid(cntr)? });
        Ok(0)
    })
}

unsafe extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open counter.
        let counter = unsafe { counter_from_fid(cntr)? };
        counter.wait(threshold, timeout_from_millis(timeout)).map_err(|error| Failure(error.errno()))?;
        Ok(0)
    })
}
