//! The calls that transfer data, and all their arguments.

use std::array;
use std::ptr;

use homespun_host::abi::atomic::{FiIoc, FiMsgAtomic, FiRmaIoc};
use homespun_host::abi::endpoint::{FiMsg, FidEp};
use homespun_host::abi::rma::{FiMsgRma, FiRmaIov};
use homespun_host::abi::tagged::FiMsgTagged;
use libc::{c_void, iovec};

/// The direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferKind {
    /// From the left to an ordinary receive at the right; the send is probed.
    Send,
    /// From the left to the right; the receive at the right is probed.
    Receive,
    /// From the left to memory at the right.
    Write,
    /// From memory at the right to the left.
    Read,
}

/// The functions in `struct fi_ops_msg` and the other vtables for data transfers.
pub(super) const CALLS: [(TransferKind, &str); 4] = [
    (TransferKind::Receive, "fi_recv fi_recvv fi_recvmsg fi_trecv fi_trecvv fi_trecvmsg"),
    (
        TransferKind::Send,
        "fi_send fi_sendv fi_sendmsg fi_inject fi_senddata fi_injectdata \
         fi_tsend fi_tsendv fi_tsendmsg fi_tinject fi_tsenddata fi_tinjectdata",
    ),
    (
        TransferKind::Write,
        "fi_write fi_writev fi_writemsg fi_inject_write fi_writedata fi_inject_writedata \
         fi_atomic fi_atomicv fi_atomicmsg fi_inject_atomic",
    ),
    (
        TransferKind::Read,
        "fi_read fi_readv fi_readmsg fi_fetch_atomic fi_fetch_atomicv fi_fetch_atomicmsg \
         fi_compare_atomic fi_compare_atomicv fi_compare_atomicmsg",
    ),
];

pub(super) fn is_tagged(call: &str) -> bool {
    call.starts_with("fi_t")
}

pub(super) fn is_atomic(call: &str) -> bool {
    call.contains("atomic")
}

pub(super) fn is_one_sided(call: &str) -> bool {
    is_atomic(call) || call.contains("read") || call.contains("write")
}

pub(super) fn is_compare(call: &str) -> bool {
    call.contains("compare")
}

pub(super) fn is_inject(call: &str) -> bool {
    call.contains("inject")
}

pub(super) fn takes_flags(call: &str) -> bool {
    call.ends_with("msg")
}

pub(super) fn takes_vector(call: &str) -> bool {
    call.ends_with('v') && !call.ends_with("recv") || call.ends_with("recvv") || takes_flags(call)
}

/// All arguments of all calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallArguments {
    pub(super) buf: *mut u8,
    /// The length in bytes; for atomics, in elements of 8 bytes.
    pub(super) len: usize,
    pub(super) desc: *mut c_void,
    pub(super) has_descs: bool,
    pub(super) has_vector: bool,
    pub(super) vector_count: usize,
    pub(super) rma_count: usize,
    pub(super) has_rma_vector: bool,
    pub(super) has_message: bool,
    pub(super) addr: u64,
    pub(super) tag: u64,
    pub(super) ignore: u64,
    pub(super) data: u64,
    pub(super) context: *mut c_void,
    pub(super) flags: u64,
    pub(super) remote: u64,
    pub(super) key: u64,
    pub(super) result: *mut u8,
    pub(super) has_result_vector: bool,
    pub(super) compare: *mut u8,
    pub(super) datatype: u32,
    pub(super) op: u32,
}

/// Dereferences a pointer to a vtable. For a null pointer, raises the signal that a C program would get.
fn deref_vtable<'a, T>(table: *const T) -> &'a T {
    if table.is_null() {
        unsafe { libc::raise(libc::SIGSEGV) };
    }
    unsafe { &*table }
}

/// The pointer, or null.
fn shown<T>(is_shown: bool, pointer: *const T) -> *const T {
    if is_shown { pointer } else { ptr::null() }
}

pub(super) unsafe fn make_call(call: &str, ep: *mut FidEp, a: &CallArguments) -> isize {
    let CallArguments {
        len, desc, addr, tag, ignore, data, context, flags, remote, key, datatype, op, ..
    } = *a;
    let (buf, result, compare) =
        (a.buf.cast::<c_void>(), a.result.cast::<c_void>(), a.compare.cast::<c_void>());
    let (n, rma_iov_count) = (a.vector_count, a.rma_count);
    // The vectors are long enough for every count that a probe uses.
    let mut descs = [desc; 64];
    let descs = if a.has_descs { descs.as_mut_ptr() } else { ptr::null_mut() };
    let (each, remote_each) = (len / n.clamp(1, 64), len / rma_iov_count.clamp(1, 64));
    let unit = if is_atomic(call) { 8 } else { 1 };
    let place = |base: *mut u8, index: usize| {
        if base.is_null() { base } else { base.wrapping_add(each.wrapping_mul(index * unit)) }
    };
    let remote_place = |index: usize| remote.wrapping_add(remote_each.wrapping_mul(index * unit) as u64);
    let iov = array::from_fn::<_, 64, _>(|i| iovec { iov_base: place(a.buf, i).cast(), iov_len: each });
    let ioc = |base| array::from_fn::<_, 64, _>(|i| FiIoc { addr: place(base, i).cast(), count: each });
    let rma = array::from_fn::<_, 64, _>(|i| FiRmaIov { addr: remote_place(i), len: remote_each, key });
    let rma_iocs =
        array::from_fn::<_, 64, _>(|i| FiRmaIoc { addr: remote_place(i), count: remote_each, key });
    let (operands, results, compares) = (ioc(a.buf), ioc(a.result), ioc(a.compare));
    let (iov, operands) = (shown(a.has_vector, iov.as_ptr()), shown(a.has_vector, operands.as_ptr()));
    let compares = compares.as_ptr();
    let results = if a.has_result_vector { results.as_ptr().cast_mut() } else { ptr::null_mut() };
    let rma_iov = shown(a.has_rma_vector, rma.as_ptr());
    let message = FiMsg { msg_iov: iov, desc: descs, iov_count: n, addr, context, data };
    let tagged = FiMsgTagged { msg_iov: iov, desc: descs, iov_count: n, addr, tag, ignore, context, data };
    let access =
        FiMsgRma { msg_iov: iov, desc: descs, iov_count: n, addr, rma_iov, rma_iov_count, context, data };
    let atomic = FiMsgAtomic {
        msg_iov: operands,
        desc: descs,
        iov_count: n,
        addr,
        rma_iov: shown(a.has_rma_vector, rma_iocs.as_ptr()),
        rma_iov_count,
        datatype,
        op,
        context,
        data,
    };
    let message = shown(a.has_message, &raw const message);
    let tagged = shown(a.has_message, &raw const tagged);
    let access = shown(a.has_message, &raw const access);
    let atomic = shown(a.has_message, &raw const atomic);
    unsafe {
        let msg = || deref_vtable((*ep).msg);
        let tagged_ops = || deref_vtable((*ep).tagged);
        let rma_ops = || deref_vtable((*ep).rma);
        let atomic_ops = || deref_vtable((*ep).atomic);
        match call {
            "fi_recv" => (msg().recv)(ep, buf, len, desc, addr, context),
            "fi_recvv" => (msg().recvv)(ep, iov, descs, n, addr, context),
            "fi_recvmsg" => (msg().recvmsg)(ep, message, flags),
            "fi_send" => (msg().send)(ep, buf, len, desc, addr, context),
            "fi_sendv" => (msg().sendv)(ep, iov, descs, n, addr, context),
            "fi_sendmsg" => (msg().sendmsg)(ep, message, flags),
            "fi_inject" => (msg().inject)(ep, buf, len, addr),
            "fi_senddata" => (msg().senddata)(ep, buf, len, desc, data, addr, context),
            "fi_injectdata" => (msg().injectdata)(ep, buf, len, data, addr),
            "fi_trecv" => (tagged_ops().recv)(ep, buf, len, desc, addr, tag, ignore, context),
            "fi_trecvv" => (tagged_ops().recvv)(ep, iov, descs, n, addr, tag, ignore, context),
            "fi_trecvmsg" => (tagged_ops().recvmsg)(ep, tagged, flags),
            "fi_tsend" => (tagged_ops().send)(ep, buf, len, desc, addr, tag, context),
            "fi_tsendv" => (tagged_ops().sendv)(ep, iov, descs, n, addr, tag, context),
            "fi_tsendmsg" => (tagged_ops().sendmsg)(ep, tagged, flags),
            "fi_tinject" => (tagged_ops().inject)(ep, buf, len, addr, tag),
            "fi_tsenddata" => (tagged_ops().senddata)(ep, buf, len, desc, data, addr, tag, context),
            "fi_tinjectdata" => (tagged_ops().injectdata)(ep, buf, len, data, addr, tag),
            "fi_read" => (rma_ops().read)(ep, buf, len, desc, addr, remote, key, context),
            "fi_readv" => (rma_ops().readv)(ep, iov, descs, n, addr, remote, key, context),
            "fi_readmsg" => (rma_ops().readmsg)(ep, access, flags),
            "fi_write" => (rma_ops().write)(ep, buf, len, desc, addr, remote, key, context),
            "fi_writev" => (rma_ops().writev)(ep, iov, descs, n, addr, remote, key, context),
            "fi_writemsg" => (rma_ops().writemsg)(ep, access, flags),
            "fi_inject_write" => (rma_ops().inject)(ep, buf, len, addr, remote, key),
            "fi_writedata" => (rma_ops().writedata)(ep, buf, len, desc, data, addr, remote, key, context),
            "fi_inject_writedata" => (rma_ops().injectdata)(ep, buf, len, data, addr, remote, key),
            "fi_atomic" => (atomic_ops().write)(ep, buf, len, desc, addr, remote, key, datatype, op, context),
            "fi_atomicv" => {
                (atomic_ops().writev)(ep, operands, descs, n, addr, remote, key, datatype, op, context)
            }
            "fi_atomicmsg" => (atomic_ops().writemsg)(ep, atomic, flags),
            "fi_inject_atomic" => (atomic_ops().inject)(ep, buf, len, addr, remote, key, datatype, op),
            "fi_fetch_atomic" => (atomic_ops().readwrite)(
                ep, buf, len, desc, result, desc, addr, remote, key, datatype, op, context,
            ),
            "fi_fetch_atomicv" => (atomic_ops().readwritev)(
                ep, operands, descs, n, results, descs, n, addr, remote, key, datatype, op, context,
            ),
            "fi_fetch_atomicmsg" => (atomic_ops().readwritemsg)(ep, atomic, results, descs, n, flags),
            "fi_compare_atomic" => (atomic_ops().compwrite)(
                ep, buf, len, desc, compare, desc, result, desc, addr, remote, key, datatype, op, context,
            ),
            "fi_compare_atomicv" => (atomic_ops().compwritev)(
                ep, operands, descs, n, compares, descs, n, results, descs, n, addr, remote, key, datatype,
                op, context,
            ),
            "fi_compare_atomicmsg" => {
                (atomic_ops().compwritemsg)(ep, atomic, compares, descs, n, results, descs, n, flags)
            }
            _ => unreachable!("no such call"),
        }
    }
}
