//! The fabric: `rdma/fabric.h`.

use libc::{c_int, c_void};

use super::c_structs;
use super::domain::FidDomain;
use super::endpoint::FidPep;
use super::eq::{FiEqAttr, FiWaitAttr, FidEq, FidWait};
use super::fid::Fid;
use super::info::FiInfo;

c_structs! {
    struct FiMrRawAttr = "struct fi_mr_raw_attr", 32 bytes {
        flags: u64,
        base_addr: *mut u64,
        raw_key: *mut u8,
        key_size: *mut usize,
    }

    struct FiMrMapRaw = "struct fi_mr_map_raw", 40 bytes {
        flags: u64,
        base_addr: u64,
        raw_key: *mut u8,
        key_size: usize,
        key: *mut u64,
    }

    struct FidFabric = "struct fid_fabric", 40 bytes {
        fid: Fid,
        ops: *const FiOpsFabric,
        api_version: u32,
    }

    struct FiOpsFabric = "struct fi_ops_fabric", 56 bytes {
        size: usize,
        domain: unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int,
        passive_ep: unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidPep, *mut c_void) -> c_int,
        eq_open: unsafe extern "C" fn(*mut FidFabric, *mut FiEqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
        wait_open: unsafe extern "C" fn(*mut FidFabric, *mut FiWaitAttr, *mut *mut FidWait) -> c_int,
        trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
        domain2: unsafe extern "C" fn(
            *mut FidFabric, *mut FiInfo, *mut *mut FidDomain, u64, *mut c_void,
        ) -> c_int,
    }
}
