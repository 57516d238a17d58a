//! Collective operations: `rdma/fi_collective.h`. Messages, data types and operations are opaque so far.

use libc::c_void;

use super::c_structs;
use super::endpoint::FidEp;

c_structs! {
    struct FiOpsCollective = "struct fi_ops_collective", 96 bytes {
        size: usize,
        barrier: unsafe extern "C" fn(*mut FidEp, u64, *mut c_void) -> isize,
        broadcast: unsafe extern "C" fn(
            *mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, u32, u64, *mut c_void,
        ) -> isize,
        alltoall: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u32, u64,
            *mut c_void,
        ) -> isize,
        allreduce: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u32, u32, u64,
            *mut c_void,
        ) -> isize,
        allgather: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u32, u64,
            *mut c_void,
        ) -> isize,
        reduce_scatter: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u32, u32, u64,
            *mut c_void,
        ) -> isize,
        reduce: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u32, u32, u64,
            *mut c_void,
        ) -> isize,
        scatter: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u32, u64,
            *mut c_void,
        ) -> isize,
        gather: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u32, u64,
            *mut c_void,
        ) -> isize,
        msg: unsafe extern "C" fn(
            *mut FidEp, *const c_void, *mut c_void, *mut *mut c_void, usize, u64,
        ) -> isize,
        barrier2: unsafe extern "C" fn(*mut FidEp, u64, u64, *mut c_void) -> isize,
    }
}
