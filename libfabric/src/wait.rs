//! Wait objects of event and completion queues.

use homespun::{Errno, WaitObject};

use crate::abi::{
    FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_NONE, FI_WAIT_POLLFD, FI_WAIT_SET, FI_WAIT_UNSPEC, FI_WAIT_YIELD,
};
use crate::edge::Failure;

/// Reads an `enum fi_wait_obj`.
///
/// # Errors
///
/// EINVAL for a number that is none.
pub(crate) fn wait_object(raw: u32) -> Result<WaitObject, Failure> {
    Ok(match raw {
        FI_WAIT_NONE => WaitObject::None,
        FI_WAIT_UNSPEC => WaitObject::Unspec,
        FI_WAIT_SET => WaitObject::Set,
        FI_WAIT_FD => WaitObject::Fd,
        FI_WAIT_MUTEX_COND => WaitObject::MutexCond,
        FI_WAIT_YIELD => WaitObject::Yield,
        FI_WAIT_POLLFD => WaitObject::PollFd,
        _ => return Err(Errno::EINVAL.into()),
    })
}
