//! Configurations of connections: `rpma_conn_cfg_new(3)`.

use std::ptr;
use std::time::Duration;

use homespun_rpma::{ConnectionConfig, SharedReceiveQueue};
use libc::c_int;
use parking_lot::Mutex;

use crate::edge::{BadArgument, Failure, run};
use crate::handle::{OutParam, delete, object, optional};

/// `struct rpma_conn_cfg`.
#[derive(Debug, Default)]
pub(crate) struct ConnCfg(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The configuration without its shared receive queue.
    config: ConnectionConfig,
    /// The address of the shared receive queue, or null. As in librpma, the queue needs to be there only
    /// when a connection is made.
    srq: *mut SharedReceiveQueue,
}

// SAFETY: a shared receive queue may be used from any thread.
unsafe impl Send for State {}

impl Default for State {
    fn default() -> State {
        State { config: ConnectionConfig::default(), srq: ptr::null_mut() }
    }
}

/// Returns a copy of a configuration, or `None` for null.
///
/// # Safety
///
/// `cfg` is null or a configuration whose shared receive queue, if it has one, is there.
pub(crate) unsafe fn to_config(cfg: *const ConnCfg) -> Option<ConnectionConfig> {
    // SAFETY: the caller promises it.
    let state = unsafe { optional(cfg) }?.0.lock();
    // SAFETY: the caller promises it.
    let shared_receive_queue = unsafe { optional(state.srq) }.cloned();
    Some(ConnectionConfig { shared_receive_queue, ..state.config.clone() })
}

/// # Safety
///
/// `cfg_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_new(cfg_ptr: *mut *mut ConnCfg) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        unsafe { OutParam::new(cfg_ptr)? }.store(ConnCfg::default());
        Ok(())
    })
}

/// # Safety
///
/// `cfg_ptr` is null or has null or a configuration, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_delete(cfg_ptr: *mut *mut ConnCfg) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(cfg_ptr) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_set_timeout(cfg: *mut ConnCfg, timeout_ms: c_int) -> c_int {
    run(|| {
        let timeout_ms = u64::try_from(timeout_ms).map_err(|_| BadArgument::NegativeTime)?;
        // SAFETY: the caller promises it.
        unsafe { set(cfg, |state| state.config.timeout = Duration::from_millis(timeout_ms)) }
    })
}

/// # Safety
///
/// `cfg` is null or a configuration; `timeout_ms` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_get_timeout(
    cfg: *const ConnCfg,
    timeout_ms: *mut c_int,
) -> c_int {
    // A timeout comes from a positive `c_int`.
    let milliseconds =
        |state: &State| c_int::try_from(state.config.timeout.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, timeout_ms, milliseconds) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_set_cq_size(cfg: *mut ConnCfg, cq_size: u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { set(cfg, |state| state.config.completion_queue_size = cq_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration; `cq_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_get_cq_size(cfg: *const ConnCfg, cq_size: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, cq_size, |state| state.config.completion_queue_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_set_rcq_size(cfg: *mut ConnCfg, rcq_size: u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { set(cfg, |state| state.config.receive_completion_queue_size = rcq_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration; `rcq_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_get_rcq_size(cfg: *const ConnCfg, rcq_size: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, rcq_size, |state| state.config.receive_completion_queue_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_set_sq_size(cfg: *mut ConnCfg, sq_size: u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { set(cfg, |state| state.config.send_queue_size = sq_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration; `sq_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_get_sq_size(cfg: *const ConnCfg, sq_size: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, sq_size, |state| state.config.send_queue_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_set_rq_size(cfg: *mut ConnCfg, rq_size: u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { set(cfg, |state| state.config.receive_queue_size = rq_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration; `rq_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_get_rq_size(cfg: *const ConnCfg, rq_size: *mut u32) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, rq_size, |state| state.config.receive_queue_size) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_set_compl_channel(cfg: *mut ConnCfg, shared: bool) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { set(cfg, |state| state.config.shared_completion_channel = shared) })
}

/// # Safety
///
/// `cfg` is null or a configuration; `shared` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_get_compl_channel(
    cfg: *const ConnCfg,
    shared: *mut bool,
) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, shared, |state| state.config.shared_completion_channel) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_set_srq(
    cfg: *mut ConnCfg,
    srq: *mut SharedReceiveQueue,
) -> c_int {
    run(|| {
        if srq.is_null() {
            return Err(BadArgument::Null.into());
        }
        // SAFETY: the caller promises it.
        unsafe { set(cfg, |state| state.srq = srq) }
    })
}

/// Returns the shared receive queue of a configuration, null if it has none.
///
/// # Safety
///
/// `cfg` is null or a configuration; `srq_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_cfg_get_srq(
    cfg: *const ConnCfg,
    srq_ptr: *mut *mut SharedReceiveQueue,
) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { get(cfg, srq_ptr, |state| state.srq) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
unsafe fn set(cfg: *const ConnCfg, set: impl FnOnce(&mut State)) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    set(&mut unsafe { object(cfg)? }.0.lock());
    Ok(())
}

/// # Safety
///
/// `cfg` is null or a configuration; `place` is null or writable.
unsafe fn get<T: Copy>(
    cfg: *const ConnCfg,
    place: *mut T,
    get: impl FnOnce(&State) -> T,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    let (cfg, place) = unsafe { (object(cfg)?, OutParam::new(place)?) };
    place.write(get(&cfg.0.lock()));
    Ok(())
}
