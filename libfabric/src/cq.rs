//! `fi_cq(3)`.

use std::ptr;

use homespun::info::Version;
use homespun::{
    Buffer, Completion, CompletionQueue, CqAttr, CqFormat, Errno, FabricAddress, ReadError, mutated,
};
use libc::{c_char, c_int, c_void};

use crate::abi::domain::FidDomain;
use crate::abi::eq::{
    FiCqAttr, FiCqDataEntry, FiCqEntry, FiCqErrEntry, FiCqMsgEntry, FiCqTaggedEntry, FiOpsCq, FidCq,
};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::{
    FI_AFFINITY, FI_CLASS_CQ, FI_CQ_COND_NONE, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG,
    FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_UNSPEC, FI_PEER, FI_WAIT_NONE, FI_WAIT_UNSPEC,
};
use crate::edge::{Failure, run_entry_point};
use crate::error_data::ErrorData;
use crate::object::{self, Dependents, Lease, State};
use crate::sockaddr::CAddress;
use crate::states::DomainState;
use crate::text;
use crate::unsupported::StubFn;
use crate::wait::{BlockingRead, WaitCondition, control_wait_object};
use crate::wait_set::WaitAttr;

/// The object behind a `struct fid_cq`.
pub(crate) struct CqState {
    pub(crate) cq: CompletionQueue,
    /// The `FI_WAIT_*` value with which the application opened the queue.
    wait_obj: u32,
    wait_cond: WaitCondition,
    err_data: ErrorData,
    api_version: Version,
    pub(crate) dependents: Dependents,
    _domain: Lease,
    _wait_set: Option<Lease>,
}

// SAFETY: `struct fid_cq` begins with a `struct fid`.
unsafe impl State for CqState {
    type Front = FidCq;
    const CLASS: usize = FI_CLASS_CQ;
}

static FID_OPS: FiOps = FiOps { close, control, ..FiOps::UNSUPPORTED };

/// An entry of C, in one of the formats.
trait CqEntry: for<'a> From<&'a Completion> {
    /// The calls of queues with such entries.
    const OPS: &FiOpsCq = &FiOpsCq {
        size: size_of::<FiOpsCq>(),
        read: read::<Self>,
        readfrom: readfrom::<Self>,
        readerr,
        sread: sread::<Self>,
        sreadfrom: sreadfrom::<Self>,
        signal,
        strerror,
        export_xpu: StubFn::STUB,
    };
}

impl<E: for<'a> From<&'a Completion>> CqEntry for E {}

/// Returns the calls of queues of this format.
fn ops_of_format(format: CqFormat) -> &'static FiOpsCq {
    match format {
        CqFormat::Context => FiCqEntry::OPS,
        CqFormat::Msg => FiCqMsgEntry::OPS,
        CqFormat::Data => FiCqDataEntry::OPS,
        CqFormat::Tagged => FiCqTaggedEntry::OPS,
    }
}

/// `fi_cq_open`.
pub(crate) unsafe extern "C" fn open_cq(
    domain: *mut FidDomain,
    attr: *mut FiCqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if attr.is_null() || cq.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: `attr` is not null, so valid. These fields exist in every version of the
        // structure.
        let (wait_obj, wait_cond) = unsafe { ((*attr).wait_obj, (*attr).wait_cond) };
        // SAFETY: not null, so valid.
        let (attr, wait_set) = unsafe { read_attr(attr)? };
        if mutated!("fi_cq/cond-needs-wait-object")
            && wait_obj == FI_WAIT_NONE
            && wait_cond != FI_CQ_COND_NONE
        {
            return Err(Errno::EINVAL.into());
        }
        // fi_cq(3): a queue without a wait object ignores the wait condition.
        let wait_cond =
            if wait_obj == FI_WAIT_NONE { WaitCondition::None } else { WaitCondition::from_raw(wait_cond)? };
        let opened = domain.domain.open_cq(&attr)?;
        let ops = ops_of_format(opened.format());
        let state = CqState {
            wait_obj,
            wait_cond,
            cq: opened,
            err_data: ErrorData::default(),
            api_version: domain.api_version,
            dependents: Dependents::default(),
            _domain: domain.dependents.lease(),
            _wait_set: wait_set,
        };
        let context = if mutated!("fi_cq/context-stays-with-queue") { ptr::null_mut() } else { context };
        let front = FidCq { fid: object::new_fid::<CqState>(context, &FID_OPS), ops };
        // SAFETY: not null, so writable.
        unsafe { cq.write(object::open(front, state)) };
        Ok(0)
    })
}

/// Reads the attributes. Also returns the lease that keeps the wait set open, if the queue has one.
///
/// # Safety
///
/// `attr` is valid, and so is its wait set if its wait object is `FI_WAIT_SET`.
unsafe fn read_attr(attr: *const FiCqAttr) -> Result<(CqAttr, Option<Lease>), Failure> {
    // SAFETY: the fields exist in every version of the structure.
    let (size_entries, flags, format, wait_obj, wait_set) =
        unsafe { ((*attr).size, (*attr).flags, (*attr).format, (*attr).wait_obj, (*attr).wait_set) };
    // The affinity of interrupts is only a hint, and there are no interrupts.
    let ignored = if mutated!("fi_cq/signaling-vector") { 0 } else { FI_AFFINITY };
    match flags & !ignored {
        0 => {}
        // `fi_peer(3)` requires this error of a provider without peer queues.
        peer if peer & FI_PEER != 0 => return Err(Errno::EINVAL.into()),
        _ if mutated!("fi_cq/open-flags") => {}
        _ => return Err(Errno::EBADFLAGS.into()),
    }
    let format = match format {
        FI_CQ_FORMAT_UNSPEC if mutated!("fi_cq/format-unspec") => return Err(Errno::EINVAL.into()),
        // With `FI_CQ_FORMAT_UNSPEC` the plugin chooses the format but cannot tell the application.
        // The smallest entry fits into any buffer.
        FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Some(CqFormat::Context),
        FI_CQ_FORMAT_MSG => Some(CqFormat::Msg),
        FI_CQ_FORMAT_DATA => Some(CqFormat::Data),
        FI_CQ_FORMAT_TAGGED => Some(CqFormat::Tagged),
        _ => return Err(Errno::EINVAL.into()),
    };
    // SAFETY: the caller promises it.
    let WaitAttr { object: wait, set: wait_set, lease } = unsafe { WaitAttr::read(wait_obj, wait_set)? };
    Ok((CqAttr { size_entries, format, wait, wait_set }, lease))
}

unsafe extern "C" fn close(cq: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<CqState>(cq.cast(), |state| state.dependents.has_any())? };
        Ok(0)
    })
}

unsafe extern "C" fn control(cq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open completion queue.
        let state = unsafe { object::state::<CqState>(cq.cast())? };
        if mutated!("fi_cq/wait-unspec-may-not-be-retrievable") && state.wait_obj == FI_WAIT_UNSPEC {
            return Err(Errno::ENODATA.into());
        }
        // SAFETY: the caller passes the argument that the command takes.
        unsafe { control_wait_object(&state.cq, state.wait_obj, command, arg) }
    })
}

unsafe extern "C" fn read<E: CqEntry>(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller keeps to `fi_cq(3)`.
    run_entry_point(|| unsafe { read_entries::<E>(cq, buf, count, ptr::null_mut(), None) })
}

unsafe extern "C" fn readfrom<E: CqEntry>(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    src_addr: *mut u64,
) -> isize {
    // SAFETY: as above.
    run_entry_point(|| unsafe { read_entries::<E>(cq, buf, count, src_addr, None) })
}

unsafe extern "C" fn sread<E: CqEntry>(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: as above; `sreadfrom` has no further conditions.
    unsafe { sreadfrom::<E>(cq, buf, count, ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom<E: CqEntry>(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    src_addr: *mut u64,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    run_entry_point(|| {
        // SAFETY: the caller passes an open completion queue.
        let state = unsafe { object::state::<CqState>(cq.cast())? };
        let patience = state.wait_cond.wait_limits(cond, timeout);
        // SAFETY: the caller keeps to `fi_cq(3)`.
        unsafe { read_entries::<E>(cq, buf, count, src_addr, Some(patience)) }
    })
}

unsafe extern "C" fn signal(cq: *mut FidCq) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open completion queue.
        unsafe { object::state::<CqState>(cq.cast())? }.cq.signal();
        Ok(c_int::from(mutated!("fi_cq/open-signal-return")))
    })
}

/// # Safety
///
/// `cq` is open, `buf` has room for `count` entries of type `E`, `src_addr` is null or has room
/// for `count` addresses.
// Always inlined: the caller of a function reads its result before the stores have left the store buffer.
#[inline(always)]
unsafe fn read_entries<E: CqEntry>(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    src_addr: *mut u64,
    patience: Option<BlockingRead>,
) -> Result<isize, Failure> {
    // SAFETY: the caller promises it.
    let state = unsafe { object::state::<CqState>(cq.cast())? };
    if buf.is_null() && count > 0 {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: the caller promises it.
    match unsafe { fill_entries::<E>(&state.cq, buf, count, src_addr, patience) } {
        Ok(Some(_)) if mutated!("fi_cq-1.4/read-counts") && patience.is_some() => Ok(0),
        Ok(Some(count)) if mutated!("fi_cq/read-return") => Ok(count.min(1).cast_signed()),
        // The count is at most the length of an array, which fits into `isize`.
        Ok(Some(count)) => Ok(count.cast_signed()),
        Ok(None) if mutated!("fi_cq/sread-return") && patience.is_some() => Err(Errno::ETIMEDOUT.into()),
        Ok(None) if mutated!("fi_cq/read-eagain") => Ok(0),
        Ok(None) => Err(Errno::EAGAIN.into()),
        Err(error) => Err(Failure(error.errno())),
    }
}

/// # Safety
///
/// `buf` has room for `count` entries of type `E`, `src_addr` is null or has room for `count` addresses.
#[inline(always)]
unsafe fn fill_entries<E: CqEntry>(
    cq: &CompletionQueue,
    buf: *mut c_void,
    count: usize,
    src_addr: *mut u64,
    patience: Option<BlockingRead>,
) -> Result<Option<usize>, ReadError> {
    let entries: *mut E = buf.cast();
    let copy = |index: usize, completion: &Completion, source: FabricAddress| {
        // SAFETY: the queue shows at most `count` completions. Both arrays have room for `count`.
        unsafe {
            entries.add(index).write(E::from(completion));
            if !src_addr.is_null() {
                src_addr.add(index).write(source.0);
            }
        }
    };
    match patience {
        None => cq.look_at_each(count, copy),
        Some(BlockingRead { threshold_entries, timeout }) => {
            let mut index = 0;
            cq.sread_each(count, threshold_entries, timeout, |completion, source| {
                copy(index, &completion, source);
                index += 1;
            })
        }
    }
}

/// Returns the application's context of the operation.
fn context_pointer(completion: &Completion) -> *mut c_void {
    ptr::with_exposed_provenance_mut(completion.context as usize)
}

/// Returns the address of a message in a multi-receive buffer. Returns null for other operations.
fn multi_recv_address(completion: &Completion) -> *mut c_void {
    match &completion.buffer {
        Buffer::Within(segment) => segment.address.cast(),
        _ => ptr::null_mut(),
    }
}

impl From<&Completion> for FiCqEntry {
    fn from(completion: &Completion) -> Self {
        FiCqEntry { op_context: context_pointer(completion) }
    }
}

impl From<&Completion> for FiCqMsgEntry {
    fn from(completion: &Completion) -> Self {
        FiCqMsgEntry {
            op_context: context_pointer(completion),
            flags: completion.flags.bits(),
            len: completion.len_bytes,
        }
    }
}

impl From<&Completion> for FiCqDataEntry {
    fn from(completion: &Completion) -> Self {
        FiCqDataEntry {
            op_context: context_pointer(completion),
            flags: completion.flags.bits(),
            len: completion.len_bytes,
            buf: multi_recv_address(completion),
            data: completion.data,
        }
    }
}

impl From<&Completion> for FiCqTaggedEntry {
    fn from(completion: &Completion) -> Self {
        FiCqTaggedEntry {
            op_context: context_pointer(completion),
            flags: completion.flags.bits(),
            len: completion.len_bytes,
            buf: multi_recv_address(completion),
            data: completion.data,
            tag: completion.tag.0,
        }
    }
}

unsafe extern "C" fn readerr(cq: *mut FidCq, buf: *mut FiCqErrEntry, _flags: u64) -> isize {
    run_entry_point(|| {
        // SAFETY: the caller passes an open completion queue.
        let state = unsafe { object::state::<CqState>(cq.cast())? };
        if buf.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let error = state.cq.read_error().map_err(|error| Failure(error.errno()))?.ok_or(Errno::EAGAIN)?;
        let completion = &error.completion;
        // SAFETY: the fields that the application's headers have are writable.
        unsafe {
            (*buf).op_context = context_pointer(completion);
            (*buf).flags = completion.flags.bits();
            (*buf).len = completion.len_bytes;
            (*buf).buf = multi_recv_address(completion);
            (*buf).data = completion.data;
            (*buf).tag = completion.tag.0;
            (*buf).olen = usize::try_from(error.overflow_bytes()).unwrap_or(usize::MAX);
            (*buf).err = if mutated!("fi_cq/err-field") { -error.errno().raw() } else { error.errno().raw() };
            (*buf).prov_errno = error.prov_errno();
            let has_size = state.api_version >= Version::new(1, 5);
            let size = has_size.then_some(&raw mut (*buf).err_data_size);
            let source =
                error.unknown_source().filter(|_| has_size || !mutated!("fi_cq-1.4/err-data-may-be-reused"));
            let data = source.map(|address| CAddress::new(address).to_bytes());
            state.err_data.deliver(data.unwrap_or_default(), &raw mut (*buf).err_data, size);
            if state.api_version >= Version::new(1, 20) {
                (*buf).src_addr = error.source.0;
            }
        }
        Ok(isize::from(!mutated!("fi_cq/readerr-return")))
    })
}

unsafe extern "C" fn strerror(
    cq: *mut FidCq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    run_entry_point(|| {
        // SAFETY: the caller passes an open completion queue and a buffer of this length, or none.
        unsafe {
            object::state::<CqState>(cq.cast())?;
            let needs_buffer = mutated!("fi_cq/strerror-buffer-is-optional") && buf.is_null();
            if needs_buffer || mutated!("fi_cq/strerror-return") {
                return Err(Errno::EINVAL.into());
            }
            Ok(text::describe_errno(prov_errno, buf, len))
        }
    })
}
