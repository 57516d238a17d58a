//! Configurations of peers: `rpma_peer_cfg_new(3)`.

use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use homespun_rpma::PeerConfig;
use libc::{c_int, c_void};

use crate::edge::{BadArgument, Failure, run};
use crate::handle::{OutParam, delete, object};

/// `struct rpma_peer_cfg`.
#[derive(Debug, Default)]
pub(crate) struct PeerCfg {
    direct_write_to_pmem: AtomicBool,
}

impl PeerCfg {
    pub(crate) fn to_config(&self) -> PeerConfig {
        PeerConfig { direct_write_to_pmem: self.direct_write_to_pmem.load(Ordering::SeqCst) }
    }
}

/// # Safety
///
/// `cfg_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_peer_cfg_new(cfg_ptr: *mut *mut PeerCfg) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        unsafe { OutParam::new(cfg_ptr)? }.store(PeerCfg::default());
        Ok(())
    })
}

/// # Safety
///
/// `cfg_ptr` is null or has null or a configuration, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_peer_cfg_delete(cfg_ptr: *mut *mut PeerCfg) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(cfg_ptr) })
}

/// # Safety
///
/// `cfg` is null or a configuration.
pub(crate) unsafe extern "C" fn rpma_peer_cfg_set_direct_write_to_pmem(
    cfg: *mut PeerCfg,
    supported: bool,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        unsafe { object(cfg)? }.direct_write_to_pmem.store(supported, Ordering::SeqCst);
        Ok(())
    })
}

/// # Safety
///
/// `cfg` is null or a configuration; `supported` is null or writable.
pub(crate) unsafe extern "C" fn rpma_peer_cfg_get_direct_write_to_pmem(
    cfg: *const PeerCfg,
    supported: *mut bool,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (cfg, place) = unsafe { (object(cfg)?, OutParam::new(supported)?) };
        place.write(cfg.to_config().direct_write_to_pmem);
        Ok(())
    })
}

/// # Safety
///
/// `cfg` is null or a configuration; `desc` is null or writable for a descriptor.
pub(crate) unsafe extern "C" fn rpma_peer_cfg_get_descriptor(
    cfg: *const PeerCfg,
    desc: *mut c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it. An array of bytes has no alignment.
        let (cfg, place) = unsafe { (object(cfg)?, OutParam::new(desc.cast())?) };
        place.write(cfg.to_config().descriptor());
        Ok(())
    })
}

/// # Safety
///
/// `cfg` is null or a configuration; `desc_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_peer_cfg_get_descriptor_size(
    cfg: *const PeerCfg,
    desc_size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (_, place) = unsafe { (object(cfg)?, OutParam::new(desc_size)?) };
        place.write(PeerConfig::DESCRIPTOR_BYTES);
        Ok(())
    })
}

/// # Safety
///
/// `desc` is null or readable for `desc_size`; `cfg_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_peer_cfg_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    cfg_ptr: *mut *mut PeerCfg,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (descriptor, place) = unsafe { (bytes(desc, desc_size)?, OutParam::new(cfg_ptr)?) };
        let PeerConfig { direct_write_to_pmem } = PeerConfig::from_descriptor(descriptor)?;
        place.store(PeerCfg { direct_write_to_pmem: direct_write_to_pmem.into() });
        Ok(())
    })
}

/// Returns the bytes of a descriptor.
///
/// # Safety
///
/// `desc` is null or readable for `size_bytes`, and no code changes the bytes before the last use of the
/// result.
pub(crate) unsafe fn bytes<'a>(desc: *const c_void, size_bytes: usize) -> Result<&'a [u8], Failure> {
    if desc.is_null() {
        return Err(BadArgument::Null.into());
    }
    // SAFETY: the caller promises it.
    Ok(unsafe { slice::from_raw_parts(desc.cast(), size_bytes) })
}
