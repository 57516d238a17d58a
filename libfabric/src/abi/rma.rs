//! One-sided reads and writes: `rdma/fi_rma.h`.

use libc::{c_void, iovec};

use super::c_structs;
use super::endpoint::FidEp;

c_structs! {
    struct FiRmaIov = "struct fi_rma_iov", 24 bytes {
        addr: u64,
        len: usize,
        key: u64,
    }

    struct FiMsgRma = "struct fi_msg_rma", 64 bytes {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        rma_iov: *const FiRmaIov,
        rma_iov_count: usize,
        context: *mut c_void,
        data: u64,
    }

    struct FiOpsRma = "struct fi_ops_rma", 80 bytes {
        size: usize,
        read: unsafe extern "C" fn(
            *mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void,
        ) -> isize,
        readv: unsafe extern "C" fn(
            *mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void,
        ) -> isize,
        readmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
        write: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void,
        ) -> isize,
        writev: unsafe extern "C" fn(
            *mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void,
        ) -> isize,
        writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
        inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize,
        writedata: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, u64, *mut c_void,
        ) -> isize,
        injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64, u64) -> isize,
    }
}
