//! Shared receive queues: `rpma_srq_new(3)`.

use std::ffi::c_void;
use std::ptr;

use homespun_rpma::{CompletionQueue, MemoryRegion, Peer, SharedReceiveQueue};
use libc::c_int;

use crate::edge::run;
use crate::handle::{OutParam, delete, object, optional};
use crate::mr::slice;
use crate::srq_cfg::SrqCfg;

/// # Safety
///
/// `peer` is null or a peer; `cfg` is null or a configuration; `srq_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_srq_new(
    peer: *mut Peer,
    cfg: *mut SrqCfg,
    srq_ptr: *mut *mut SharedReceiveQueue,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (peer, cfg, place) = unsafe { (object(peer)?, optional(cfg), OutParam::new(srq_ptr)?) };
        let config = cfg.map(SrqCfg::to_config);
        place.store(SharedReceiveQueue::new(peer, config.as_ref())?);
        Ok(())
    })
}

/// # Safety
///
/// `srq_ptr` is null or has null or a shared receive queue. No code uses it or its completion queue any more.
pub(crate) unsafe extern "C" fn rpma_srq_delete(srq_ptr: *mut *mut SharedReceiveQueue) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(srq_ptr) })
}

/// # Safety
///
/// `srq` is null or a shared receive queue; `dst` is null or a region.
pub(crate) unsafe extern "C" fn rpma_srq_recv(
    srq: *mut SharedReceiveQueue,
    dst: *mut MemoryRegion,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (srq, dst) = unsafe { (object(srq)?, slice(dst, offset, len)?) };
        Ok(srq.recv(dst, op_context.addr() as u64)?)
    })
}

/// Returns the completion queue, null if there is none.
///
/// # Safety
///
/// `srq` is null or a shared receive queue; `rcq_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_srq_get_rcq(
    srq: *const SharedReceiveQueue,
    rcq_ptr: *mut *mut CompletionQueue,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (srq, place) = unsafe { (object(srq)?, OutParam::new(rcq_ptr)?) };
        place.write(srq.completion_queue().map_or(ptr::null(), ptr::from_ref).cast_mut());
        Ok(())
    })
}
