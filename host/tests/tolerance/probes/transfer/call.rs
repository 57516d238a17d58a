//! The calls that transfer data, and all their arguments.

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

/// Defines the enumeration `Call` of the functions in `struct fi_ops_msg` and the other vtables for data
/// transfers, and the list `CALLS` of their names and kinds.
macro_rules! calls {
    ($($name:ident $text:literal $way:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Call { $($name,)* }
        pub(super) const CALLS: &[(Call, &str, TransferKind)] =
            &[$((Call::$name, $text, TransferKind::$way),)*];
    };
}

calls! {
    Recv "fi_recv" Receive,
    Recvv "fi_recvv" Receive,
    Recvmsg "fi_recvmsg" Receive,
    Send "fi_send" Send,
    Sendv "fi_sendv" Send,
    Sendmsg "fi_sendmsg" Send,
    Inject "fi_inject" Send,
    Senddata "fi_senddata" Send,
    Injectdata "fi_injectdata" Send,
    Trecv "fi_trecv" Receive,
    Trecvv "fi_trecvv" Receive,
    Trecvmsg "fi_trecvmsg" Receive,
    Tsend "fi_tsend" Send,
    Tsendv "fi_tsendv" Send,
    Tsendmsg "fi_tsendmsg" Send,
    Tinject "fi_tinject" Send,
    Tsenddata "fi_tsenddata" Send,
    Tinjectdata "fi_tinjectdata" Send,
    Read "fi_read" Read,
    Readv "fi_readv" Read,
    Readmsg "fi_readmsg" Read,
    Write "fi_write" Write,
    Writev "fi_writev" Write,
    Writemsg "fi_writemsg" Write,
    InjectWrite "fi_inject_write" Write,
    Writedata "fi_writedata" Write,
    InjectWritedata "fi_inject_writedata" Write,
    Atomic "fi_atomic" Write,
    Atomicv "fi_atomicv" Write,
    Atomicmsg "fi_atomicmsg" Write,
    InjectAtomic "fi_inject_atomic" Write,
    FetchAtomic "fi_fetch_atomic" Read,
    FetchAtomicv "fi_fetch_atomicv" Read,
    FetchAtomicmsg "fi_fetch_atomicmsg" Read,
    CompareAtomic "fi_compare_atomic" Read,
    CompareAtomicv "fi_compare_atomicv" Read,
    CompareAtomicmsg "fi_compare_atomicmsg" Read,
}

impl Call {
    pub(super) fn is_tagged(self) -> bool {
        (Call::Trecv as u8..=Call::Tinjectdata as u8).contains(&(self as u8))
    }

    pub(super) fn is_atomic(self) -> bool {
        self as u8 >= Call::Atomic as u8
    }

    pub(super) fn is_one_sided(self) -> bool {
        self as u8 >= Call::Read as u8
    }

    pub(super) fn is_compare(self) -> bool {
        self as u8 >= Call::CompareAtomic as u8
    }

    pub(super) fn takes_flags(self, name: &str) -> bool {
        name.ends_with("msg")
    }

    pub(super) fn takes_vector(self, name: &str) -> bool {
        name.ends_with('v') && !name.ends_with("recv") || name.ends_with("recvv") || name.ends_with("msg")
    }

    pub(super) fn is_inject(self, name: &str) -> bool {
        name.contains("inject")
    }
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

pub(super) unsafe fn make_call(call: Call, ep: *mut FidEp, a: &CallArguments) -> isize {
    // The vectors are long enough for every count that a probe uses.
    let mut descs = [a.desc; 64];
    let descs = if a.has_descs { descs.as_mut_ptr() } else { ptr::null_mut() };
    let split = a.vector_count.clamp(1, 64);
    let each = a.len / split;
    let unit = if call.is_atomic() { 8 } else { 1 };
    let place = |base: *mut u8, index: usize| {
        if base.is_null() { base } else { base.wrapping_add(each.wrapping_mul(index * unit)) }
    };
    let iov: Vec<iovec> =
        (0..64).map(|index| iovec { iov_base: place(a.buf, index).cast(), iov_len: each }).collect();
    let ioc = |base: *mut u8| -> Vec<FiIoc> {
        (0..64).map(|index| FiIoc { addr: place(base, index).cast(), count: each }).collect()
    };
    let (operands, results, compares) = (ioc(a.buf), ioc(a.result), ioc(a.compare));
    let vector = |vector: *const c_void| if a.has_vector { vector } else { ptr::null() };
    let iov = vector(iov.as_ptr().cast()).cast::<iovec>();
    let operands = vector(operands.as_ptr().cast()).cast::<FiIoc>();
    let compares = compares.as_ptr();
    let results = if a.has_result_vector { results.as_ptr().cast_mut() } else { ptr::null_mut() };
    let remote_each = a.len / a.rma_count.clamp(1, 64);
    let rma: Vec<FiRmaIov> = (0..64)
        .map(|index| FiRmaIov {
            addr: a.remote.wrapping_add(remote_each.wrapping_mul(index) as u64),
            len: remote_each,
            key: a.key,
        })
        .collect();
    let rma_iocs: Vec<FiRmaIoc> = (0..64)
        .map(|index| FiRmaIoc {
            addr: a.remote.wrapping_add(remote_each.wrapping_mul(index * 8) as u64),
            count: remote_each,
            key: a.key,
        })
        .collect();
    let rma = if a.has_rma_vector { rma.as_ptr() } else { ptr::null() };
    let rma_iocs = if a.has_rma_vector { rma_iocs.as_ptr() } else { ptr::null() };
    let n = a.vector_count;
    let buf = a.buf.cast::<c_void>();
    let message =
        FiMsg { msg_iov: iov, desc: descs, iov_count: n, addr: a.addr, context: a.context, data: a.data };
    let tagged = FiMsgTagged {
        msg_iov: iov,
        desc: descs,
        iov_count: n,
        addr: a.addr,
        tag: a.tag,
        ignore: a.ignore,
        context: a.context,
        data: a.data,
    };
    let access = FiMsgRma {
        msg_iov: iov,
        desc: descs,
        iov_count: n,
        addr: a.addr,
        rma_iov: rma,
        rma_iov_count: a.rma_count,
        context: a.context,
        data: a.data,
    };
    let atomic = FiMsgAtomic {
        msg_iov: operands,
        desc: descs,
        iov_count: n,
        addr: a.addr,
        rma_iov: rma_iocs,
        rma_iov_count: a.rma_count,
        datatype: a.datatype,
        op: a.op,
        context: a.context,
        data: a.data,
    };
    let shown = |message: *const c_void| if a.has_message { message } else { ptr::null() };
    let message = shown((&raw const message).cast()).cast::<FiMsg>();
    let tagged = shown((&raw const tagged).cast()).cast::<FiMsgTagged>();
    let access = shown((&raw const access).cast()).cast::<FiMsgRma>();
    let atomic = shown((&raw const atomic).cast()).cast::<FiMsgAtomic>();
    let (result, compare) = (a.result.cast::<c_void>(), a.compare.cast::<c_void>());
    let CallArguments {
        len, desc, addr, tag, ignore, data, context, flags, remote, key, datatype, op, ..
    } = *a;
    unsafe {
        let msg = || deref_vtable((*ep).msg);
        let tagged_ops = || deref_vtable((*ep).tagged);
        let rma_ops = || deref_vtable((*ep).rma);
        let atomic_ops = || deref_vtable((*ep).atomic);
        match call {
            Call::Recv => (msg().recv)(ep, buf, len, desc, addr, context),
            Call::Recvv => (msg().recvv)(ep, iov, descs, n, addr, context),
            Call::Recvmsg => (msg().recvmsg)(ep, message, flags),
            Call::Send => (msg().send)(ep, buf, len, desc, addr, context),
            Call::Sendv => (msg().sendv)(ep, iov, descs, n, addr, context),
            Call::Sendmsg => (msg().sendmsg)(ep, message, flags),
            Call::Inject => (msg().inject)(ep, buf, len, addr),
            Call::Senddata => (msg().senddata)(ep, buf, len, desc, data, addr, context),
            Call::Injectdata => (msg().injectdata)(ep, buf, len, data, addr),
            Call::Trecv => (tagged_ops().recv)(ep, buf, len, desc, addr, tag, ignore, context),
            Call::Trecvv => (tagged_ops().recvv)(ep, iov, descs, n, addr, tag, ignore, context),
            Call::Trecvmsg => (tagged_ops().recvmsg)(ep, tagged, flags),
            Call::Tsend => (tagged_ops().send)(ep, buf, len, desc, addr, tag, context),
            Call::Tsendv => (tagged_ops().sendv)(ep, iov, descs, n, addr, tag, context),
            Call::Tsendmsg => (tagged_ops().sendmsg)(ep, tagged, flags),
            Call::Tinject => (tagged_ops().inject)(ep, buf, len, addr, tag),
            Call::Tsenddata => (tagged_ops().senddata)(ep, buf, len, desc, data, addr, tag, context),
            Call::Tinjectdata => (tagged_ops().injectdata)(ep, buf, len, data, addr, tag),
            Call::Read => (rma_ops().read)(ep, buf, len, desc, addr, remote, key, context),
            Call::Readv => (rma_ops().readv)(ep, iov, descs, n, addr, remote, key, context),
            Call::Readmsg => (rma_ops().readmsg)(ep, access, flags),
            Call::Write => (rma_ops().write)(ep, buf, len, desc, addr, remote, key, context),
            Call::Writev => (rma_ops().writev)(ep, iov, descs, n, addr, remote, key, context),
            Call::Writemsg => (rma_ops().writemsg)(ep, access, flags),
            Call::InjectWrite => (rma_ops().inject)(ep, buf, len, addr, remote, key),
            Call::Writedata => (rma_ops().writedata)(ep, buf, len, desc, data, addr, remote, key, context),
            Call::InjectWritedata => (rma_ops().injectdata)(ep, buf, len, data, addr, remote, key),
            Call::Atomic => {
                (atomic_ops().write)(ep, buf, len, desc, addr, remote, key, datatype, op, context)
            }
            Call::Atomicv => {
                (atomic_ops().writev)(ep, operands, descs, n, addr, remote, key, datatype, op, context)
            }
            Call::Atomicmsg => (atomic_ops().writemsg)(ep, atomic, flags),
            Call::InjectAtomic => (atomic_ops().inject)(ep, buf, len, addr, remote, key, datatype, op),
            Call::FetchAtomic => (atomic_ops().readwrite)(
                ep, buf, len, desc, result, desc, addr, remote, key, datatype, op, context,
            ),
            Call::FetchAtomicv => (atomic_ops().readwritev)(
                ep, operands, descs, n, results, descs, n, addr, remote, key, datatype, op, context,
            ),
            Call::FetchAtomicmsg => (atomic_ops().readwritemsg)(ep, atomic, results, descs, n, flags),
            Call::CompareAtomic => (atomic_ops().compwrite)(
                ep, buf, len, desc, compare, desc, result, desc, addr, remote, key, datatype, op, context,
            ),
            Call::CompareAtomicv => (atomic_ops().compwritev)(
                ep, operands, descs, n, compares, descs, n, results, descs, n, addr, remote, key, datatype,
                op, context,
            ),
            Call::CompareAtomicmsg => {
                (atomic_ops().compwritemsg)(ep, atomic, compares, descs, n, results, descs, n, flags)
            }
        }
    }
}
