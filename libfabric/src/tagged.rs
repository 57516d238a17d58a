//! `fi_tagged(3)`.

use homespun::endpoint::{RecvMsgRaw, SendMsgRaw};
use homespun::flags::OpFlags;
use homespun::{Errno, FabricAddress};
use libc::{c_void, iovec};

use crate::abi::endpoint::FidEp;
use crate::abi::tagged::{FiMsgTagged, FiOpsTagged};
use crate::edge::{Failure, enter};
use crate::message::{
    context, post_inject, post_receive, post_send, remote_data, segment, segment_mut, segments, segments_mut,
    segments_to_fill,
};

pub(crate) static OPS: FiOpsTagged = FiOpsTagged {
    size: size_of::<FiOpsTagged>(),
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

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: u64,
    tag: u64,
    ignore: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let receive = RecvMsgRaw {
            segments: &[segment_mut(buf, len)],
            from: FabricAddress(src_addr),
            tagged: Some((tag, ignore)),
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_tagged(3)`.
        unsafe { post_receive(ep, &receive) }
    })
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: u64,
    tag: u64,
    ignore: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let receive = RecvMsgRaw {
            // SAFETY: the caller keeps to `fi_tagged(3)`.
            segments: &unsafe { segments_mut(iov, count)? },
            from: FabricAddress(src_addr),
            tagged: Some((tag, ignore)),
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { post_receive(ep, &receive) }
    })
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_tagged(3)`: null or valid.
        let msg = unsafe { msg.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
        let flags = OpFlags::from_bits_retain(flags);
        let receive = RecvMsgRaw {
            // SAFETY: the caller keeps to `fi_tagged(3)`.
            segments: &unsafe { segments_to_fill(msg.msg_iov, msg.iov_count, flags)? },
            from: FabricAddress(msg.addr),
            tagged: Some((msg.tag, msg.ignore)),
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
    tag: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let send = SendMsgRaw {
            segments: &[segment(buf, len)],
            to: FabricAddress(dest_addr),
            tag: Some(tag),
            data: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_tagged(3)`.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: u64,
    tag: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let send = SendMsgRaw {
            // SAFETY: the caller keeps to `fi_tagged(3)`.
            segments: &unsafe { segments(iov, count)? },
            to: FabricAddress(dest_addr),
            tag: Some(tag),
            data: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const FiMsgTagged, flags: u64) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_tagged(3)`: null or valid.
        let msg = unsafe { msg.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
        let send = SendMsgRaw {
            // SAFETY: the caller keeps to `fi_tagged(3)`.
            segments: &unsafe { segments(msg.msg_iov, msg.iov_count)? },
            to: FabricAddress(msg.addr),
            tag: Some(msg.tag),
            data: remote_data(flags, msg.data),
            context: context(msg.context),
            flags: Some(OpFlags::from_bits_retain(flags)),
        };
        // SAFETY: as above.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    dest_addr: u64,
    tag: u64,
) -> isize {
    // SAFETY: the caller keeps to `fi_tagged(3)`.
    enter(|| unsafe { post_inject(ep, buf, len, dest_addr, Some(tag), None) })
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: u64,
    tag: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let send = SendMsgRaw {
            segments: &[segment(buf, len)],
            to: FabricAddress(dest_addr),
            tag: Some(tag),
            data: Some(data),
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_tagged(3)`.
        unsafe { post_send(ep, &send) }
    })
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: u64,
    tag: u64,
) -> isize {
    // SAFETY: the caller keeps to `fi_tagged(3)`.
    enter(|| unsafe { post_inject(ep, buf, len, dest_addr, Some(tag), Some(data)) })
}
