//! Configurations of shared receive queues: `rpma_srq_cfg_new(3)`.

use homespun_rpma::SharedReceiveQueueConfig;
use libc::c_int;
use parking_lot::Mutex;

use crate::edge::{Failure, run};
use crate::handle::{OutParam, delete, object};

/// `struct rpma_srq_cfg`.
#[derive(Debug, Default)]
pub(crate) struct SrqCfg(Mutex<SharedReceiveQueueConfig>);

impl SrqCfg {
    pub(crate) fn to_config(&self) -> SharedReceiveQueueConfig {
        *self.0.lock()
    }
}

/// # Safety
///
/// `cfg_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_srq_cfg_new(cfg_ptr: *mut *mut SrqCfg) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        unsafe { OutParam::new(cfg_ptr)? }.store(SrqCfg::default());
        Ok(())
    })
}

/// # Safety
///
/// `cfg_ptr` is null or has null or a configuration, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_srq_cfg_delete(cfg_ptr: *mut *mut SrqCfg) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(cfg_ptr) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_srq_cfg_set_rq_size(cfg: *mut SrqCfg, rq_size: u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { set(cfg, |config| config.receive_queue_size = rq_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration; `rq_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_srq_cfg_get_rq_size(cfg: *const SrqCfg, rq_size: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, rq_size, |config| config.receive_queue_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_srq_cfg_set_rcq_size(cfg: *mut SrqCfg, rcq_size: u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { set(cfg, |config| config.receive_completion_queue_size = rcq_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration; `rcq_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_srq_cfg_get_rcq_size(cfg: *const SrqCfg, rcq_size: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, rcq_size, |config| config.receive_completion_queue_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
unsafe fn set(cfg: *const SrqCfg, set: impl FnOnce(&mut SharedReceiveQueueConfig)) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    set(&mut unsafe { object(cfg)? }.0.lock());
    Ok(())
}

/// # Safety
///
/// `cfg` is null or a configuration; `size` is null or writable.
unsafe fn get(
    cfg: *const SrqCfg,
    size: *mut u32,
    get: impl FnOnce(&SharedReceiveQueueConfig) -> u32,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    let (cfg, place) = unsafe { (object(cfg)?, OutParam::new(size)?) };
    place.write(get(&cfg.0.lock()));
    Ok(())
}
