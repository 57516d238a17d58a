//! The structures of libibverbs that librpma's interface has: `struct ibv_wc`, and `struct ibv_context` with
//! its device. Their layouts are part of the interface of libibverbs.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr;

use libc::{c_char, c_int, c_void};

/// `struct ibv_wc`: a completion.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct IbvWc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// In network byte order.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

const _: () = {
    assert!(size_of::<IbvWc>() == 48);
    assert!(offset_of!(IbvWc, wr_id) == 0);
    assert!(offset_of!(IbvWc, status) == 8);
    assert!(offset_of!(IbvWc, opcode) == 12);
    assert!(offset_of!(IbvWc, vendor_err) == 16);
    assert!(offset_of!(IbvWc, byte_len) == 20);
    assert!(offset_of!(IbvWc, imm_data) == 24);
    assert!(offset_of!(IbvWc, qp_num) == 28);
    assert!(offset_of!(IbvWc, src_qp) == 32);
    assert!(offset_of!(IbvWc, wc_flags) == 36);
    assert!(offset_of!(IbvWc, pkey_index) == 40);
    assert!(offset_of!(IbvWc, slid) == 42);
    assert!(offset_of!(IbvWc, sl) == 44);
    assert!(offset_of!(IbvWc, dlid_path_bits) == 45);
};

/// `enum ibv_wc_opcode`.
pub(crate) mod opcode {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const RDMA_WRITE: u32 = 1;
    pub(crate) const RDMA_READ: u32 = 2;
    pub(crate) const RECV: u32 = 128;
    pub(crate) const RECV_RDMA_WITH_IMM: u32 = 129;
}

/// `struct ibv_context`: a device, which is none. Its operations fail with ENOSYS.
#[repr(C)]
pub(crate) struct IbvContext {
    device: *const IbvDevice,
    ops: Ops,
    cmd_fd: c_int,
    async_fd: c_int,
    num_comp_vectors: c_int,
    /// A mutex of the C library in its first state.
    mutex: UnsafeCell<[u64; 5]>,
    abi_compat: *mut c_void,
}

const _: () = {
    assert!(size_of::<IbvContext>() == 328);
    assert!(offset_of!(IbvContext, device) == 0);
    assert!(offset_of!(IbvContext, ops) == 8);
    assert!(offset_of!(IbvContext, cmd_fd) == 264);
    assert!(offset_of!(IbvContext, async_fd) == 268);
    assert!(offset_of!(IbvContext, num_comp_vectors) == 272);
    assert!(offset_of!(IbvContext, mutex) == 280);
    assert!(offset_of!(IbvContext, abi_compat) == 320);
    assert!(size_of::<libc::pthread_mutex_t>() == 40);
};

/// `struct ibv_context_ops`: 32 functions. The operations of other kinds than these two were moved to
/// functions of libibverbs long ago, and are null.
#[repr(C)]
struct Ops {
    obsolete: [Option<Operation>; 7],
    alloc_mw: Operation,
    bind_mw: Operation,
    dealloc_mw: Operation,
    obsolete_create_cq: Option<Operation>,
    poll_cq: Operation,
    req_notify_cq: Operation,
    obsolete_of_queues: [Option<Operation>; 7],
    post_srq_recv: Operation,
    obsolete_of_queue_pairs: [Option<Operation>; 4],
    post_send: Operation,
    post_recv: Operation,
    obsolete_last: [Option<Operation>; 5],
}

const _: () = {
    assert!(size_of::<Ops>() == 256);
    assert!(offset_of!(Ops, alloc_mw) == 56);
    assert!(offset_of!(Ops, bind_mw) == 64);
    assert!(offset_of!(Ops, dealloc_mw) == 72);
    assert!(offset_of!(Ops, poll_cq) == 88);
    assert!(offset_of!(Ops, req_notify_cq) == 96);
    assert!(offset_of!(Ops, post_srq_recv) == 160);
    assert!(offset_of!(Ops, post_send) == 200);
    assert!(offset_of!(Ops, post_recv) == 208);
};

/// A function whose arguments, which differ, are not read.
type Operation = extern "C" fn() -> isize;

/// Returns an error number, as most operations do.
extern "C" fn unsupported() -> isize {
    set_enosys();
    libc::ENOSYS as isize
}

/// Returns no memory window.
extern "C" fn no_window() -> isize {
    set_enosys();
    0
}

/// Returns no number of completions: a positive number would be one.
extern "C" fn no_completions() -> isize {
    set_enosys();
    -1
}

fn set_enosys() {
    // SAFETY: the C library returns the place of this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

/// `struct ibv_device`.
#[repr(C)]
struct IbvDevice {
    ops: [*const c_void; 2],
    node_type: c_int,
    transport_type: c_int,
    name: [u8; 64],
    dev_name: [u8; 64],
    dev_path: [u8; 256],
    ibdev_path: [u8; 256],
}

const _: () = {
    assert!(size_of::<IbvDevice>() == 664);
    assert!(offset_of!(IbvDevice, node_type) == 16);
    assert!(offset_of!(IbvDevice, transport_type) == 20);
    assert!(offset_of!(IbvDevice, name) == 24);
    assert!(offset_of!(IbvDevice, dev_name) == 88);
    assert!(offset_of!(IbvDevice, dev_path) == 152);
    assert!(offset_of!(IbvDevice, ibdev_path) == 408);
};

// SAFETY: nothing changes it, and its pointers are null.
unsafe impl Sync for IbvDevice {}

/// A channel adapter of InfiniBand.
static DEVICE: IbvDevice = IbvDevice {
    ops: [ptr::null(); 2],
    node_type: 1,
    transport_type: 0,
    name: padded(b"homespun"),
    dev_name: padded(b"homespun"),
    dev_path: [0; 256],
    ibdev_path: [0; 256],
};

const fn padded(text: &[u8]) -> [u8; 64] {
    let mut padded = [0; 64];
    let mut index = 0;
    while index < text.len() {
        padded[index] = text[index];
        index += 1;
    }
    padded
}

// SAFETY: this library reads only its address. What C code may change, the mutex, is in a cell.
unsafe impl Sync for IbvContext {}

impl IbvContext {
    pub(crate) const fn new() -> IbvContext {
        IbvContext {
            device: &raw const DEVICE,
            ops: Ops {
                obsolete: [None; 7],
                alloc_mw: no_window,
                bind_mw: unsupported,
                dealloc_mw: unsupported,
                obsolete_create_cq: None,
                poll_cq: no_completions,
                req_notify_cq: unsupported,
                obsolete_of_queues: [None; 7],
                post_srq_recv: unsupported,
                obsolete_of_queue_pairs: [None; 4],
                post_send: unsupported,
                post_recv: unsupported,
                obsolete_last: [None; 5],
            },
            cmd_fd: -1,
            async_fd: -1,
            num_comp_vectors: 1,
            mutex: UnsafeCell::new([0; 5]),
            abi_compat: ptr::null_mut(),
        }
    }
}

/// `ibv_wc_status_str(3)`, for programs that use nothing else of libibverbs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    let text = match status {
        0 => c"success",
        1 => c"the message was longer than the memory of its receive",
        2 => c"local error of the queue pair",
        3 => c"local error of the end-to-end context",
        4 => c"the local memory could not be accessed",
        5 => c"flushed: an earlier operation failed, or the connection has ended",
        6 => c"a memory window could not be bound",
        7 => c"unexpected response",
        8 => c"the local memory does not allow the access",
        9 => c"the peer does not support the request",
        10 => c"the peer refused the access to its memory",
        11 => c"the peer could not carry out the operation",
        12 => c"the peer did not answer",
        13 => c"the peer had no receive",
        14 => c"violation of a local reliable datagram domain",
        15 => c"invalid request for a reliable datagram",
        16 => c"the peer aborted the operation",
        17 => c"invalid number of an end-to-end context",
        18 => c"invalid state of an end-to-end context",
        19 => c"fatal error",
        20 => c"the response took too long",
        21 => c"general error",
        22 => c"tag matching failed",
        23 => c"the rendezvous of a tagged message is incomplete",
        _ => c"unknown status",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn every_status_has_a_text_of_its_own() {
        // SAFETY: the texts are static.
        let text = |status| unsafe { CStr::from_ptr(ibv_wc_status_str(status)) };
        for status in 0..24 {
            assert_ne!(text(status), c"unknown status", "{status}");
            assert!((0..status).all(|other| text(other) != text(status)), "{status}");
        }
        assert_eq!((text(-1), text(24)), (c"unknown status", c"unknown status"));
    }
}
