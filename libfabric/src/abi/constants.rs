//! The constants that belong to none of the flag types of [`homespun::flags`].

/// Declares constants of the C interface and lists them for the test of layouts.
macro_rules! c_constants {
    ($($group:literal: $ty:ty { $($name:ident = $value:expr,)* })*) => {
        $($(pub const $name: $ty = $value;)*)*

        /// Every constant of this module by its C name.
        pub const CONSTANTS: &[(&str, u64)] = &[$($((stringify!($name), $name as u64),)*)*];
    };
}

c_constants! {
    "the class of an object": usize {
        FI_CLASS_FABRIC = 1,
        FI_CLASS_DOMAIN = 2,
        FI_CLASS_EP = 3,
        FI_CLASS_SRX_CTX = 6,
        FI_CLASS_STX_CTX = 8,
        FI_CLASS_PEP = 9,
        FI_CLASS_AV = 11,
        FI_CLASS_MR = 12,
        FI_CLASS_EQ = 13,
        FI_CLASS_CQ = 14,
        FI_CLASS_CNTR = 15,
        FI_CLASS_WAIT = 16,
        FI_CLASS_POLL = 17,
        FI_CLASS_CONNREQ = 18,
    }
    "the commands of fi_control": libc::c_int {
        FI_GETOPSFLAG = 2,
        FI_SETOPSFLAG = 3,
        FI_ALIAS = 4,
        FI_GETWAIT = 5,
        FI_ENABLE = 6,
        FI_BACKLOG = 7,
        FI_GET_RAW_MR = 8,
        FI_MAP_RAW_MR = 9,
        FI_UNMAP_KEY = 10,
        FI_QUEUE_WORK = 11,
        FI_CANCEL_WORK = 12,
        FI_FLUSH_WORK = 13,
        FI_REFRESH = 14,
        FI_GETWAITOBJ = 16,
    }
    "levels of options, and the options of an endpoint": libc::c_int {
        FI_OPT_ENDPOINT = 0,
        FI_OPT_MIN_MULTI_RECV = 0,
        FI_OPT_CM_DATA_SIZE = 1,
    }
    "flags of operations and of binding": u64 {
        FI_TRANSMIT = 1 << 11,
        FI_RECV = 1 << 10,
    }
    "triggers": u32 {
        FI_TRIGGER_THRESHOLD = 0,
    }
    "what deferred work does": u32 {
        FI_OP_RECV = 0,
        FI_OP_SEND = 1,
        FI_OP_TRECV = 2,
        FI_OP_TSEND = 3,
        FI_OP_READ = 4,
        FI_OP_WRITE = 5,
        FI_OP_ATOMIC = 6,
        FI_OP_FETCH_ATOMIC = 7,
        FI_OP_COMPARE_ATOMIC = 8,
        FI_OP_CNTR_SET = 9,
        FI_OP_CNTR_ADD = 10,
    }
    "events": u32 {
        FI_CONNREQ = 1,
        FI_CONNECTED = 2,
        FI_SHUTDOWN = 3,
    }
    "flags of one kind of call": u64 {
        FI_PEEK = 1 << 19,
        FI_AFFINITY = 1 << 29,
        FI_AV_USER_ID = 1 << 41,
        FI_PEER = 1 << 43,
        FI_SYNC_ERR = 1 << 58,
        FI_FETCH_ATOMIC = 1 << 58,
        FI_COMPARE_ATOMIC = 1 << 59,
    }
    "address formats": u32 {
        FI_SOCKADDR = 1,
        FI_SOCKADDR_IN = 2,
        FI_SOCKADDR_IN6 = 3,
    }
    "addresses": u64 {
        FI_ADDR_UNSPEC = u64::MAX,
        FI_ADDR_NOTAVAIL = u64::MAX,
    }
    "formats of completion queues": u32 {
        FI_CQ_FORMAT_UNSPEC = 0,
        FI_CQ_FORMAT_CONTEXT = 1,
        FI_CQ_FORMAT_MSG = 2,
        FI_CQ_FORMAT_DATA = 3,
        FI_CQ_FORMAT_TAGGED = 4,
    }
    "wait objects": u32 {
        FI_WAIT_NONE = 0,
        FI_WAIT_UNSPEC = 1,
        FI_WAIT_SET = 2,
        FI_WAIT_FD = 3,
        FI_WAIT_MUTEX_COND = 4,
        FI_WAIT_YIELD = 5,
        FI_WAIT_POLLFD = 6,
    }
    "what counters count": u32 {
        FI_CNTR_EVENTS_COMP = 0,
    }
    "conditions of waits": u32 {
        FI_CQ_COND_NONE = 0,
        FI_CQ_COND_THRESHOLD = 1,
    }
    "resource management": u32 {
        FI_RM_DISABLED = 1,
        FI_RM_ENABLED = 2,
    }
    "protocols of endpoints": u32 {
        FI_PROTO_SOCK_TCP = 6,
        FI_PROTO_XNET = 25,
    }
    "types of parameters": u32 {
        FI_PARAM_STRING = 0,
    }
    "levels of logging": u32 {
        FI_LOG_WARN = 0,
        FI_LOG_INFO = 2,
        FI_LOG_DEBUG = 3,
    }
    "subsystems of logging": u32 {
        FI_LOG_CORE = 0,
        FI_LOG_FABRIC = 1,
        FI_LOG_DOMAIN = 2,
        FI_LOG_EP_CTRL = 3,
        FI_LOG_EP_DATA = 4,
        FI_LOG_AV = 5,
        FI_LOG_CQ = 6,
        FI_LOG_EQ = 7,
    }
}

/// Packs a version as C code does.
pub const fn fi_version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}
