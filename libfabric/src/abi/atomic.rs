//! Atomic operations: `rdma/fi_atomic.h`. Segments, messages, data types and operations are opaque so far.

use libc::{c_int, c_void};

use super::c_structs;
use super::endpoint::FidEp;

c_structs! {
    struct FiOpsAtomic = "struct fi_ops_atomic", 112 bytes {
        size: usize,
        write: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        writev: unsafe extern "C" fn(
            *mut FidEp, *const c_void, *mut *mut c_void, usize, u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        writemsg: unsafe extern "C" fn(*mut FidEp, *const c_void, u64) -> isize,
        inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64, u32, u32) -> isize,
        readwrite: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64, u32, u32,
            *mut c_void,
        ) -> isize,
        readwritev: unsafe extern "C" fn(
            *mut FidEp, *const c_void, *mut *mut c_void, usize, *mut c_void, *mut *mut c_void, usize, u64, u64,
            u64, u32, u32, *mut c_void,
        ) -> isize,
        readwritemsg: unsafe extern "C" fn(
            *mut FidEp, *const c_void, *mut c_void, *mut *mut c_void, usize, u64,
        ) -> isize,
        compwrite: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void,
            u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        compwritev: unsafe extern "C" fn(
            *mut FidEp, *const c_void, *mut *mut c_void, usize, *const c_void, *mut *mut c_void, usize,
            *mut c_void, *mut *mut c_void, usize, u64, u64, u64, u32, u32, *mut c_void,
        ) -> isize,
        compwritemsg: unsafe extern "C" fn(
            *mut FidEp, *const c_void, *const c_void, *mut *mut c_void, usize, *mut c_void, *mut *mut c_void,
            usize, u64,
        ) -> isize,
        writevalid: unsafe extern "C" fn(*mut FidEp, u32, u32, *mut usize) -> c_int,
        readwritevalid: unsafe extern "C" fn(*mut FidEp, u32, u32, *mut usize) -> c_int,
        compwritevalid: unsafe extern "C" fn(*mut FidEp, u32, u32, *mut usize) -> c_int,
    }
}
