//! `fi_msg(3)`, and what untagged and tagged messages have in common.

use std::slice;

use homespun::endpoint::{RecvMsgRaw, SendMsgRaw};
use homespun::flags::OpFlags;
use homespun::limits::IOV_LIMIT;
use homespun::{Errno, FabricAddress, Misuse, Segment, SegmentMut};
use libc::{c_void, iovec};
use smallvec::SmallVec;

use crate::abi::endpoint::{FiMsg, FiOpsMsg, FidEp};
use crate::edge::{Failure, enter};
use crate::endpoint::EndpointState;
use crate::object;

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

/// The application's context as it travels through homespun.
pub(crate) fn context(context: *mut c_void) -> u64 {
    // It comes back as a pointer, in the completion.
    context.expose_provenance() as u64
}

/// Posts a send.
///
/// # Safety
///
/// `ep` is an open endpoint; the segments stay as they are until the completion was read (`fi_msg(3)`).
#[inline]
pub(crate) unsafe fn post_send(ep: *mut FidEp, send: &SendMsgRaw<'_>) -> Result<isize, Failure> {
    // SAFETY: the caller promises what either asks for.
    unsafe { object::state::<EndpointState>(ep.cast())?.endpoint.post_send(send)? };
    Ok(0)
}

/// Posts a receive.
///
/// # Safety
///
/// `ep` is an open endpoint; nobody else touches the segments until the completion was read (`fi_msg(3)`).
#[inline]
pub(crate) unsafe fn post_receive(ep: *mut FidEp, receive: &RecvMsgRaw<'_>) -> Result<isize, Failure> {
    // SAFETY: the caller promises what either asks for.
    unsafe { object::state::<EndpointState>(ep.cast())?.endpoint.post_receive(receive)? };
    Ok(0)
}

/// Injects a message.
///
/// # Safety
///
/// `ep` is an open endpoint, `buf` is readable for `len` bytes.
#[inline]
pub(crate) unsafe fn post_inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: u64,
    tag: Option<u64>,
    data: Option<u64>,
) -> Result<isize, Failure> {
    // SAFETY: the caller says so.
    let endpoint = unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint };
    // SAFETY: the caller says so.
    let message = unsafe { injected(buf, len)? };
    endpoint.inject(message, FabricAddress(to), tag, data)?;
    Ok(0)
}

/// What is injected.
///
/// # Errors
///
/// EINVAL for a null address with a length, EMSGSIZE for a length that no memory has.
///
/// # Safety
///
/// `buf` is null or readable for `len` bytes, which nobody writes as long as the slice is used.
pub(crate) unsafe fn injected<'a>(buf: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    match (buf.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EINVAL.into()),
        // No memory is longer than half of all addresses.
        (false, _) if isize::try_from(len).is_err() => Err(Errno::EMSGSIZE.into()),
        // SAFETY: the caller says so.
        (false, _) => Ok(unsafe { slice::from_raw_parts(buf.cast(), len) }),
    }
}

/// The one segment of a simple send.
pub(crate) fn segment(buf: *const c_void, len: usize) -> Segment {
    Segment { address: buf.cast(), len_bytes: len }
}

/// The one segment of a simple receive.
pub(crate) fn segment_mut(buf: *mut c_void, len: usize) -> SegmentMut {
    SegmentMut { address: buf.cast(), len_bytes: len }
}

/// The segments of a vectored send.
///
/// # Safety
///
/// `iov` is readable for `count` entries.
pub(crate) unsafe fn segments(
    iov: *const iovec,
    count: usize,
) -> Result<SmallVec<[Segment; IOV_LIMIT]>, Failure> {
    // SAFETY: the caller says so.
    let entries = unsafe { entries(iov, count)? };
    Ok(entries.iter().map(|entry| segment(entry.iov_base, entry.iov_len)).collect())
}

/// The segments of a vectored receive.
///
/// # Safety
///
/// `iov` is readable for `count` entries.
pub(crate) unsafe fn segments_mut(
    iov: *const iovec,
    count: usize,
) -> Result<SmallVec<[SegmentMut; IOV_LIMIT]>, Failure> {
    // SAFETY: the caller says so.
    let entries = unsafe { entries(iov, count)? };
    Ok(entries.iter().map(|entry| segment_mut(entry.iov_base, entry.iov_len)).collect())
}

/// The segments of a receive with flags: none if no data will be received, since the caller need not name any then.
///
/// # Safety
///
/// `iov` is readable for `count` entries, if they matter.
pub(crate) unsafe fn segments_to_fill(
    iov: *const iovec,
    count: usize,
    flags: OpFlags,
) -> Result<SmallVec<[SegmentMut; IOV_LIMIT]>, Failure> {
    if flags.contains(OpFlags::PEEK) || flags.contains(OpFlags::CLAIM | OpFlags::DISCARD) {
        return Ok(SmallVec::new());
    }
    // SAFETY: the caller says so.
    unsafe { segments_mut(iov, count) }
}

/// # Safety
///
/// `iov` is readable for `count` entries, for as long as the result is used.
unsafe fn entries<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec], Failure> {
    match (iov.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EINVAL.into()),
        // Checked here so that nothing is read, or allocated, for a count that cannot be right.
        (false, _) if count > IOV_LIMIT => Err(Misuse::TooManySegments { count, max: IOV_LIMIT }.into()),
        // SAFETY: the caller says so.
        (false, _) => Ok(unsafe { slice::from_raw_parts(iov, count) }),
    }
}

/// The data of a message, if its flags say that it has some.
pub(crate) fn remote_data(flags: u64, data: u64) -> Option<u64> {
    (flags & OpFlags::REMOTE_CQ_DATA.bits() != 0).then_some(data)
}

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let receive = RecvMsgRaw {
            segments: &[segment_mut(buf, len)],
            from: FabricAddress(src_addr),
            tagged: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_msg(3)`.
        unsafe { post_receive(ep, &receive) }
    })
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let receive = RecvMsgRaw {
            // SAFETY: the caller keeps to `fi_msg(3)`.
            segments: &unsafe { segments_mut(iov, count)? },
            from: FabricAddress(src_addr),
            tagged: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { post_receive(ep, &receive) }
    })
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_msg(3)`: null or valid.
        let msg = unsafe { msg.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
        let flags = OpFlags::from_bits_retain(flags);
        let receive = RecvMsgRaw {
            // SAFETY: the caller keeps to `fi_msg(3)`.
            segments: &unsafe { segments_to_fill(msg.msg_iov, msg.iov_count, flags)? },
            from: FabricAddress(msg.addr),
            tagged: None,
            context: context(msg.context),
            flags: Some(flags),
        };
        // SAFETY: as above.
        unsafe { post_receive(ep, &receive) }
    })
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let send = SendMsgRaw {
            segments: &[segment(buf, len)],
            to: FabricAddress(dest_addr),
            tag: None,
            data: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_msg(3)`.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let send = SendMsgRaw {
            // SAFETY: the caller keeps to `fi_msg(3)`.
            segments: &unsafe { segments(iov, count)? },
            to: FabricAddress(dest_addr),
            tag: None,
            data: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsg, flags: u64) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_msg(3)`: null or valid.
        let msg = unsafe { msg.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
        let send = SendMsgRaw {
            // SAFETY: the caller keeps to `fi_msg(3)`.
            segments: &unsafe { segments(msg.msg_iov, msg.iov_count)? },
            to: FabricAddress(msg.addr),
            tag: None,
            data: remote_data(flags, msg.data),
            context: context(msg.context),
            flags: Some(OpFlags::from_bits_retain(flags)),
        };
        // SAFETY: as above.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn inject(ep: *mut FidEp, buf: *const c_void, len: usize, dest_addr: u64) -> isize {
    // SAFETY: the caller keeps to `fi_msg(3)`.
    enter(|| unsafe { post_inject(ep, buf, len, dest_addr, None, None) })
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let send = SendMsgRaw {
            segments: &[segment(buf, len)],
            to: FabricAddress(dest_addr),
            tag: None,
            data: Some(data),
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_msg(3)`.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: u64,
) -> isize {
    // SAFETY: the caller keeps to `fi_msg(3)`.
    enter(|| unsafe { post_inject(ep, buf, len, dest_addr, None, Some(data)) })
}
