//! Domains, address vectors and memory registration: `rdma/fi_domain.h`.

use libc::{c_char, c_int, c_void, iovec};

use super::atomic::FiAtomicAttr;
use super::c_structs;
use super::endpoint::{FidEp, FidStx};
use super::eq::{FiCntrAttr, FiCqAttr, FiPollAttr, FidCntr, FidCq, FidPoll};
use super::fid::Fid;
use super::info::{FiInfo, FiRxAttr, FiTxAttr};

c_structs! {
    struct FidDomain = "struct fid_domain", 40 bytes {
        fid: Fid,
        ops: *const FiOpsDomain,
        mr: *const FiOpsMr,
    }

    struct FiOpsDomain = "struct fi_ops_domain", 104 bytes {
        size: usize,
        av_open: unsafe extern "C" fn(*mut FidDomain, *mut FiAvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
        cq_open: unsafe extern "C" fn(*mut FidDomain, *mut FiCqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
        endpoint: unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
        scalable_ep: unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
        cntr_open: unsafe extern "C" fn(
            *mut FidDomain, *mut FiCntrAttr, *mut *mut FidCntr, *mut c_void,
        ) -> c_int,
        poll_open: unsafe extern "C" fn(*mut FidDomain, *mut FiPollAttr, *mut *mut FidPoll) -> c_int,
        stx_ctx: unsafe extern "C" fn(*mut FidDomain, *mut FiTxAttr, *mut *mut FidStx, *mut c_void) -> c_int,
        srx_ctx: unsafe extern "C" fn(*mut FidDomain, *mut FiRxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
        query_atomic: unsafe extern "C" fn(*mut FidDomain, u32, u32, *mut FiAtomicAttr, u64) -> c_int,
        query_collective: unsafe extern "C" fn(*mut FidDomain, u32, *mut c_void, u64) -> c_int,
        endpoint2: unsafe extern "C" fn(
            *mut FidDomain, *mut FiInfo, *mut *mut FidEp, u64, *mut c_void,
        ) -> c_int,
        + since (2, 6) {
            xpu_ctx: unsafe extern "C" fn(
                *mut FidDomain, *mut c_void, *mut *mut c_void, *mut c_void,
            ) -> c_int,
        }
    }

    struct FiOpsMr = "struct fi_ops_mr", 32 bytes {
        size: usize,
        reg: unsafe extern "C" fn(
            *mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void,
        ) -> c_int,
        regv: unsafe extern "C" fn(
            *mut Fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void,
        ) -> c_int,
        regattr: unsafe extern "C" fn(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int,
    }

    struct FiMrAttr = "struct fi_mr_attr", 80 bytes {
        mr_iov: *const iovec,
        iov_count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        context: *mut c_void,
        auth_key_size: usize,
        auth_key: *mut u8,
        iface: u32,
        device: u64,
    }

    struct FidMr = "struct fid_mr", 40 bytes {
        fid: Fid,
        mem_desc: *mut c_void,
        key: u64,
    }

    struct FiAvAttr = "struct fi_av_attr", 48 bytes {
        r#type: u32,
        rx_ctx_bits: c_int,
        count: usize,
        ep_per_node: usize,
        name: *const c_char,
        map_addr: *mut c_void,
        flags: u64,
    }

    struct FidAv = "struct fid_av", 32 bytes {
        fid: Fid,
        ops: *const FiOpsAv,
    }

    struct FiOpsAv = "struct fi_ops_av", 96 bytes {
        size: usize,
        insert: unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
        insertsvc: unsafe extern "C" fn(
            *mut FidAv, *const c_char, *const c_char, *mut u64, u64, *mut c_void,
        ) -> c_int,
        insertsym: unsafe extern "C" fn(
            *mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, *mut c_void,
        ) -> c_int,
        remove: unsafe extern "C" fn(*mut FidAv, *mut u64, usize, u64) -> c_int,
        lookup: unsafe extern "C" fn(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int,
        straddr: unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
        av_set: unsafe extern "C" fn(*mut FidAv, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
        + since (1, 20) {
            insert_auth_key: unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64) -> c_int,
            lookup_auth_key: unsafe extern "C" fn(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int,
            set_user_id: unsafe extern "C" fn(*mut FidAv, u64, u64, u64) -> c_int,
        }
        + since (2, 6) {
            lookup2: unsafe extern "C" fn(
                *mut FidAv, u64, *mut c_void, *mut usize, u64, *mut c_void,
            ) -> c_int,
        }
    }
}
