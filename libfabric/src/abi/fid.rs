//! Objects in general: `rdma/fabric.h`.

use libc::{c_char, c_int, c_void};

use super::c_structs;

c_structs! {
    struct Fid = "struct fid", 24 bytes {
        fclass: usize,
        context: *mut c_void,
        ops: *const FiOps,
    }

    struct FiOps = "struct fi_ops", 56 bytes {
        size: usize,
        close: unsafe extern "C" fn(*mut Fid) -> c_int,
        bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
        control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
        ops_open: unsafe extern "C" fn(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
        tostr: unsafe extern "C" fn(*const Fid, *mut c_char, usize) -> c_int,
        ops_set: unsafe extern "C" fn(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
    }

    struct FiAlias = "struct fi_alias", 16 bytes {
        fid: *mut *mut Fid,
        flags: u64,
    }
}
