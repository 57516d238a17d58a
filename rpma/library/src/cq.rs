//! Completion queues: `rpma_cq_get_wc(3)`.

use std::os::fd::AsRawFd;

use homespun_rpma::{CompletionQueue, Error};
use libc::c_int;

use crate::completion::{self, LegacyCompletion, log_failure};
use crate::edge::{BadArgument, run};
use crate::handle::{OutParam, object};
use crate::ibv::IbvWc;

/// # Safety
///
/// `cq` is null or a queue; `fd` is null or writable.
pub(crate) unsafe extern "C" fn rpma_cq_get_fd(cq: *const CompletionQueue, fd: *mut c_int) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (queue, place) = unsafe { (object(cq)?, OutParam::new(fd)?) };
        place.write(queue.fd()?.as_raw_fd());
        Ok(())
    })
}

/// The connection may be deleted meanwhile, which ends the wait.
///
/// # Safety
///
/// `cq` is null or a queue.
pub(crate) unsafe extern "C" fn rpma_cq_wait(cq: *mut CompletionQueue) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let queue = unsafe { object(cq)? }.clone();
        Ok(queue.wait().map_err(wait_error)?)
    })
}

/// Returns the error of a wait for completions. One that a signal has ended fails as in librpma, where
/// programs then look whether the handler has told them to end.
pub(crate) fn wait_error(error: Error) -> Error {
    if error == Error::Interrupted { Error::NoCompletion } else { error }
}

/// Reads up to `num_entries` completions.
///
/// # Safety
///
/// `cq` is null or a queue; `wc` is null or writable for `num_entries`; `num_entries_got` is null or
/// writable.
pub(crate) unsafe extern "C" fn rpma_cq_get_wc(
    cq: *mut CompletionQueue,
    num_entries: c_int,
    wc: *mut IbvWc,
    num_entries_got: *mut c_int,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let queue = unsafe { object(cq)? };
        let max = usize::try_from(num_entries).ok().filter(|&max| max > 0).ok_or(BadArgument::NoRoom)?;
        if wc.is_null() || (max > 1 && num_entries_got.is_null()) {
            return Err(BadArgument::Null.into());
        }
        let mut next = wc;
        let count = queue.next_each(max, |completion| {
            log_failure(&completion);
            // SAFETY: there is room for `max` completions, and `next_each` passes no more.
            unsafe {
                next.write(IbvWc::from(&completion));
                next = next.add(1);
            }
        })?;
        // SAFETY: the caller promises it.
        if let Ok(place) = unsafe { OutParam::new(num_entries_got) } {
            // At most `num_entries`.
            place.write(count as c_int);
        }
        Ok(())
    })
}

/// Reads a completion, in librpma 0.10.
///
/// # Safety
///
/// `cq` is null or a queue; `cmpl` is null or writable.
pub(crate) unsafe extern "C" fn rpma_cq_get_completion(
    cq: *mut CompletionQueue,
    cmpl: *mut LegacyCompletion,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (queue, place) = unsafe { (object(cq)?, OutParam::new(cmpl)?) };
        completion::read_legacy(queue, place)
    })
}
