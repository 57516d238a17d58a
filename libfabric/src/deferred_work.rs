//! The deferred work queue: `fi_trigger(3)`.
//!
//! Queueing copies the C structures and their vectors. The application must keep only the buffers
//! of the operation.

use std::ptr;

use homespun::atomic::AtomicKind;
use homespun::endpoint::{AtomicMsg, CompareAtomicMsg, FetchAtomicMsg, ReadMsg, RecvMsg, SendMsg, WriteMsg};
use homespun::flags::OpFlags;
use homespun::mutated;
use homespun::trigger::{DeferredAction, DeferredWork, Operation, Trigger};
use homespun::{Domain, Errno, FabricAddress, Segment, SegmentMut, Tag, TagMatch};
use libc::{c_int, iovec};

use crate::abi::endpoint::FidEp;
use crate::abi::eq::FidCntr;
use crate::abi::trigger::{
    FiDeferredWork, FiOpAtomic, FiOpCntr, FiOpCompareAtomic, FiOpFetchAtomic, FiOpMsg, FiOpRma, FiOpTagged,
};
use crate::abi::{
    FI_OP_ATOMIC, FI_OP_CNTR_ADD, FI_OP_CNTR_SET, FI_OP_COMPARE_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_READ,
    FI_OP_RECV, FI_OP_SEND, FI_OP_TRECV, FI_OP_TSEND, FI_OP_WRITE,
};
use crate::atomic::{self, AtomicMessage};
use crate::c_misuse::CMisuse;
use crate::edge::Failure;
use crate::message::segments_of_receive;
use crate::posting::{self, context_number, deref_non_null, remote_cq_data, segments, segments_mut};
use crate::rma::rma_remote_memory;
use crate::shared_receive_context::receive_context_from_fid;
use crate::triggered::{RawOperation, counter_from_fid};

/// Deferred work and its action. Their segments are borrowed from the caller.
type RawWork<'a> = DeferredWork<&'a [Segment], &'a [SegmentMut]>;
type RawAction<'a> = DeferredAction<&'a [Segment], &'a [SegmentMut]>;

/// `FI_QUEUE_WORK`.
///
/// # Safety
///
/// `work` is valid, and so are the structures, objects and memory that it names.
pub(crate) unsafe fn queue_work(domain: &Domain, work: *const FiDeferredWork) -> Result<c_int, Failure> {
    // SAFETY: the caller promises it. The queue copies everything that an action borrows from this
    // function's stack.
    unsafe {
        let FiDeferredWork { op_type, op, .. } = *work;
        let queue = |action: RawAction<'_>| queue_action(domain, work, action);
        match op_type {
            FI_OP_RECV => queue_receive(&MessageOp::from(deref_non_null(op.cast::<FiOpMsg>())?), queue),
            FI_OP_TRECV => queue_receive(&MessageOp::from(deref_non_null(op.cast::<FiOpTagged>())?), queue),
            FI_OP_SEND => queue_send(&MessageOp::from(deref_non_null(op.cast::<FiOpMsg>())?), queue),
            FI_OP_TSEND => queue_send(&MessageOp::from(deref_non_null(op.cast::<FiOpTagged>())?), queue),
            FI_OP_READ => queue_read(deref_non_null(op.cast())?, queue),
            FI_OP_WRITE => queue_write(deref_non_null(op.cast())?, queue),
            FI_OP_ATOMIC => queue_atomic(deref_non_null(op.cast())?, queue),
            FI_OP_FETCH_ATOMIC => queue_fetch_atomic(deref_non_null(op.cast())?, queue),
            FI_OP_COMPARE_ATOMIC => queue_compare_atomic(deref_non_null(op.cast())?, queue),
            FI_OP_CNTR_SET => {
                let FiOpCntr { cntr, value } = *deref_non_null(op.cast::<FiOpCntr>())?;
                queue(DeferredAction::Set { counter: counter_from_fid(cntr)?.clone(), value })
            }
            FI_OP_CNTR_ADD => {
                let FiOpCntr { cntr, value } = *deref_non_null(op.cast::<FiOpCntr>())?;
                queue(DeferredAction::Add { counter: counter_from_fid(cntr)?.clone(), value })
            }
            _ if mutated!("fi_trigger/unsupported-work-enosys") => Err(Errno::EINVAL.into()),
            _ => Err(CMisuse::DeferredWork.into()),
        }?;
    }
    Ok(0)
}

/// `FI_CANCEL_WORK`.
pub(crate) fn cancel_work(domain: &Domain, work: *mut FiDeferredWork) -> Result<c_int, Failure> {
    domain.cancel_work(context_number(work.cast()))?;
    Ok(0)
}

/// `FI_FLUSH_WORK`: cancels all work, or the work that waits for one counter.
///
/// # Safety
///
/// `cntr` is null or an open counter.
pub(crate) unsafe fn flush_work(domain: &Domain, cntr: *mut FidCntr) -> Result<c_int, Failure> {
    // SAFETY: the caller promises it.
    let counter = if cntr.is_null() { None } else { Some(unsafe { counter_from_fid(cntr)? }) };
    domain.flush_work(counter);
    Ok(0)
}

/// A message, tagged or not, with the fields of its C structure.
struct MessageOp {
    ep: *mut FidEp,
    iov: *const iovec,
    iov_count: usize,
    peer: FabricAddress,
    /// Tag and ignore mask.
    tagged: Option<TagMatch>,
    context: u64,
    data: Option<u64>,
    flags: OpFlags,
}

impl From<&FiOpMsg> for MessageOp {
    fn from(&FiOpMsg { ep, ref msg, flags }: &FiOpMsg) -> MessageOp {
        MessageOp {
            ep,
            iov: msg.msg_iov,
            iov_count: msg.iov_count,
            peer: FabricAddress(msg.addr),
            tagged: None,
            context: context_number(msg.context),
            data: remote_cq_data(flags, msg.data),
            flags: OpFlags::from_bits_retain(flags),
        }
    }
}

impl From<&FiOpTagged> for MessageOp {
    fn from(&FiOpTagged { ep, ref msg, flags }: &FiOpTagged) -> MessageOp {
        MessageOp {
            ep,
            iov: msg.msg_iov,
            iov_count: msg.iov_count,
            peer: FabricAddress(msg.addr),
            tagged: Some(TagMatch { tag: msg.tag, ignore: msg.ignore }),
            context: context_number(msg.context),
            data: remote_cq_data(flags, msg.data),
            flags: OpFlags::from_bits_retain(flags),
        }
    }
}

/// Queues a receive of an endpoint or of a shared receive context.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_receive(
    op: &MessageOp,
    queue: impl FnOnce(RawAction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let MessageOp { ep, peer: from, tagged, context, flags, .. } = *op;
    // SAFETY: the caller promises it.
    unsafe {
        let buffers = segments_of_receive(op.iov, op.iov_count, flags.bits())?;
        let receive = |caps| {
            let from = posting::receive_source(from.0, caps);
            RecvMsg { buffers: &buffers[..], from, tagged, context, flags }
        };
        if let Ok(receive_context) = receive_context_from_fid(ep.cast()) {
            let (receive_context, receive) = (receive_context.clone(), receive(receive_context.attr().caps));
            return queue(DeferredAction::Receive { receive_context, receive });
        }
        let receive = receive(posting::endpoint_from_fid(ep)?.info().caps);
        queue(make_post_action(ep, Operation::Receive(receive))?)
    }
}

/// Queues a send.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_send(
    op: &MessageOp,
    queue: impl FnOnce(RawAction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let MessageOp { ep, peer: to, data, context, flags, .. } = *op;
    let tag = op.tagged.map(|tagged| Tag(tagged.tag));
    // SAFETY: the caller promises it.
    unsafe {
        let buffers = segments(op.iov, op.iov_count)?;
        let send = SendMsg { buffers: &buffers[..], to, tag, data, context, flags };
        queue(make_post_action(ep, Operation::Send(send))?)
    }
}

/// Queues a read.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_read(
    &FiOpRma { ep, ref msg, flags }: &FiOpRma,
    queue: impl FnOnce(RawAction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let buffers = &*segments_mut(msg.msg_iov, msg.iov_count)?;
        let memory = rma_remote_memory(msg, buffers.iter().map(|segment| segment.len_bytes))?;
        let read = ReadMsg {
            buffers,
            from: FabricAddress(msg.addr),
            memory,
            context: context_number(msg.context),
            flags: OpFlags::from_bits_retain(flags),
        };
        queue(make_post_action(ep, Operation::Read(read))?)
    }
}

/// Queues a write.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_write(
    &FiOpRma { ep, ref msg, flags }: &FiOpRma,
    queue: impl FnOnce(RawAction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let buffers = &*segments(msg.msg_iov, msg.iov_count)?;
        let memory = rma_remote_memory(msg, buffers.iter().map(|segment| segment.len_bytes))?;
        let write = WriteMsg {
            buffers,
            to: FabricAddress(msg.addr),
            memory,
            data: remote_cq_data(flags, msg.data),
            context: context_number(msg.context),
            flags: OpFlags::from_bits_retain(flags),
        };
        queue(make_post_action(ep, Operation::Write(write))?)
    }
}

/// Queues an atomic operation that fetches nothing.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_atomic(
    &FiOpAtomic { ep, ref msg, flags }: &FiOpAtomic,
    queue: impl FnOnce(RawAction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let AtomicMessage { target, operands, ctx, .. } =
            atomic::parse_atomic_message(AtomicKind::Base, msg, ptr::null_mut(), 0)?;
        let (context, flags) = (context_number(ctx), OpFlags::from_bits_retain(flags));
        let atomic = AtomicMsg { operands: &*operands, target, context, flags };
        queue(make_post_action(ep, Operation::Atomic(atomic))?)
    }
}

/// Queues an atomic operation that fetches.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_fetch_atomic(
    &FiOpFetchAtomic { ep, ref msg, ref fetch, flags }: &FiOpFetchAtomic,
    queue: impl FnOnce(RawAction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let AtomicMessage { target, operands, results, ctx } =
            atomic::parse_atomic_message(AtomicKind::Fetch, msg, fetch.msg_iov, fetch.iov_count)?;
        let (context, flags) = (context_number(ctx), OpFlags::from_bits_retain(flags));
        let (operands, results) = (&*operands, &*results);
        let atomic = FetchAtomicMsg { operands, results, target, context, flags };
        queue(make_post_action(ep, Operation::FetchAtomic(atomic))?)
    }
}

/// Queues an atomic operation that compares and fetches.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_compare_atomic(
    &FiOpCompareAtomic { ep, ref msg, ref fetch, ref compare, flags }: &FiOpCompareAtomic,
    queue: impl FnOnce(RawAction<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let AtomicMessage { target, operands, results, ctx } =
            atomic::parse_atomic_message(AtomicKind::Compare, msg, fetch.msg_iov, fetch.iov_count)?;
        let compares = &*atomic::ioc_segments(compare.msg_iov, compare.iov_count, target.datatype)?;
        let (context, flags) = (context_number(ctx), OpFlags::from_bits_retain(flags));
        let (operands, results) = (&*operands, &*results);
        let atomic = CompareAtomicMsg { operands, compares, results, target, context, flags };
        queue(make_post_action(ep, Operation::CompareAtomic(atomic))?)
    }
}

/// Queues `action` until the triggering counter of `work` reaches the threshold. To cancel the
/// work, the application passes the same pointer `work`.
///
/// # Safety
///
/// As [`queue_work`].
unsafe fn queue_action(
    domain: &Domain,
    work: *const FiDeferredWork,
    action: RawAction<'_>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let FiDeferredWork { threshold, triggering_cntr, completion_cntr, .. } = *work;
        let trigger = Trigger { counter: counter_from_fid(triggering_cntr)?.clone(), threshold };
        let completion =
            if completion_cntr.is_null() { None } else { Some(counter_from_fid(completion_cntr)?.clone()) };
        let context = context_number(work.cast_mut().cast());
        domain.queue_raw_work(RawWork { context, trigger, action, completion }).map_err(Failure::from)
    }
}

/// Returns the action that posts an operation through an endpoint.
///
/// # Safety
///
/// `ep` is null or an open endpoint.
unsafe fn make_post_action(ep: *mut FidEp, operation: RawOperation<'_>) -> Result<RawAction<'_>, Failure> {
    // SAFETY: the caller promises it.
    let endpoint = unsafe { posting::endpoint_from_fid(ep)? }.clone();
    Ok(DeferredAction::Post { endpoint, operation })
}
