//! The interface of a provider to its host: `rdma/providers/fi_prov.h`.

use libc::{c_char, c_int, c_void};

use super::c_structs;
use super::fabric::FidFabric;
use super::info::{FiFabricAttr, FiInfo};

/// The provider's answer to `fi_getinfo(3)`.
pub type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int;

/// The provider's side of `fi_fabric(3)`.
pub type OpenFabric =
    unsafe extern "C" fn(attr: *mut FiFabricAttr, fabric: *mut *mut FidFabric, context: *mut c_void) -> c_int;

c_structs! {
    struct FiContext = "struct fi_context", 32 bytes {
        internal: [*mut c_void; 4],
    }

    struct FiProvider = "struct fi_provider", 72 bytes {
        version: u32,
        fi_version: u32,
        context: FiContext,
        name: *const c_char,
        getinfo: GetInfo,
        fabric: OpenFabric,
        cleanup: unsafe extern "C" fn(),
    }
}
