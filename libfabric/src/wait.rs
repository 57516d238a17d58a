//! Wait objects of event queues, completion queues, counters and wait sets: `fi_wait(3)`,
//! `fi_trywait(3)`.

use std::os::fd::AsRawFd;
use std::slice;
use std::time::Duration;

use homespun::wait::{MutexCond, Waitable};
use homespun::{Errno, WaitObject, mutated};
use libc::{c_int, c_void};

use crate::abi::eq::FiMutexCond;
use crate::abi::fabric::FidFabric;
use crate::abi::fid::Fid;
use crate::abi::{
    FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_CLASS_WAIT, FI_CQ_COND_NONE, FI_CQ_COND_THRESHOLD,
    FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_NONE, FI_WAIT_POLLFD, FI_WAIT_SET,
    FI_WAIT_UNSPEC, FI_WAIT_YIELD,
};
use crate::counter::CounterState;
use crate::cq::CqState;
use crate::edge::{Failure, run_entry_point};
use crate::eq::EqState;
use crate::object;
use crate::states::FabricState;
use crate::wait_set::WaitSetState;

/// Reads an `enum fi_wait_obj`.
///
/// # Errors
///
/// EINVAL for an unknown number.
pub(crate) fn parse_wait_object(raw: u32) -> Result<WaitObject, Failure> {
    Ok(match raw {
        FI_WAIT_NONE => WaitObject::None,
        // Programs ask for the descriptor of an unspecified wait object, and get one from other providers.
        FI_WAIT_UNSPEC | FI_WAIT_FD => WaitObject::Fd,
        FI_WAIT_SET => WaitObject::Set,
        FI_WAIT_MUTEX_COND => WaitObject::MutexCond,
        FI_WAIT_YIELD => WaitObject::Yield,
        FI_WAIT_POLLFD => WaitObject::PollFd,
        _ if mutated!("fi_cq-1.4/wait-critsec-cond") => WaitObject::Yield,
        _ => return Err(Errno::EINVAL.into()),
    })
}

/// Returns the time limit of a blocking call. A negative timeout means no limit.
pub(crate) fn timeout_from_millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// The threshold and the timeout of a blocking read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockingRead {
    pub(crate) threshold_entries: usize,
    /// `None` waits without limit.
    pub(crate) timeout: Option<Duration>,
}

/// The meaning of `cond` in blocking reads: an `enum fi_cq_wait_cond`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitCondition {
    None,
    Threshold,
}

impl WaitCondition {
    /// # Errors
    ///
    /// EINVAL for an unknown number.
    pub(crate) fn from_raw(raw: u32) -> Result<WaitCondition, Failure> {
        match raw {
            FI_CQ_COND_NONE => Ok(WaitCondition::None),
            FI_CQ_COND_THRESHOLD => Ok(WaitCondition::Threshold),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Returns the limits of a blocking read. With a threshold, the pointer `cond` is the number of
    /// entries. `timeout` is that of [`timeout_from_millis`].
    pub(crate) fn wait_limits(self, cond: *const c_void, timeout: c_int) -> BlockingRead {
        let threshold_entries = match self {
            WaitCondition::None if !mutated!("fi_cq/cond-none") => 1,
            WaitCondition::None | WaitCondition::Threshold => cond.addr(),
        };
        let unit = if mutated!("fi_cq/timeout-in-milliseconds") { 1000 } else { 1 };
        let timeout = timeout_from_millis(timeout).map(|timeout| timeout / unit);
        BlockingRead { threshold_entries, timeout }
    }
}

/// Runs the `fi_control` commands for wait objects. `wait_obj` is the value with which the
/// application opened the object.
///
/// # Errors
///
/// ENOSYS for other commands. ENODATA for a wait object that the application cannot have. EINVAL if
/// `arg` is null.
///
/// # Safety
///
/// `arg` is null or has room for the answer to the command.
pub(crate) unsafe fn control_wait_object(
    waitable: &impl Waitable,
    wait_obj: u32,
    command: c_int,
    arg: *mut c_void,
) -> Result<c_int, Failure> {
    match command {
        // SAFETY: for this command `arg` has room for the wait object.
        FI_GETWAIT => unsafe { getwait(waitable, arg) },
        FI_GETWAITOBJ if arg.is_null() => Err(Errno::EINVAL.into()),
        FI_GETWAITOBJ => {
            let wait_obj = if mutated!("fi_poll/poll-getwait") { FI_WAIT_NONE } else { wait_obj };
            // SAFETY: for this command `arg` points to an `enum fi_wait_obj`.
            unsafe { arg.cast::<u32>().write(wait_obj) };
            Ok(0)
        }
        _ => Err(Errno::ENOSYS.into()),
    }
}

/// `FI_GETWAIT`.
///
/// # Errors
///
/// ENODATA for a wait object that the application cannot have. EINVAL if `arg` is null.
///
/// # Safety
///
/// `arg` is null or has room for the wait object of `waitable`.
unsafe fn getwait(waitable: &impl Waitable, arg: *mut c_void) -> Result<c_int, Failure> {
    if arg.is_null() {
        return Err(Errno::EINVAL.into());
    }
    if let Some(fd) = waitable.wait_fd() {
        // SAFETY: not null, and the wait object is a descriptor.
        unsafe { arg.cast::<c_int>().write(fd.as_raw_fd()) };
        return Ok(0);
    }
    let Some(MutexCond { mutex, cond }) = waitable.wait_mutex_cond()? else {
        return Err(Errno::ENODATA.into());
    };
    // SAFETY: not null, and the wait object is a mutex and a condition.
    unsafe { arg.cast::<FiMutexCond>().write(FiMutexCond { mutex, cond }) };
    Ok(0)
}

/// `fi_trywait`.
pub(crate) unsafe extern "C" fn trywait(fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open fabric.
        unsafe { object::state::<FabricState>(fabric.cast())? };
        let count = usize::try_from(count).map_err(|_| Failure(Errno::EINVAL))?;
        let fids = match (fids.is_null(), count) {
            (_, 0) => &[],
            (true, _) => return Err(Errno::EINVAL.into()),
            // SAFETY: the caller passes `count` objects.
            (false, _) => unsafe { slice::from_raw_parts(fids, count) },
        };
        for &fid in fids {
            if fid.is_null() {
                return Err(Errno::EINVAL.into());
            }
            // SAFETY: the caller passes open objects, and the class determines the type of the
            // state.
            let waitable: &dyn Waitable = unsafe {
                match (*fid).fclass {
                    FI_CLASS_CQ => &object::state::<CqState>(fid.cast())?.cq,
                    FI_CLASS_CNTR => &object::state::<CounterState>(fid.cast())?.counter,
                    FI_CLASS_EQ => &object::state::<EqState>(fid.cast())?.eq,
                    FI_CLASS_WAIT => &object::state::<WaitSetState>(fid.cast())?.set,
                    _ => return Err(Errno::EINVAL.into()),
                }
            };
            if !waitable.try_wait()? {
                return Err(Errno::EAGAIN.into());
            }
        }
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// Shows fi_cq/timeout-in-milliseconds, fi_cq/cond-none, fi_cq/cond-threshold, fi_cq/sread-blocks,
    /// fi_cq/sread-ends-on-signal, fi_cq/open-signal-return, fi_cq/sread-return, fi_cq-1.4/read-counts.
    #[test]
    fn wait_limits_follow_the_condition_and_the_timeout() {
        let cond = ptr::without_provenance(99);
        for (timeout, limit) in [(-1, None), (c_int::MIN, None), (0, Some(0)), (20, Some(20))] {
            for (condition, threshold) in [(WaitCondition::None, 1), (WaitCondition::Threshold, 99)] {
                let limits = condition.wait_limits(cond, timeout);
                assert_eq!(limits.timeout, limit.map(Duration::from_millis));
                assert_eq!(limits.threshold_entries, threshold);
            }
        }
    }
}
