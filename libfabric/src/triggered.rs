//! Triggered operations: `fi_trigger(3)`. The deferred work queue is in
//! [`deferred_work`](crate::deferred_work).

use homespun::flags::{Caps, OpFlags};
use homespun::trigger::{Operation, Trigger};
use homespun::{Counter, Endpoint, Error, RecvMsg, Segment, SegmentMut, SharedReceiveContext};
use libc::c_void;

use crate::abi::FI_TRIGGER_THRESHOLD;
use crate::abi::eq::FidCntr;
use crate::abi::trigger::FiTriggeredContext;
use crate::c_misuse::CMisuse;
use crate::counter::CounterState;
use crate::edge::Failure;
use crate::object;
use crate::posting::deref_non_null;

/// An operation on the caller's memory.
pub(crate) type RawOperation<'a> = Operation<&'a [Segment], &'a [SegmentMut]>;

/// Posts an operation as a triggered one if its flags have `FI_TRIGGER`. Otherwise returns
/// `refusal`. The caller has first posted the operation in the plain way, and that post failed with
/// `refusal`.
///
/// # Safety
///
/// As the call that posts the operation. With `FI_TRIGGER`, `ctx` is null or a `struct
/// fi_triggered_context`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn post_triggered_or_refuse<'a>(
    endpoint: &Endpoint,
    ctx: *mut c_void,
    flags: OpFlags,
    refusal: Error,
    operation: impl FnOnce() -> RawOperation<'a>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let trigger = read_trigger_or_refuse(endpoint.info().caps, ctx, flags, refusal)?;
        endpoint.post_triggered(&trigger, operation()).map_err(Failure::from)
    }
}

/// As [`post_triggered_or_refuse`], for a receive of a shared receive context.
///
/// # Safety
///
/// As [`post_triggered_or_refuse`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn receive_triggered_or_refuse(
    receive_context: &SharedReceiveContext,
    ctx: *mut c_void,
    refusal: Error,
    receive: RecvMsg<&[SegmentMut]>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        let trigger = read_trigger_or_refuse(receive_context.attr().caps, ctx, receive.flags, refusal)?;
        receive_context.post_triggered(&trigger, receive).map_err(Failure::from)
    }
}

/// Reads the trigger of an operation with `FI_TRIGGER`. Returns `refusal` if the operation lacks
/// this flag, or if the object lacks this capability.
///
/// # Safety
///
/// As [`post_triggered_or_refuse`].
unsafe fn read_trigger_or_refuse(
    caps: Caps,
    ctx: *mut c_void,
    flags: OpFlags,
    refusal: Error,
) -> Result<Trigger, Failure> {
    if !flags.contains(OpFlags::TRIGGER) || !caps.contains(Caps::TRIGGER) {
        return Err(refusal.into());
    }
    // SAFETY: the caller promises it.
    let triggered = unsafe { deref_non_null(ctx.cast::<FiTriggeredContext>())? };
    if triggered.event_type != FI_TRIGGER_THRESHOLD {
        return Err(CMisuse::Trigger.into());
    }
    let threshold = &triggered.trigger.threshold;
    // SAFETY: the counter of the context is open.
    let counter = unsafe { counter_from_fid(threshold.cntr)? }.clone();
    Ok(Trigger { counter, threshold: threshold.threshold as u64 })
}

/// Returns the counter behind a pointer from C.
///
/// # Errors
///
/// EINVAL for a null pointer, or for an object that is not a counter.
///
/// # Safety
///
/// `cntr` is null or an open counter.
pub(crate) unsafe fn counter_from_fid<'a>(cntr: *mut FidCntr) -> Result<&'a Counter, Failure> {
    // SAFETY: the caller promises it.
    Ok(&unsafe { object::state::<CounterState>(cntr.cast())? }.counter)
}
