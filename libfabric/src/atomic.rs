//! `fi_atomic(3)`.

use std::slice;

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun::endpoint::{AtomicMsgRaw, AtomicTarget, CompareAtomicMsgRaw, FetchAtomicMsgRaw};
use homespun::flags::{Caps, OpFlags};
use homespun::limits::IOV_LIMIT;
use homespun::{Endpoint, Errno, FabricAddress, Misuse, Segment, SegmentMut};
use libc::{c_int, c_void};
use smallvec::SmallVec;

use crate::abi::atomic::{FiAtomicAttr, FiIoc, FiMsgAtomic, FiOpsAtomic};
use crate::abi::domain::FidDomain;
use crate::abi::endpoint::FidEp;
use crate::abi::{FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC};
use crate::domain::DomainState;
use crate::edge::{Failure, enter};
use crate::endpoint::EndpointState;
use crate::message::{context, injected};
use crate::object;

pub(crate) static OPS: FiOpsAtomic = FiOpsAtomic {
    size: size_of::<FiOpsAtomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

type Segments = SmallVec<[Segment; IOV_LIMIT]>;
type SegmentsMut = SmallVec<[SegmentMut; IOV_LIMIT]>;

/// The endpoint of a call.
///
/// # Safety
///
/// `ep` is null or an open endpoint, and stays open for `'a`.
unsafe fn endpoint<'a>(ep: *mut FidEp) -> Result<&'a Endpoint, Failure> {
    // SAFETY: the caller says so.
    Ok(unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint })
}

/// What is to be done with which elements, if such a call is offered. What the headers do not have is not.
fn named(kind: AtomicKind, datatype: u32, op: u32) -> Result<(Datatype, AtomicOp), Failure> {
    let named = Datatype::from_number(datatype).zip(AtomicOp::from_number(op));
    let (datatype, op) = named.ok_or(Failure(Errno::EOPNOTSUPP))?;
    kind.count_max(op, datatype).ok_or(Misuse::NoAtomic { kind, op, datatype })?;
    Ok((datatype, op))
}

/// The length of so many elements. More than there is memory for are too many.
fn len_bytes(count: usize, datatype: Datatype) -> Result<usize, Failure> {
    count.checked_mul(datatype.size_bytes()).ok_or(Failure(Errno::EMSGSIZE))
}

/// Elements in a vector of the caller's.
///
/// # Safety
///
/// `ioc` is null or readable for `count` entries.
unsafe fn entries<'a>(ioc: *const FiIoc, count: usize) -> Result<&'a [FiIoc], Failure> {
    if count > IOV_LIMIT {
        return Err(Misuse::TooManySegments { count, max: IOV_LIMIT }.into());
    }
    match (ioc.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EINVAL.into()),
        // SAFETY: the caller says so.
        (false, _) => Ok(unsafe { slice::from_raw_parts(ioc, count) }),
    }
}

/// Elements that are read.
///
/// # Safety
///
/// As [`entries`].
unsafe fn segments(ioc: *const FiIoc, count: usize, datatype: Datatype) -> Result<Segments, Failure> {
    // SAFETY: the caller says so.
    let entries = unsafe { entries(ioc, count)? };
    entries.iter().map(|entry| segment(entry.addr, entry.count, datatype)).collect()
}

/// Elements that are written.
///
/// # Safety
///
/// As [`entries`].
unsafe fn segments_mut(ioc: *const FiIoc, count: usize, datatype: Datatype) -> Result<SegmentsMut, Failure> {
    // SAFETY: the caller says so.
    let entries = unsafe { entries(ioc, count)? };
    entries.iter().map(|entry| segment_mut(entry.addr, entry.count, datatype)).collect()
}

fn segment(buf: *const c_void, count: usize, datatype: Datatype) -> Result<Segment, Failure> {
    Ok(Segment { address: buf.cast(), len_bytes: len_bytes(count, datatype)? })
}

fn segment_mut(buf: *mut c_void, count: usize, datatype: Datatype) -> Result<SegmentMut, Failure> {
    Ok(SegmentMut { address: buf.cast(), len_bytes: len_bytes(count, datatype)? })
}

/// The operands in a vector, which a read does not look at.
///
/// # Safety
///
/// As [`entries`], if there are operands.
unsafe fn operands(
    ioc: *const FiIoc,
    count: usize,
    (datatype, op): (Datatype, AtomicOp),
) -> Result<Segments, Failure> {
    if !op.has_operand() {
        return Ok(Segments::new());
    }
    // SAFETY: the caller says so.
    unsafe { segments(ioc, count, datatype) }
}

/// The one operand, which a read does not look at.
fn operand(
    buf: *const c_void,
    count: usize,
    (datatype, op): (Datatype, AtomicOp),
) -> Result<Segments, Failure> {
    match op.has_operand() {
        true => Ok([segment(buf, count, datatype)?].into_iter().collect()),
        false => Ok(Segments::new()),
    }
}

/// The one place in the peer's memory that a message names, and its key. One on no elements need not name
/// any.
///
/// # Safety
///
/// `msg` is valid, and so is what it points to.
unsafe fn remote(msg: &FiMsgAtomic, local_bytes: usize, datatype: Datatype) -> Result<(u64, u64), Failure> {
    match (msg.rma_iov.is_null(), msg.rma_iov_count) {
        (false, 1) => {
            // SAFETY: the caller says so.
            let remote = unsafe { &*msg.rma_iov };
            if len_bytes(remote.count, datatype)? != local_bytes {
                return Err(Misuse::Invalid("another number of remote elements than of local ones").into());
            }
            Ok((remote.addr, remote.key))
        }
        (false, count) if count > 1 => Err(Misuse::TooManySegments { count, max: 1 }.into()),
        _ if local_bytes == 0 => Ok((0, 0)),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// The length of segments together. One that is too long for memory is the length of no remote elements either.
fn total(lens_bytes: impl Iterator<Item = usize>) -> usize {
    lens_bytes.fold(0, usize::saturating_add)
}

/// A call with every choice: where it goes, and its operands.
struct Message {
    target: AtomicTarget,
    operands: Segments,
    context: u64,
    flags: OpFlags,
}

impl Message {
    /// Reads a message, and the vector of results that comes beside it, if one does.
    ///
    /// # Safety
    ///
    /// `msg` is null or valid, and so is what it points to.
    unsafe fn read(
        kind: AtomicKind,
        msg: *const FiMsgAtomic,
        results: Option<(*mut FiIoc, usize)>,
        flags: u64,
    ) -> Result<(Message, SegmentsMut), Failure> {
        // SAFETY: the caller says so.
        let msg = unsafe { msg.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
        let (datatype, op) = named(kind, msg.datatype, msg.op)?;
        // SAFETY: as above.
        let (operands, results) = unsafe {
            let operands = operands(msg.msg_iov, msg.iov_count, (datatype, op))?;
            let results = match results {
                Some((ioc, count)) => segments_mut(ioc, count, datatype)?,
                None => SegmentsMut::new(),
            };
            (operands, results)
        };
        let local_bytes = match op.has_operand() {
            true => total(operands.iter().map(|segment| segment.len_bytes)),
            false => total(results.iter().map(|segment| segment.len_bytes)),
        };
        // SAFETY: as above.
        let (address, key) = unsafe { remote(msg, local_bytes, datatype)? };
        let target = AtomicTarget { peer: FabricAddress(msg.addr), address, key, datatype, op };
        let flags = OpFlags::from_bits_retain(flags);
        Ok((Message { target, operands, context: context(msg.context), flags }, results))
    }
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    dest_addr: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        let (datatype, op) = named(AtomicKind::Base, datatype, op)?;
        let atomic = AtomicMsgRaw {
            operands: &[segment(buf, count, datatype)?],
            target: AtomicTarget { peer: FabricAddress(dest_addr), address: addr, key, datatype, op },
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { endpoint.post_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        let (datatype, op) = named(AtomicKind::Base, datatype, op)?;
        let atomic = AtomicMsgRaw {
            // SAFETY: as above.
            operands: &unsafe { segments(iov, count, datatype)? },
            target: AtomicTarget { peer: FabricAddress(dest_addr), address: addr, key, datatype, op },
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { endpoint.post_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgAtomic, flags: u64) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        // SAFETY: as above.
        let (Message { target, operands, context, flags }, _) =
            unsafe { Message::read(AtomicKind::Base, msg, None, flags)? };
        let atomic = AtomicMsgRaw { operands: &operands, target, context, flags: Some(flags) };
        // SAFETY: as above.
        unsafe { endpoint.post_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    dest_addr: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        let (datatype, op) = named(AtomicKind::Base, datatype, op)?;
        let len_bytes = len_bytes(count, datatype)?;
        // SAFETY: as above.
        let operand = unsafe { injected(buf, len_bytes)? };
        let target = AtomicTarget { peer: FabricAddress(dest_addr), address: addr, key, datatype, op };
        endpoint.inject_atomic(operand, target)?;
        Ok(0)
    })
}

unsafe extern "C" fn readwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        let (datatype, op) = named(AtomicKind::Fetch, datatype, op)?;
        let atomic = FetchAtomicMsgRaw {
            operands: &operand(buf, count, (datatype, op))?,
            results: &[segment_mut(result, count, datatype)?],
            target: AtomicTarget { peer: FabricAddress(dest_addr), address: addr, key, datatype, op },
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { endpoint.post_fetch_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn readwritev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        let (datatype, op) = named(AtomicKind::Fetch, datatype, op)?;
        let atomic = FetchAtomicMsgRaw {
            // SAFETY: as above.
            operands: &unsafe { operands(iov, count, (datatype, op))? },
            // SAFETY: as above.
            results: &unsafe { segments_mut(resultv, result_count, datatype)? },
            target: AtomicTarget { peer: FabricAddress(dest_addr), address: addr, key, datatype, op },
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { endpoint.post_fetch_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn readwritemsg(
    ep: *mut FidEp,
    msg: *const FiMsgAtomic,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        // SAFETY: as above.
        let (message, results) =
            unsafe { Message::read(AtomicKind::Fetch, msg, Some((resultv, result_count)), flags)? };
        let Message { target, operands, context, flags } = message;
        let (operands, results, flags) = (&operands[..], &results[..], Some(flags));
        let atomic = FetchAtomicMsgRaw { operands, results, target, context, flags };
        // SAFETY: as above.
        unsafe { endpoint.post_fetch_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn compwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        let (datatype, op) = named(AtomicKind::Compare, datatype, op)?;
        let atomic = CompareAtomicMsgRaw {
            operands: &[segment(buf, count, datatype)?],
            compares: &[segment(compare, count, datatype)?],
            results: &[segment_mut(result, count, datatype)?],
            target: AtomicTarget { peer: FabricAddress(dest_addr), address: addr, key, datatype, op },
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { endpoint.post_compare_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn compwritev(
    ep: *mut FidEp,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const FiIoc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        let (datatype, op) = named(AtomicKind::Compare, datatype, op)?;
        // SAFETY: as above.
        let (operands, compares, results) = unsafe {
            (
                segments(iov, count, datatype)?,
                segments(comparev, compare_count, datatype)?,
                segments_mut(resultv, result_count, datatype)?,
            )
        };
        let atomic = CompareAtomicMsgRaw {
            operands: &operands,
            compares: &compares,
            results: &results,
            target: AtomicTarget { peer: FabricAddress(dest_addr), address: addr, key, datatype, op },
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { endpoint.post_compare_atomic(&atomic)? };
        Ok(0)
    })
}

unsafe extern "C" fn compwritemsg(
    ep: *mut FidEp,
    msg: *const FiMsgAtomic,
    comparev: *const FiIoc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_atomic(3)`.
        let endpoint = unsafe { endpoint(ep)? };
        // SAFETY: as above.
        let (message, results) =
            unsafe { Message::read(AtomicKind::Compare, msg, Some((resultv, result_count)), flags)? };
        let Message { target, operands, context, flags } = message;
        // SAFETY: as above.
        let compares = unsafe { segments(comparev, compare_count, target.datatype)? };
        let atomic = CompareAtomicMsgRaw {
            operands: &operands,
            compares: &compares,
            results: &results,
            target,
            context,
            flags: Some(flags),
        };
        // SAFETY: as above.
        unsafe { endpoint.post_compare_atomic(&atomic)? };
        Ok(0)
    })
}

/// Says how many elements a call covers at most.
///
/// # Safety
///
/// `ep` is null or an open endpoint, `count` null or writable.
unsafe fn valid(
    kind: AtomicKind,
    ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> Result<c_int, Failure> {
    // SAFETY: the caller says so.
    let endpoint = unsafe { endpoint(ep)? };
    if count.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let (datatype, op) = named(kind, datatype, op)?;
    let count_max = match kind {
        AtomicKind::Base => endpoint.atomicvalid(datatype, op)?,
        AtomicKind::Fetch => endpoint.fetch_atomicvalid(datatype, op)?,
        AtomicKind::Compare => endpoint.compare_atomicvalid(datatype, op)?,
    };
    // SAFETY: not null, so writable.
    unsafe { count.write(count_max) };
    Ok(0)
}

unsafe extern "C" fn writevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int {
    // SAFETY: the caller keeps to `fi_atomic(3)`.
    enter(|| unsafe { valid(AtomicKind::Base, ep, datatype, op, count) })
}

unsafe extern "C" fn readwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int {
    // SAFETY: the caller keeps to `fi_atomic(3)`.
    enter(|| unsafe { valid(AtomicKind::Fetch, ep, datatype, op, count) })
}

unsafe extern "C" fn compwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int {
    // SAFETY: the caller keeps to `fi_atomic(3)`.
    enter(|| unsafe { valid(AtomicKind::Compare, ep, datatype, op, count) })
}

/// `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query(
    domain: *mut FidDomain,
    datatype: u32,
    op: u32,
    attr: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    enter(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if attr.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // Flags that say nothing of an operation are ignored here as they are where it is posted.
        let kind = match (flags & FI_FETCH_ATOMIC != 0, flags & FI_COMPARE_ATOMIC != 0) {
            (false, false) => AtomicKind::Base,
            (true, false) => AtomicKind::Fetch,
            (false, true) => AtomicKind::Compare,
            (true, true) => return Err(Errno::EINVAL.into()),
        };
        // Receive buffers are no targets.
        if flags & Caps::TAGGED.bits() != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let (datatype, op) = named(kind, datatype, op)?;
        let offered = domain.domain.query_atomic(datatype, op, kind)?;
        // SAFETY: not null, so writable.
        unsafe { attr.write(FiAtomicAttr { count: offered.count, size: offered.size_bytes }) };
        Ok(0)
    })
}
