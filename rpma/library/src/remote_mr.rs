//! Memory regions of peers: `rpma_mr_remote_from_descriptor(3)`.

use homespun_rpma::RemoteMemoryRegion;
use libc::{c_int, c_void};

use crate::edge::run;
use crate::handle::{OutParam, delete, object};
use crate::peer_cfg::bytes;

/// # Safety
///
/// `desc` is null or readable for `desc_size`; `mr_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_mr_remote_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    mr_ptr: *mut *mut RemoteMemoryRegion,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (descriptor, place) = unsafe { (bytes(desc, desc_size)?, OutParam::new(mr_ptr)?) };
        place.store(RemoteMemoryRegion::from_descriptor(descriptor)?);
        Ok(())
    })
}

/// # Safety
///
/// `mr_ptr` is null or has null or a region, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_mr_remote_delete(mr_ptr: *mut *mut RemoteMemoryRegion) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(mr_ptr) })
}

/// # Safety
///
/// `mr` is null or a region; `size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_mr_remote_get_size(
    mr: *const RemoteMemoryRegion,
    size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (mr, place) = unsafe { (object(mr)?, OutParam::new(size)?) };
        // The library is made for processors with addresses of 64 bits.
        place.write(mr.size_bytes() as usize);
        Ok(())
    })
}

/// # Safety
///
/// `mr` is null or a region; `flush_type` is null or writable.
pub(crate) unsafe extern "C" fn rpma_mr_remote_get_flush_type(
    mr: *const RemoteMemoryRegion,
    flush_type: *mut c_int,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (mr, place) = unsafe { (object(mr)?, OutParam::new(flush_type)?) };
        place.write(mr.flush_types().bits().into());
        Ok(())
    })
}
