//! Peers: `rpma_peer_new(3)`.

use homespun_rpma::Peer;
use libc::c_int;

use crate::device;
use crate::edge::run;
use crate::handle::{OutParam, delete};
use crate::ibv::IbvContext;
use crate::log;

/// # Safety
///
/// `context` is null or from `rpma_utils_get_ibv_context`; `peer_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_peer_new(context: *const IbvContext, peer_ptr: *mut *mut Peer) -> c_int {
    run(|| {
        log::install();
        // SAFETY: the caller promises it.
        let place = unsafe { OutParam::new(peer_ptr)? };
        place.store(Peer::open(&device::peer_attr(context)?)?);
        Ok(())
    })
}

/// # Safety
///
/// `peer_ptr` is null or has null or a peer, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_peer_delete(peer_ptr: *mut *mut Peer) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(peer_ptr) })
}
