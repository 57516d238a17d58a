//! Event queues, completion queues, counters and waiting: `rdma/fi_eq.h`.

use libc::{c_char, c_int, c_void, pthread_cond_t, pthread_mutex_t};

use super::c_structs;
use super::fid::Fid;
use super::info::FiInfo;

c_structs! {
    struct FiWaitAttr = "struct fi_wait_attr", 16 bytes {
        wait_obj: u32,
        flags: u64,
    }

    struct FiMutexCond = "struct fi_mutex_cond", 16 bytes {
        mutex: *mut pthread_mutex_t,
        cond: *mut pthread_cond_t,
    }

    struct FidWait = "struct fid_wait", 32 bytes {
        fid: Fid,
        ops: *const FiOpsWait,
    }

    struct FiOpsWait = "struct fi_ops_wait", 16 bytes {
        size: usize,
        wait: unsafe extern "C" fn(*mut FidWait, c_int) -> c_int,
    }

    struct FiPollAttr = "struct fi_poll_attr", 8 bytes {
        flags: u64,
    }

    struct FidPoll = "struct fid_poll", 32 bytes {
        fid: Fid,
        ops: *const FiOpsPoll,
    }

    struct FiOpsPoll = "struct fi_ops_poll", 32 bytes {
        size: usize,
        poll: unsafe extern "C" fn(*mut FidPoll, *mut *mut c_void, c_int) -> c_int,
        poll_add: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int,
        poll_del: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int,
    }

    struct FiEqAttr = "struct fi_eq_attr", 32 bytes {
        size: usize,
        flags: u64,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_set: *mut FidWait,
    }

    struct FiEqEntry = "struct fi_eq_entry", 24 bytes {
        fid: *mut Fid,
        context: *mut c_void,
        data: u64,
    }

    struct FiEqCmEntry = "struct fi_eq_cm_entry", 16 bytes {
        fid: *mut Fid,
        info: *mut FiInfo,
    }

    struct FiEqErrEntry = "struct fi_eq_err_entry", 48 bytes {
        fid: *mut Fid,
        context: *mut c_void,
        data: u64,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }

    struct FidEq = "struct fid_eq", 32 bytes {
        fid: Fid,
        ops: *const FiOpsEq,
    }

    struct FiOpsEq = "struct fi_ops_eq", 48 bytes {
        size: usize,
        read: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
        readerr: unsafe extern "C" fn(*mut FidEq, *mut FiEqErrEntry, u64) -> isize,
        write: unsafe extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
        sread: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
        strerror: unsafe extern "C" fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }

    #[derive(Clone, Copy)]
    struct FiCqEntry = "struct fi_cq_entry", 8 bytes {
        op_context: *mut c_void,
    }

    #[derive(Clone, Copy)]
    struct FiCqMsgEntry = "struct fi_cq_msg_entry", 24 bytes {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
    }

    #[derive(Clone, Copy)]
    struct FiCqDataEntry = "struct fi_cq_data_entry", 40 bytes {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
    }

    #[derive(Clone, Copy)]
    struct FiCqTaggedEntry = "struct fi_cq_tagged_entry", 48 bytes {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
    }

    struct FiCqErrEntry = "struct fi_cq_err_entry", 88 bytes {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
        olen: usize,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
        + since (1, 20) {
            src_addr: u64,
        }
    }

    struct FiCqAttr = "struct fi_cq_attr", 40 bytes {
        size: usize,
        flags: u64,
        format: u32,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_cond: u32,
        wait_set: *mut FidWait,
    }

    struct FidCq = "struct fid_cq", 32 bytes {
        fid: Fid,
        ops: *const FiOpsCq,
    }

    struct FiOpsCq = "struct fi_ops_cq", 72 bytes {
        size: usize,
        read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
        readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut u64) -> isize,
        readerr: unsafe extern "C" fn(*mut FidCq, *mut FiCqErrEntry, u64) -> isize,
        sread: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
        sreadfrom: unsafe extern "C" fn(
            *mut FidCq, *mut c_void, usize, *mut u64, *const c_void, c_int,
        ) -> isize,
        signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
        strerror: unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
        + since (2, 6) {
            export_xpu: unsafe extern "C" fn(*mut FidCq, u64, *mut c_void) -> c_int,
        }
    }

    struct FiCntrAttr = "struct fi_cntr_attr", 24 bytes {
        events: u32,
        wait_obj: u32,
        wait_set: *mut FidWait,
        flags: u64,
    }

    struct FidCntr = "struct fid_cntr", 32 bytes {
        fid: Fid,
        ops: *const FiOpsCntr,
    }

    struct FiOpsCntr = "struct fi_ops_cntr", 72 bytes {
        size: usize,
        read: unsafe extern "C" fn(*mut FidCntr) -> u64,
        readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
        add: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
        set: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
        wait: unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
        adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
        seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
        + since (2, 6) {
            export_xpu: unsafe extern "C" fn(*mut FidCntr, u64, *mut c_void) -> c_int,
        }
    }
}
