//! Atomic operations: `rdma/fi_atomic.h`. Datatypes and operations are plain numbers here;
//! [`homespun::atomic`] has their enums.

use libc::{c_int, c_void};

use super::c_structs;
use super::endpoint::FidEp;

c_structs! {
    struct FiIoc = "struct fi_ioc", 16 bytes {
        addr: *mut c_void,
        count: usize,
    }

    struct FiRmaIoc = "struct fi_rma_ioc", 24 bytes {
        addr: u64,
        count: usize,
        key: u64,
    }

    struct FiMsgAtomic = "struct fi_msg_atomic", 72 bytes {
        msg_iov: *const FiIoc,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        rma_iov: *const FiRmaIoc,
        rma_iov_count: usize,
        datatype: u32,
        op: u32,
        context: *mut c_void,
        data: u64,
    }

    struct FiMsgFetch = "struct fi_msg_fetch", 24 bytes {
        msg_iov: *mut FiIoc,
        desc: *mut *mut c_void,
        iov_count: usize,
    }

    struct FiMsgCompare = "struct fi_msg_compare", 24 bytes {
        msg_iov: *const FiIoc,
        desc: *mut *mut c_void,
        iov_count: usize,
    }

    struct FiAtomicAttr = "struct fi_atomic_attr", 16 bytes {
        count: usize,
        size: usize,
    }

    struct FiOpsAtomic = "struct fi_ops_atomic", 112 bytes {
        size: usize,
        write: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        writev: unsafe extern "C" fn(
            *mut FidEp, *const FiIoc, *mut *mut c_void, usize, u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgAtomic, u64) -> isize,
        inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64, u32, u32) -> isize,
        readwrite: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64, u32, u32,
            *mut c_void,
        ) -> isize,
        readwritev: unsafe extern "C" fn(
            *mut FidEp, *const FiIoc, *mut *mut c_void, usize, *mut FiIoc, *mut *mut c_void, usize, u64, u64,
            u64, u32, u32, *mut c_void,
        ) -> isize,
        readwritemsg: unsafe extern "C" fn(
            *mut FidEp, *const FiMsgAtomic, *mut FiIoc, *mut *mut c_void, usize, u64,
        ) -> isize,
        compwrite: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void,
            *mut c_void, u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        compwritev: unsafe extern "C" fn(
            *mut FidEp, *const FiIoc, *mut *mut c_void, usize, *const FiIoc, *mut *mut c_void, usize,
            *mut FiIoc, *mut *mut c_void, usize, u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        compwritemsg: unsafe extern "C" fn(
            *mut FidEp, *const FiMsgAtomic, *const FiIoc, *mut *mut c_void, usize, *mut FiIoc,
            *mut *mut c_void, usize, u64,
        ) -> isize,
        writevalid: unsafe extern "C" fn(*mut FidEp, u32, u32, *mut usize) -> c_int,
        readwritevalid: unsafe extern "C" fn(*mut FidEp, u32, u32, *mut usize) -> c_int,
        compwritevalid: unsafe extern "C" fn(*mut FidEp, u32, u32, *mut usize) -> c_int,
    }
}
