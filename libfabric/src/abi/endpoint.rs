//! Endpoints, their connections and untagged messages: `rdma/fi_endpoint.h` and `rdma/fi_cm.h`.

use libc::{c_int, c_void, iovec};

use super::atomic::FiOpsAtomic;
use super::c_structs;
use super::collective::FiOpsCollective;
use super::fid::Fid;
use super::info::{FiRxAttr, FiTxAttr};
use super::rma::FiOpsRma;
use super::tagged::FiOpsTagged;

c_structs! {
    struct FidEp = "struct fid_ep", 80 bytes {
        fid: Fid,
        ops: *const FiOpsEp,
        cm: *const FiOpsCm,
        msg: *const FiOpsMsg,
        rma: *const FiOpsRma,
        tagged: *const FiOpsTagged,
        atomic: *const FiOpsAtomic,
        collective: *const FiOpsCollective,
    }

    struct FiOpsEp = "struct fi_ops_ep", 72 bytes {
        size: usize,
        cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
        getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
        setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
        tx_ctx: unsafe extern "C" fn(*mut FidEp, c_int, *mut FiTxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
        rx_ctx: unsafe extern "C" fn(*mut FidEp, c_int, *mut FiRxAttr, *mut *mut FidEp, *mut c_void) -> c_int,
        rx_size_left: unsafe extern "C" fn(*mut FidEp) -> isize,
        tx_size_left: unsafe extern "C" fn(*mut FidEp) -> isize,
        + since (2, 6) {
            export_xpu: unsafe extern "C" fn(*mut FidEp, u64, *mut c_void) -> c_int,
        }
    }

    struct FiMsg = "struct fi_msg", 48 bytes {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: usize,
        addr: u64,
        context: *mut c_void,
        data: u64,
    }

    struct FiOpsMsg = "struct fi_ops_msg", 80 bytes {
        size: usize,
        recv: unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
        recvv: unsafe extern "C" fn(
            *mut FidEp, *const iovec, *mut *mut c_void, usize, u64, *mut c_void,
        ) -> isize,
        recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
        send: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
        sendv: unsafe extern "C" fn(
            *mut FidEp, *const iovec, *mut *mut c_void, usize, u64, *mut c_void,
        ) -> isize,
        sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
        inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64) -> isize,
        senddata: unsafe extern "C" fn(
            *mut FidEp, *const c_void, usize, *mut c_void, u64, u64, *mut c_void,
        ) -> isize,
        injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64) -> isize,
    }

    struct FiOpsCm = "struct fi_ops_cm", 80 bytes {
        size: usize,
        setname: unsafe extern "C" fn(*mut Fid, *mut c_void, usize) -> c_int,
        getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
        getpeer: unsafe extern "C" fn(*mut FidEp, *mut c_void, *mut usize) -> c_int,
        connect: unsafe extern "C" fn(*mut FidEp, *const c_void, *const c_void, usize) -> c_int,
        listen: unsafe extern "C" fn(*mut FidPep) -> c_int,
        accept: unsafe extern "C" fn(*mut FidEp, *const c_void, usize) -> c_int,
        reject: unsafe extern "C" fn(*mut FidPep, *mut Fid, *const c_void, usize) -> c_int,
        shutdown: unsafe extern "C" fn(*mut FidEp, u64) -> c_int,
        join: unsafe extern "C" fn(*mut FidEp, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int,
    }

    struct FidPep = "struct fid_pep", 40 bytes {
        fid: Fid,
        ops: *const FiOpsEp,
        cm: *const FiOpsCm,
    }

    struct FidStx = "struct fid_stx", 32 bytes {
        fid: Fid,
        ops: *const FiOpsEp,
    }
}
