//! Triggered operations and deferred work: `rdma/fi_trigger.h`.

use libc::c_void;

use super::atomic::{FiMsgAtomic, FiMsgCompare, FiMsgFetch};
use super::c_structs;
use super::endpoint::{FiMsg, FidEp};
use super::eq::FidCntr;
use super::rma::FiMsgRma;
use super::tagged::FiMsgTagged;

/// The union in a triggered context. Rust declares it as a structure: the union's member for a
/// threshold, then padding up to the size of the union.
#[derive(Debug)]
#[repr(C)]
pub struct FiTriggerDetails {
    pub threshold: FiTriggerThreshold,
    pub internal: *mut c_void,
}

c_structs! {
    struct FiTriggerThreshold = "struct fi_trigger_threshold", 16 bytes {
        cntr: *mut FidCntr,
        threshold: usize,
    }

    struct FiTriggeredContext = "struct fi_triggered_context", 32 bytes {
        event_type: u32,
        trigger: FiTriggerDetails,
    }

    struct FiContext2 = "struct fi_context2", 64 bytes {
        internal: [*mut c_void; 8],
    }

    struct FiOpMsg = "struct fi_op_msg", 64 bytes {
        ep: *mut FidEp,
        msg: FiMsg,
        flags: u64,
    }

    struct FiOpTagged = "struct fi_op_tagged", 80 bytes {
        ep: *mut FidEp,
        msg: FiMsgTagged,
        flags: u64,
    }

    struct FiOpRma = "struct fi_op_rma", 80 bytes {
        ep: *mut FidEp,
        msg: FiMsgRma,
        flags: u64,
    }

    struct FiOpAtomic = "struct fi_op_atomic", 88 bytes {
        ep: *mut FidEp,
        msg: FiMsgAtomic,
        flags: u64,
    }

    struct FiOpFetchAtomic = "struct fi_op_fetch_atomic", 112 bytes {
        ep: *mut FidEp,
        msg: FiMsgAtomic,
        fetch: FiMsgFetch,
        flags: u64,
    }

    struct FiOpCompareAtomic = "struct fi_op_compare_atomic", 136 bytes {
        ep: *mut FidEp,
        msg: FiMsgAtomic,
        fetch: FiMsgFetch,
        compare: FiMsgCompare,
        flags: u64,
    }

    struct FiOpCntr = "struct fi_op_cntr", 16 bytes {
        cntr: *mut FidCntr,
        value: u64,
    }

    struct FiDeferredWork = "struct fi_deferred_work", 104 bytes {
        context: FiContext2,
        threshold: u64,
        triggering_cntr: *mut FidCntr,
        completion_cntr: *mut FidCntr,
        op_type: u32,
        // A union of pointers, one for each of the structures above.
        op: *mut c_void,
    }
}
