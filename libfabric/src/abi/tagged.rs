//! Tagged messages: `rdma/fi_tagged.h`.

use libc::{c_void, iovec};

use super::c_structs;
use super::endpoint::FidEp;

c_structs! {
    struct FiMsgTagged = "struct fi_msg_tagged", 64 bytes {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
        data: u64,
    }

    struct FiOpsTagged = "struct fi_ops_tagged", 80 bytes {
        size: usize,
        recv: unsafe extern "C" fn(
            *mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void,
        ) -> isize,
        recvv: unsafe extern "C" fn(
            *mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void,
        ) -> isize,
        recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
        send: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, *mut c_void,
        ) -> isize,
        sendv: unsafe extern "C" fn(
            *mut FidEp, *const iovec, *mut *mut c_void, usize, u64, u64, *mut c_void,
        ) -> isize,
        sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
        inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64) -> isize,
        senddata: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void,
        ) -> isize,
        injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize,
    }
}
