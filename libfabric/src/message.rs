//! `fi_msg(3)`, and the functions that untagged and tagged messages share.

use std::slice;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::mutated;
use homespun::trigger::Operation;
use homespun::{Endpoint, Errno, FabricAddress, Segment, SegmentMut, Tag, TagMatch};
use libc::{c_void, iovec};

use crate::abi::endpoint::{FiMsg, FiOpsMsg};
use crate::edge::Failure;
use crate::posting::{
    Desc, Descs, SegmentsMut, bytes_to_inject, context_number, deref_non_null, entry_points,
    flags_or_default, receive_source, remote_cq_data, segment, segment_mut, segments, segments_mut,
};
use crate::triggered;

pub(crate) static OPS: FiOpsMsg = FiOpsMsg {
    size: size_of::<FiOpsMsg>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

entry_points! {
    fn recv(ep, buf: *mut c_void, len: usize, _: Desc, from: u64, ctx: *mut c_void) -> isize {
        post_receive(ep, segment_mut(buf, len), from, None, ctx, None)
    }

    fn recvv(ep, iov: *const iovec, _: Descs, count: usize, from: u64, ctx: *mut c_void) -> isize {
        post_receive(ep, segments_mut(iov, count)?, from, None, ctx, None)
    }

    fn recvmsg(ep, msg: *const FiMsg, flags: u64) -> isize {
        let FiMsg { msg_iov, iov_count, addr, context, .. } = *deref_non_null(msg)?;
        post_receive(ep, segments_of_receive(msg_iov, iov_count, flags)?, addr, None, context, Some(flags))
    }

    fn send(ep, buf: *const c_void, len: usize, desc: Desc, to: u64, ctx: *mut c_void) -> isize {
        if desc.is_null() && mutated!("fi_mr/local-buffers-need-no-registration") {
            return Err(Errno::EINVAL.into());
        }
        post_send(ep, segment(buf, len), to, None, None, ctx, None)
    }

    fn sendv(ep, iov: *const iovec, _: Descs, count: usize, to: u64, ctx: *mut c_void) -> isize {
        post_send(ep, segments(iov, count)?, to, None, None, ctx, None)
    }

    fn sendmsg(ep, msg: *const FiMsg, flags: u64) -> isize {
        let FiMsg { msg_iov, iov_count, addr, context, data, .. } = *deref_non_null(msg)?;
        let data = remote_cq_data(flags, data);
        post_send(ep, segments(msg_iov, iov_count)?, addr, None, data, context, Some(flags))
    }

    fn senddata(ep, buf: *const c_void, len: usize, _: Desc, data: u64, to: u64, ctx: *mut c_void) -> isize {
        post_send(ep, segment(buf, len), to, None, Some(data), ctx, None)
    }

    fn inject(ep, buf: *const c_void, len: usize, to: u64) -> isize {
        post_inject(ep, buf, len, to, None, None)
    }

    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64) -> isize {
        post_inject(ep, buf, len, to, None, Some(data))
    }
}

/// Posts a send.
///
/// # Safety
///
/// The segments stay unchanged until the application has read the completion (`fi_msg(3)`).
#[inline(always)]
pub(crate) unsafe fn post_send(
    endpoint: &Endpoint,
    buffers: impl AsRef<[Segment]>,
    to: u64,
    tag: Option<u64>,
    data: Option<u64>,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (to, context, flags) =
        (FabricAddress(to), context_number(ctx), flags_or_default(flags, endpoint.uncommitted_op_flags()));
    let (buffers, tag) = (buffers.as_ref(), tag.map(Tag));
    // SAFETY: the caller keeps the same conditions.
    unsafe {
        if let [one] = buffers
            && let Some(buffers) = one.bytes()
        {
            let send = SendMsg { buffers, to, tag, data, context, flags };
            return endpoint.post_send_of_one_piece(&send).or_else(|error| {
                let buffers = slice::from_ref(one);
                let again = move || Operation::Send(SendMsg { buffers, to, tag, data, context, flags });
                triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, again)
            });
        }
        let send = SendMsg { buffers, to, tag, data, context, flags };
        endpoint.post_send(&send).or_else(|error| {
            triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, || Operation::Send(send))
        })
    }
}

/// Posts a receive.
///
/// # Safety
///
/// No other code accesses the segments until the application has read the completion (`fi_msg(3)`).
#[inline(always)]
pub(crate) unsafe fn post_receive(
    endpoint: &Endpoint,
    buffers: impl AsRef<[SegmentMut]>,
    from: u64,
    tagged: Option<TagMatch>,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (context, flags) = (context_number(ctx), flags_or_default(flags, endpoint.rx_op_flags()));
    let from = receive_source(from, endpoint.info().caps);
    let buffers = buffers.as_ref();
    let receive = RecvMsg { buffers, from, tagged, context, flags };
    // SAFETY: the caller keeps the same conditions.
    unsafe {
        endpoint.post_receive(&receive).or_else(|error| {
            triggered::post_triggered_or_refuse(endpoint, ctx, flags, error, || Operation::Receive(receive))
        })
    }
}

/// Injects a message.
///
/// # Safety
///
/// `buf` is readable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn post_inject(
    endpoint: &Endpoint,
    buf: *const c_void,
    len: usize,
    to: u64,
    tag: Option<u64>,
    data: Option<u64>,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    let message = unsafe { bytes_to_inject(buf, len)? };
    endpoint.inject(message, FabricAddress(to), tag.map(Tag), data).map_err(Failure::from)
}

/// Returns the buffers of a receive. A peek or a discard gets no data, so for these flags the
/// function returns no buffers and does not read `iov`.
///
/// # Safety
///
/// `iov` is readable for `count` entries, if the receive gets data.
pub(crate) unsafe fn segments_of_receive(
    iov: *const iovec,
    count: usize,
    flags: u64,
) -> Result<SegmentsMut, Failure> {
    let flags = OpFlags::from_bits_retain(flags);
    if flags.contains(OpFlags::PEEK) || flags.contains(OpFlags::CLAIM | OpFlags::DISCARD) {
        return Ok(SegmentsMut::new());
    }
    // SAFETY: the caller promises it.
    unsafe { segments_mut(iov, count) }
}
