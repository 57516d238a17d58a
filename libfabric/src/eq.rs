//! `fi_eq(3)`.

use std::time::Duration;
use std::{ptr, slice};

use homespun::eq::{EqFlags, EqReadError, Event, EventError};
use homespun::info::Version;
use homespun::mutated;
use homespun::{EqAttr, Errno, EventQueue, Misuse};
use libc::{c_char, c_int, c_void};
use parking_lot::Mutex;

use crate::abi::eq::{FiEqAttr, FiEqErrEntry, FiOpsEq, FidEq};
use crate::abi::fabric::FidFabric;
use crate::abi::fid::{FiOps, Fid};
use crate::abi::{FI_CLASS_EQ, FI_PEEK, FI_PEER};
use crate::connection::{CmEvent, ENTRY_BYTES};
use crate::edge::{Failure, run_entry_point};
use crate::error_data::ErrorData;
use crate::info::InfoList;
use crate::object::{self, Dependents, Lease, State};
use crate::states::FabricState;
use crate::text;
use crate::wait::{control_wait_object, timeout_from_millis};
use crate::wait_set::WaitAttr;

/// The object behind a `struct fid_eq`.
pub(crate) struct EqState {
    pub(crate) eq: EventQueue,
    /// The address of the fabric.
    fabric: usize,
    /// The number and the info of a connection request that the application has peeked at but not read.
    peeked: Mutex<Option<(u64, InfoList)>>,
    /// The `FI_WAIT_*` value with which the application opened the queue.
    wait_obj: u32,
    err_data: ErrorData,
    api_version: Version,
    pub(crate) dependents: Dependents,
    _fabric: Lease,
    _wait_set: Option<Lease>,
}

// SAFETY: `struct fid_eq` begins with a `struct fid`.
unsafe impl State for EqState {
    type Front = FidEq;
    const CLASS: usize = FI_CLASS_EQ;
}

static FID_OPS: FiOps = FiOps { close, control, ..FiOps::UNSUPPORTED };

static OPS: FiOpsEq = FiOpsEq { size: size_of::<FiOpsEq>(), read, readerr, write, sread, strerror };

/// `fi_eq_open`.
pub(crate) unsafe extern "C" fn open_eq(
    fabric: *mut FidFabric,
    attr: *mut FiEqAttr,
    eq: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        let at = fabric;
        // SAFETY: the caller passes an open fabric.
        let fabric = unsafe { object::state::<FabricState>(fabric.cast())? };
        if attr.is_null() || eq.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null, so valid; the fields exist in every version of the structure.
        let (size_entries, flags, wait_obj, wait_set) =
            unsafe { ((*attr).size, (*attr).flags, (*attr).wait_obj, (*attr).wait_set) };
        // `fi_peer(3)` requires this error of a provider without peer queues.
        if flags & FI_PEER != 0 {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: if the queue waits by a wait set, the caller passes an open one.
        let WaitAttr { object: wait, set: wait_set, lease } = unsafe { WaitAttr::read(wait_obj, wait_set)? };
        let attr = EqAttr { size_entries, flags: EqFlags::from_bits_retain(flags), wait, wait_set };
        let state = EqState {
            eq: fabric.fabric.open_eq(&attr)?,
            fabric: at.expose_provenance(),
            peeked: Mutex::default(),
            wait_obj,
            err_data: ErrorData::default(),
            api_version: fabric.api_version,
            dependents: Dependents::default(),
            _fabric: fabric.dependents.lease(),
            _wait_set: lease,
        };
        let front = FidEq { fid: object::new_fid::<EqState>(context, &FID_OPS), ops: &OPS };
        // SAFETY: not null, so writable.
        unsafe { eq.write(object::open(front, state)) };
        Ok(0)
    })
}

unsafe extern "C" fn close(eq: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<EqState>(eq.cast(), |state| state.dependents.has_any())? };
        Ok(0)
    })
}

unsafe extern "C" fn control(eq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open event queue.
        let state = unsafe { object::state::<EqState>(eq.cast())? };
        // SAFETY: the caller passes the argument that the command takes.
        unsafe { control_wait_object(&state.eq, state.wait_obj, command, arg) }
    })
}

unsafe extern "C" fn read(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: the caller keeps to `fi_eq(3)`.
    run_entry_point(|| unsafe { read_event(eq, event, buf, len, flags, EventWait::None) })
}

unsafe extern "C" fn sread(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    let timeout = timeout_from_millis(timeout);
    // SAFETY: the caller keeps to `fi_eq(3)`.
    run_entry_point(|| unsafe { read_event(eq, event, buf, len, flags, EventWait::Until(timeout)) })
}

/// Whether a read waits, and how long.
enum EventWait {
    None,
    /// `None`: without a limit.
    Until(Option<Duration>),
}

/// Whether the read only peeks.
fn is_peek(flags: u64) -> Result<bool, Failure> {
    let unknown = flags & !FI_PEEK;
    if unknown == 0 { Ok(flags != 0) } else { Err(Misuse::Flags(unknown).into()) }
}

/// # Safety
///
/// `eq` is open, `event` is null or writable, `buf` is null or writable for `len` bytes.
unsafe fn read_event(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
    patience: EventWait,
) -> Result<isize, Failure> {
    // SAFETY: the caller promises it.
    let state = unsafe { object::state::<EqState>(eq.cast())? };
    let is_peek = is_peek(flags)?;
    if event.is_null() || buf.is_null() && len > 0 {
        return Err(Errno::EINVAL.into());
    }
    // The data of a connection event may be truncated. The data of an event that the application
    // wrote may not.
    let fits = |event: &Event| match event {
        Event::Written { data, .. } => data.len() <= len,
        Event::Connection(_) => ENTRY_BYTES <= len,
    };
    let found = match (is_peek, patience) {
        (true, EventWait::None) => state.eq.peek(),
        (true, EventWait::Until(timeout)) => state.eq.speek(timeout),
        (false, EventWait::None) => state.eq.read_if(fits),
        (false, EventWait::Until(timeout)) => state.eq.sread_if(timeout, fits),
    };
    let found = found.map_err(|error: EqReadError| Failure(error.errno()))?;
    let found = found.ok_or(if mutated!("fi_eq/eq-eagain") { Errno::ENODATA } else { Errno::EAGAIN })?;
    // A peek returns any event, a read only one that fits.
    if !fits(&found) {
        return Err(Errno::ETOOSMALL.into());
    }
    let (number, len_bytes) = match found {
        Event::Written { number, data } => {
            // SAFETY: it fits.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), buf.cast(), data.len()) };
            (number, data.len())
        }
        Event::Connection(of) => {
            let mut peeked = state.peeked.lock();
            let of = CmEvent::new(of, ptr::with_exposed_provenance(state.fabric), peeked.take(), is_peek)?;
            let number = of.number;
            // SAFETY: the entry fits.
            let (len_bytes, peeked_again) = unsafe { of.write(buf, len, is_peek) };
            *peeked = peeked_again;
            (number, len_bytes)
        }
    };
    // SAFETY: not null, so writable.
    unsafe { event.write(number) };
    // The length of a slice fits into `isize`.
    Ok(len_bytes.cast_signed())
}

/// Returns the object that an error is about.
fn fid_of_error(error: &EventError) -> *mut Fid {
    ptr::with_exposed_provenance_mut(error.object as usize)
}

unsafe extern "C" fn readerr(eq: *mut FidEq, buf: *mut FiEqErrEntry, flags: u64) -> isize {
    run_entry_point(|| {
        // SAFETY: the caller passes an open event queue.
        let state = unsafe { object::state::<EqState>(eq.cast())? };
        if buf.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let context = |error: &EventError| {
            let fid = fid_of_error(error);
            let is_lost = fid.is_null() || mutated!("fi_eq/context-of-event");
            // SAFETY: `fid` is an endpoint. A thread that closes the endpoint frees the memory only
            // after it has removed the endpoint's errors from the queue. It cannot do this yet: the
            // queue is locked here.
            if is_lost { ptr::null_mut() } else { unsafe { (*fid).context } }
        };
        let found = if is_peek(flags)? {
            state.eq.peek_error_with(context)
        } else {
            state.eq.read_error_with(context)
        };
        let (error, context) = found.ok_or(Errno::EAGAIN)?;
        let has_size = state.api_version >= Version::new(1, 5);
        // SAFETY: the fields that the application's headers have are writable.
        unsafe {
            (*buf).fid = fid_of_error(&error);
            (*buf).context = context;
            (*buf).data = error.data;
            (*buf).err = error.errno.raw();
            (*buf).prov_errno = error.prov_errno;
            let size = has_size.then_some(&raw mut (*buf).err_data_size);
            state.err_data.deliver(error.err_data.into(), &raw mut (*buf).err_data, size);
        }
        let len_bytes = if has_size {
            size_of::<FiEqErrEntry>()
        } else {
            std::mem::offset_of!(FiEqErrEntry, err_data_size)
        };
        Ok(len_bytes.cast_signed())
    })
}

// fi_eq(3) defines no flags for `fi_eq_write`; like other providers, homespun ignores them.
unsafe extern "C" fn write(eq: *mut FidEq, event: u32, buf: *const c_void, len: usize, _flags: u64) -> isize {
    run_entry_point(|| {
        // SAFETY: the caller passes an open event queue.
        let state = unsafe { object::state::<EqState>(eq.cast())? };
        let data = match (buf.is_null(), len) {
            (_, 0) => &[],
            (true, _) => return Err(Errno::EINVAL.into()),
            // SAFETY: the caller passes `len` bytes.
            (false, _) => unsafe { slice::from_raw_parts(buf.cast(), len) },
        };
        // The length of a slice fits into `isize`.
        Ok(state.eq.write(event, data)?.cast_signed())
    })
}

unsafe extern "C" fn strerror(
    eq: *mut FidEq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    run_entry_point(|| {
        // SAFETY: the caller passes an open event queue and a buffer of this length, or none.
        unsafe {
            object::state::<EqState>(eq.cast())?;
            Ok(text::describe_errno(prov_errno, buf, len))
        }
    })
}
