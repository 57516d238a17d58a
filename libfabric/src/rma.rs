//! `fi_rma(3)`.

use homespun::endpoint::{ReadMsg, WriteMsg};
use homespun::trigger::Operation;
use homespun::{Endpoint, FabricAddress, RemoteMemory, Segment, SegmentMut};
use libc::{c_void, iovec};

use crate::abi::rma::{FiMsgRma, FiOpsRma};
use crate::edge::Failure;
use crate::posting::{
    Desc, Descs, bytes_to_inject, context_number, deref_non_null, entry_points, flags_or_default,
    remote_cq_data, segment, segment_mut, segments, segments_mut, single_remote_memory,
};
use crate::triggered;

pub(crate) static OPS: FiOpsRma = FiOpsRma {
    size: size_of::<FiOpsRma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

entry_points! {
    fn read(
        ep, buf: *mut c_void, len: usize, _: Desc, from: u64, address: u64, key: u64, ctx: *mut c_void,
    ) -> isize {
        post_read(ep, segment_mut(buf, len), from, RemoteMemory { address, key }, ctx, None)
    }

    fn readv(
        ep, iov: *const iovec, _: Descs, count: usize, from: u64, address: u64, key: u64, ctx: *mut c_void,
    ) -> isize {
        post_read(ep, segments_mut(iov, count)?, from, RemoteMemory { address, key }, ctx, None)
    }

    fn readmsg(ep, msg: *const FiMsgRma, flags: u64) -> isize {
        let msg = deref_non_null(msg)?;
        let buffers = segments_mut(msg.msg_iov, msg.iov_count)?;
        let remote = rma_remote_memory(msg, buffers.iter().map(|segment| segment.len_bytes))?;
        post_read(ep, buffers, msg.addr, remote, msg.context, Some(flags))
    }

    fn write(
        ep, buf: *const c_void, len: usize, _: Desc, to: u64, address: u64, key: u64, ctx: *mut c_void,
    ) -> isize {
        post_write(ep, segment(buf, len), to, RemoteMemory { address, key }, None, ctx, None)
    }

    fn writev(
        ep, iov: *const iovec, _: Descs, count: usize, to: u64, address: u64, key: u64, ctx: *mut c_void,
    ) -> isize {
        post_write(ep, segments(iov, count)?, to, RemoteMemory { address, key }, None, ctx, None)
    }

    fn writemsg(ep, msg: *const FiMsgRma, flags: u64) -> isize {
        let msg = deref_non_null(msg)?;
        let buffers = segments(msg.msg_iov, msg.iov_count)?;
        let remote = rma_remote_memory(msg, buffers.iter().map(|segment| segment.len_bytes))?;
        let data = remote_cq_data(flags, msg.data);
        post_write(ep, buffers, msg.addr, remote, data, msg.context, Some(flags))
    }

    fn writedata(
        ep, buf: *const c_void, len: usize, _: Desc, data: u64, to: u64, address: u64, key: u64,
        ctx: *mut c_void,
    ) -> isize {
        post_write(ep, segment(buf, len), to, RemoteMemory { address, key }, Some(data), ctx, None)
    }

    fn inject(ep, buf: *const c_void, len: usize, to: u64, address: u64, key: u64) -> isize {
        post_inject(ep, buf, len, to, RemoteMemory { address, key }, None)
    }

    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64, address: u64, key: u64) -> isize {
        post_inject(ep, buf, len, to, RemoteMemory { address, key }, Some(data))
    }
}

/// Posts a write.
///
/// # Safety
///
/// The segments stay valid and unchanged until the application has read the completion
/// (`fi_rma(3)`).
#[inline(always)]
unsafe fn post_write(
    endpoint: &Endpoint,
    buffers: impl AsRef<[Segment]>,
    to: u64,
    memory: RemoteMemory,
    data: Option<u64>,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (to, context, flags) =
        (FabricAddress(to), context_number(ctx), flags_or_default(flags, endpoint.tx_op_flags()));
    let write = WriteMsg { buffers: buffers.as_ref(), to, memory, data, context, flags };
    // SAFETY: the caller promises it.
    unsafe {
        endpoint.post_write(&write).or_else(|error| {
            triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, || Operation::Write(write))
        })
    }
}

/// Posts a read.
///
/// # Safety
///
/// No other code accesses the segments until the application has read the completion (`fi_rma(3)`).
#[inline(always)]
unsafe fn post_read(
    endpoint: &Endpoint,
    buffers: impl AsRef<[SegmentMut]>,
    from: u64,
    memory: RemoteMemory,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (from, context, flags) =
        (FabricAddress(from), context_number(ctx), flags_or_default(flags, endpoint.uncommitted_op_flags()));
    let read = ReadMsg { buffers: buffers.as_ref(), from, memory, context, flags };
    // SAFETY: the caller promises it.
    unsafe {
        endpoint.post_read(&read).or_else(|error| {
            triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, || Operation::Read(read))
        })
    }
}

/// Injects a write.
///
/// # Safety
///
/// `buf` is readable for `len` bytes.
unsafe fn post_inject(
    endpoint: &Endpoint,
    buf: *const c_void,
    len: usize,
    to: u64,
    memory: RemoteMemory,
    data: Option<u64>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    let bytes = unsafe { bytes_to_inject(buf, len)? };
    endpoint.inject_write(bytes, FabricAddress(to), memory, data).map_err(Failure::from)
}

/// Returns the remote memory of a message.
///
/// # Safety
///
/// The pointers in `msg` are valid.
pub(crate) unsafe fn rma_remote_memory(
    msg: &FiMsgRma,
    lens_bytes: impl Iterator<Item = usize>,
) -> Result<RemoteMemory, Failure> {
    // SAFETY: the caller promises it.
    unsafe {
        single_remote_memory(msg.rma_iov, msg.rma_iov_count, lens_bytes, |place| {
            Ok((RemoteMemory { address: place.addr, key: place.key }, place.len))
        })
    }
}
