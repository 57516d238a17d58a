//! `fi_atomic(3)`.

use std::ptr;

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun::endpoint::{AtomicMsg, AtomicTarget, CompareAtomicMsg, FetchAtomicMsg};
use homespun::flags::Caps;
use homespun::mutated;
use homespun::trigger::Operation;
use homespun::{Endpoint, Errno, FabricAddress, Misuse, RemoteMemory, Segment, SegmentMut};
use libc::{c_int, c_void};

use crate::abi::atomic::{FiAtomicAttr, FiIoc, FiMsgAtomic, FiOpsAtomic};
use crate::abi::domain::FidDomain;
use crate::abi::{FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC};
use crate::edge::{Failure, run_entry_point};
use crate::object;
use crate::posting::{
    Desc, Descs, Segments, SegmentsMut, bytes_to_inject, context_number, deref_non_null, entry_points,
    flags_or_default, segment, segment_mut, single_remote_memory, vector_entries,
};
use crate::states::DomainState;
use crate::triggered;

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

entry_points! {
    fn write(
        ep, buf: *const c_void, count: usize, _: Desc, to: u64, address: u64, key: u64, datatype: u32,
        op: u32, ctx: *mut c_void,
    ) -> isize {
        let target = make_target(AtomicKind::Base, to, RemoteMemory { address, key }, datatype, op)?;
        post_base(ep, operands_in_buffer(buf, count, target)?, target, ctx, None)
    }

    fn writev(
        ep, iov: *const FiIoc, _: Descs, count: usize, to: u64, address: u64, key: u64, datatype: u32,
        op: u32, ctx: *mut c_void,
    ) -> isize {
        let target = make_target(AtomicKind::Base, to, RemoteMemory { address, key }, datatype, op)?;
        post_base(ep, operands_in_vector(iov, count, target)?, target, ctx, None)
    }

    fn writemsg(ep, msg: *const FiMsgAtomic, flags: u64) -> isize {
        let message = parse_atomic_message(AtomicKind::Base, msg, ptr::null_mut(), 0)?;
        let AtomicMessage { target, operands, ctx, .. } = message;
        post_base(ep, operands, target, ctx, Some(flags))
    }

    fn inject(
        ep, buf: *const c_void, count: usize, to: u64, address: u64, key: u64, datatype: u32, op: u32,
    ) -> isize {
        let target = make_target(AtomicKind::Base, to, RemoteMemory { address, key }, datatype, op)?;
        let operand = bytes_to_inject(buf, len_bytes(count, target.datatype)?)?;
        ep.inject_atomic(operand, target).map_err(Failure::from)
    }

    fn readwrite(
        ep, buf: *const c_void, count: usize, _: Desc, result: *mut c_void, _: Desc, to: u64, address: u64,
        key: u64, datatype: u32, op: u32, ctx: *mut c_void,
    ) -> isize {
        let target = make_target(AtomicKind::Fetch, to, RemoteMemory { address, key }, datatype, op)?;
        let result = segment_mut(result, len_bytes(count, target.datatype)?);
        post_fetch(ep, operands_in_buffer(buf, count, target)?, result, target, ctx, None)
    }

    fn readwritev(
        ep, iov: *const FiIoc, _: Descs, count: usize, resultv: *mut FiIoc, _: Descs, result_count: usize,
        to: u64, address: u64, key: u64, datatype: u32, op: u32, ctx: *mut c_void,
    ) -> isize {
        let target = make_target(AtomicKind::Fetch, to, RemoteMemory { address, key }, datatype, op)?;
        let results = ioc_segments_mut(resultv, result_count, target.datatype)?;
        post_fetch(ep, operands_in_vector(iov, count, target)?, results, target, ctx, None)
    }

    fn readwritemsg(
        ep, msg: *const FiMsgAtomic, resultv: *mut FiIoc, _: Descs, result_count: usize, flags: u64,
    ) -> isize {
        let message = parse_atomic_message(AtomicKind::Fetch, msg, resultv, result_count)?;
        let AtomicMessage { target, operands, results, ctx } = message;
        post_fetch(ep, operands, results, target, ctx, Some(flags))
    }

    fn compwrite(
        ep, buf: *const c_void, count: usize, _: Desc, compare: *const c_void, _: Desc, result: *mut c_void,
        _: Desc, to: u64, address: u64, key: u64, datatype: u32, op: u32, ctx: *mut c_void,
    ) -> isize {
        let target = make_target(AtomicKind::Compare, to, RemoteMemory { address, key }, datatype, op)?;
        let len_bytes = len_bytes(count, target.datatype)?;
        let (compare, result) = (segment(compare, len_bytes), segment_mut(result, len_bytes));
        post_compare(ep, segment(buf, len_bytes), compare, result, target, ctx, None)
    }

    fn compwritev(
        ep, iov: *const FiIoc, _: Descs, count: usize, comparev: *const FiIoc, _: Descs, compare_count: usize,
        resultv: *mut FiIoc, _: Descs, result_count: usize, to: u64, address: u64, key: u64, datatype: u32,
        op: u32, ctx: *mut c_void,
    ) -> isize {
        let target = make_target(AtomicKind::Compare, to, RemoteMemory { address, key }, datatype, op)?;
        let compares = ioc_segments(comparev, compare_count, target.datatype)?;
        let results = ioc_segments_mut(resultv, result_count, target.datatype)?;
        post_compare(ep, operands_in_vector(iov, count, target)?, compares, results, target, ctx, None)
    }

    fn compwritemsg(
        ep, msg: *const FiMsgAtomic, comparev: *const FiIoc, _: Descs, compare_count: usize,
        resultv: *mut FiIoc, _: Descs, result_count: usize, flags: u64,
    ) -> isize {
        let message = parse_atomic_message(AtomicKind::Compare, msg, resultv, result_count)?;
        let AtomicMessage { target, operands, results, ctx } = message;
        let compares = ioc_segments(comparev, compare_count, target.datatype)?;
        post_compare(ep, operands, compares, results, target, ctx, Some(flags))
    }

    fn writevalid(ep, datatype: u32, op: u32, count: *mut usize) -> c_int {
        write_max_count(AtomicKind::Base, Endpoint::atomicvalid, ep, datatype, op, count)
    }

    fn readwritevalid(ep, datatype: u32, op: u32, count: *mut usize) -> c_int {
        write_max_count(AtomicKind::Fetch, Endpoint::fetch_atomicvalid, ep, datatype, op, count)
    }

    fn compwritevalid(ep, datatype: u32, op: u32, count: *mut usize) -> c_int {
        write_max_count(AtomicKind::Compare, Endpoint::compare_atomicvalid, ep, datatype, op, count)
    }
}

/// Posts an operation that fetches nothing.
///
/// # Safety
///
/// The operands stay unchanged until the application has read the completion (`fi_atomic(3)`).
unsafe fn post_base(
    endpoint: &Endpoint,
    operands: impl AsRef<[Segment]>,
    target: AtomicTarget,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (context, flags) = (context_number(ctx), flags_or_default(flags, endpoint.uncommitted_op_flags()));
    let atomic = AtomicMsg { operands: operands.as_ref(), target, context, flags };
    // SAFETY: the caller keeps the same conditions.
    unsafe {
        endpoint.post_atomic(&atomic).or_else(|error| {
            triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, || Operation::Atomic(atomic))
        })
    }
}

/// Posts an operation that fetches.
///
/// # Safety
///
/// As [`post_base`]. No other code accesses the results until the application has read the
/// completion.
unsafe fn post_fetch(
    endpoint: &Endpoint,
    operands: impl AsRef<[Segment]>,
    results: impl AsRef<[SegmentMut]>,
    target: AtomicTarget,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (operands, results) = (operands.as_ref(), results.as_ref());
    let (context, flags) = (context_number(ctx), flags_or_default(flags, endpoint.uncommitted_op_flags()));
    let atomic = FetchAtomicMsg { operands, results, target, context, flags };
    // SAFETY: the caller keeps the same conditions.
    unsafe {
        endpoint.post_fetch_atomic(&atomic).or_else(|error| {
            triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, || {
                Operation::FetchAtomic(atomic)
            })
        })
    }
}

/// Posts an operation that compares.
///
/// # Safety
///
/// As [`post_fetch`]. The comparands, too, stay unchanged until the application has read the
/// completion.
unsafe fn post_compare(
    endpoint: &Endpoint,
    operands: impl AsRef<[Segment]>,
    compares: impl AsRef<[Segment]>,
    results: impl AsRef<[SegmentMut]>,
    target: AtomicTarget,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (operands, compares, results) = (operands.as_ref(), compares.as_ref(), results.as_ref());
    let (context, flags) = (context_number(ctx), flags_or_default(flags, endpoint.uncommitted_op_flags()));
    let atomic = CompareAtomicMsg { operands, compares, results, target, context, flags };
    // SAFETY: the caller keeps the same conditions.
    unsafe {
        endpoint.post_compare_atomic(&atomic).or_else(|error| {
            triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, || {
                Operation::CompareAtomic(atomic)
            })
        })
    }
}

/// Writes to `count` the largest number of elements that one call may have.
///
/// # Safety
///
/// `count` is null or writable.
unsafe fn write_max_count(
    kind: AtomicKind,
    valid: impl FnOnce(&Endpoint, Datatype, AtomicOp) -> Result<usize, homespun::Error>,
    endpoint: &Endpoint,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> Result<(), Failure> {
    if count.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let (datatype, op) = parse_supported_atomic(kind, datatype, op)?;
    // SAFETY: not null, so writable.
    unsafe { count.write(valid(endpoint, datatype, op)?) };
    Ok(())
}

/// Converts the numbers of an element type and of an operation, which a C call passes.
///
/// # Errors
///
/// EOPNOTSUPP for a number that libfabric does not define. EOPNOTSUPP also if calls of this kind do
/// not offer the operation on this type.
fn parse_supported_atomic(kind: AtomicKind, datatype: u32, op: u32) -> Result<(Datatype, AtomicOp), Failure> {
    let named = Datatype::from_number(datatype).zip(AtomicOp::from_number(op));
    let (datatype, op) = named.ok_or(Failure(Errno::EOPNOTSUPP))?;
    kind.count_max(op, datatype).ok_or(Misuse::NoAtomic { kind, op, datatype })?;
    Ok((datatype, op))
}

/// Returns the target and the operation of a call.
fn make_target(
    kind: AtomicKind,
    to: u64,
    memory: RemoteMemory,
    datatype: u32,
    op: u32,
) -> Result<AtomicTarget, Failure> {
    let (datatype, op) = parse_supported_atomic(kind, datatype, op)?;
    Ok(AtomicTarget { peer: FabricAddress(to), memory, datatype, op })
}

/// Returns the length of `count` elements in bytes, or EMSGSIZE if the length exceeds the address space.
fn len_bytes(count: usize, datatype: Datatype) -> Result<usize, Failure> {
    count.checked_mul(datatype.size_bytes()).ok_or(Failure(Errno::EMSGSIZE))
}

/// Converts a vector of elements to segments. The operation only reads the elements.
///
/// # Safety
///
/// As [`vector_entries`].
pub(crate) unsafe fn ioc_segments(
    ioc: *const FiIoc,
    count: usize,
    datatype: Datatype,
) -> Result<Segments, Failure> {
    // SAFETY: the caller promises it.
    let entries = unsafe { vector_entries(ioc, count)? };
    entries
        .iter()
        .map(|entry| Ok(Segment { address: entry.addr.cast(), len_bytes: len_bytes(entry.count, datatype)? }))
        .collect()
}

/// Converts a vector of elements to segments. The operation writes the elements.
///
/// # Safety
///
/// As [`vector_entries`].
unsafe fn ioc_segments_mut(
    ioc: *const FiIoc,
    count: usize,
    datatype: Datatype,
) -> Result<SegmentsMut, Failure> {
    // SAFETY: the caller promises it.
    let entries = unsafe { vector_entries(ioc, count)? };
    entries
        .iter()
        .map(|entry| {
            Ok(SegmentMut { address: entry.addr.cast(), len_bytes: len_bytes(entry.count, datatype)? })
        })
        .collect()
}

/// Returns the operands that a vector describes. If the operation has no operands, returns none and
/// does not read the vector.
///
/// # Safety
///
/// As [`vector_entries`], if the operation has operands.
unsafe fn operands_in_vector(
    ioc: *const FiIoc,
    count: usize,
    target: AtomicTarget,
) -> Result<Segments, Failure> {
    if !target.op.has_operand() {
        return Ok(Segments::new());
    }
    // SAFETY: the caller promises it.
    unsafe { ioc_segments(ioc, count, target.datatype) }
}

/// Returns the operands in one buffer; none for an operation without operands.
fn operands_in_buffer(buf: *const c_void, count: usize, target: AtomicTarget) -> Result<Segments, Failure> {
    match target.op.has_operand() {
        true => Ok(segment(buf, len_bytes(count, target.datatype)?).into_iter().collect()),
        false => Ok(Segments::new()),
    }
}

/// The arguments of a call that passes a `struct fi_msg_atomic`.
pub(crate) struct AtomicMessage {
    pub(crate) target: AtomicTarget,
    pub(crate) operands: Segments,
    pub(crate) results: SegmentsMut,
    pub(crate) ctx: *mut c_void,
}

/// Converts a `struct fi_msg_atomic` and the vector of results.
///
/// # Safety
///
/// `msg` is null or valid, and so is each pointer in it. `resultv` and `result_count` meet the
/// conditions of [`vector_entries`].
pub(crate) unsafe fn parse_atomic_message(
    kind: AtomicKind,
    msg: *const FiMsgAtomic,
    resultv: *mut FiIoc,
    result_count: usize,
) -> Result<AtomicMessage, Failure> {
    // SAFETY: the caller promises it.
    let msg = unsafe { deref_non_null(msg)? };
    let nowhere = RemoteMemory::default();
    let mut target = make_target(kind, msg.addr, nowhere, msg.datatype, msg.op)?;
    // SAFETY: as above.
    let (operands, results) = unsafe {
        (
            operands_in_vector(msg.msg_iov, msg.iov_count, target)?,
            ioc_segments_mut(resultv, result_count, target.datatype)?,
        )
    };
    let operands_bytes = operands.iter().map(|segment| segment.len_bytes);
    let results_bytes = results.iter().map(|segment| segment.len_bytes).filter(|_| !target.op.has_operand());
    // SAFETY: as above.
    target.memory = unsafe {
        single_remote_memory(msg.rma_iov, msg.rma_iov_count, operands_bytes.chain(results_bytes), |place| {
            let remote = RemoteMemory { address: place.addr, key: place.key };
            Ok((remote, len_bytes(place.count, target.datatype)?))
        })?
    };
    Ok(AtomicMessage { target, operands, results, ctx: msg.context })
}

/// `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query_atomic(
    domain: *mut FidDomain,
    datatype: u32,
    op: u32,
    attr: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if attr.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // Only `FI_FETCH_ATOMIC`, `FI_COMPARE_ATOMIC` and `FI_TAGGED` have an effect here. Other
        // flags are ignored.
        let kind = match (flags & FI_FETCH_ATOMIC != 0, flags & FI_COMPARE_ATOMIC != 0) {
            (false, false) => AtomicKind::Base,
            (true, false) => AtomicKind::Fetch,
            (false, true) => AtomicKind::Compare,
            (true, true) if mutated!("fi_atomic/query-flags") => AtomicKind::Compare,
            (true, true) => return Err(Errno::EINVAL.into()),
        };
        // Atomic operations on receive buffers (`FI_TAGGED`) are not offered.
        if flags & Caps::TAGGED.bits() != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let (datatype, op) = parse_supported_atomic(kind, datatype, op)?;
        let limits = domain.domain.query_atomic(datatype, op, kind)?;
        // SAFETY: not null, so writable.
        unsafe { attr.write(FiAtomicAttr { count: limits.count, size: limits.size_bytes }) };
        Ok(0)
    })
}
