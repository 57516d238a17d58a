//! homespun's own extensions: `include/homespun.h`.

use libc::{c_int, c_void};

use super::c_structs;
use super::domain::{FidDomain, FidMr};

c_structs! {
    struct HomespunMemoryOps = "struct homespun_memory_ops", 16 bytes {
        size: usize,
        reg: unsafe extern "C" fn(
            *mut FidDomain, usize, u64, u64, u64, *mut *mut c_void, *mut *mut FidMr, *mut c_void,
        ) -> c_int,
    }
}
