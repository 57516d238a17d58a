//! Endpoints that listen: `rpma_ep_listen(3)`.

use homespun_rpma::{ConnectionRequest, Endpoint, Peer};
use libc::{c_char, c_int};

use crate::conn_cfg::{ConnCfg, to_config};
use crate::edge::{Failure, run};
use crate::handle::{OutParam, delete, object, text};
use crate::listening_endpoint::ListeningEndpoint;

/// # Safety
///
/// `peer` is null or a peer; `addr` and `port` are null or C strings; `ep_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_ep_listen(
    peer: *mut Peer,
    addr: *const c_char,
    port: *const c_char,
    ep_ptr: *mut *mut ListeningEndpoint,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (peer, place) = unsafe { (object(peer)?, OutParam::new(ep_ptr)?) };
        // SAFETY: the caller promises it.
        let (address, port) = unsafe { (text(addr)?, text(port)?) };
        let listener = ListeningEndpoint::new(Endpoint::listen(peer, address, port)?);
        place.store(listener.map_err(Failure::System)?);
        Ok(())
    })
}

/// # Safety
///
/// `ep_ptr` is null or has null or an endpoint, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_ep_shutdown(ep_ptr: *mut *mut ListeningEndpoint) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(ep_ptr) })
}

/// # Safety
///
/// `ep` is null or an endpoint; `fd` is null or writable.
pub(crate) unsafe extern "C" fn rpma_ep_get_fd(ep: *const ListeningEndpoint, fd: *mut c_int) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (listener, place) = unsafe { (object(ep)?, OutParam::new(fd)?) };
        place.write(listener.descriptor().map_err(Failure::System)?);
        Ok(())
    })
}

/// # Safety
///
/// `ep` is null or an endpoint; `cfg` is null or a configuration; `req_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_ep_next_conn_req(
    ep: *mut ListeningEndpoint,
    cfg: *const ConnCfg,
    req_ptr: *mut *mut ConnectionRequest,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (listener, config, place) = unsafe { (object(ep)?, to_config(cfg), OutParam::new(req_ptr)?) };
        place.store(listener.next_request(config.as_ref())?);
        Ok(())
    })
}
