//! `fi_tagged(3)`.

use homespun::TagMatch;
use libc::{c_void, iovec};

use crate::abi::tagged::{FiMsgTagged, FiOpsTagged};
use crate::message::{post_inject, post_receive, post_send, segments_of_receive};
use crate::posting::{
    Desc, Descs, deref_non_null, entry_points, remote_cq_data, segment, segment_mut, segments, segments_mut,
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

entry_points! {
    fn recv(
        ep, buf: *mut c_void, len: usize, _: Desc, from: u64, tag: u64, ignore: u64, ctx: *mut c_void,
    ) -> isize {
        post_receive(ep, segment_mut(buf, len), from, Some(TagMatch { tag, ignore }), ctx, None)
    }

    fn recvv(
        ep, iov: *const iovec, _: Descs, count: usize, from: u64, tag: u64, ignore: u64, ctx: *mut c_void,
    ) -> isize {
        post_receive(ep, segments_mut(iov, count)?, from, Some(TagMatch { tag, ignore }), ctx, None)
    }

    fn recvmsg(ep, msg: *const FiMsgTagged, flags: u64) -> isize {
        let FiMsgTagged { msg_iov, iov_count, addr, tag, ignore, context, .. } = *deref_non_null(msg)?;
        let buffers = segments_of_receive(msg_iov, iov_count, flags)?;
        let tagged = Some(TagMatch { tag, ignore });
        post_receive(ep, buffers, addr, tagged, context, Some(flags))
    }

    fn send(ep, buf: *const c_void, len: usize, _: Desc, to: u64, tag: u64, ctx: *mut c_void) -> isize {
        post_send(ep, segment(buf, len), to, Some(tag), None, ctx, None)
    }

    fn sendv(ep, iov: *const iovec, _: Descs, count: usize, to: u64, tag: u64, ctx: *mut c_void) -> isize {
        post_send(ep, segments(iov, count)?, to, Some(tag), None, ctx, None)
    }

    fn sendmsg(ep, msg: *const FiMsgTagged, flags: u64) -> isize {
        let FiMsgTagged { msg_iov, iov_count, addr, tag, context, data, .. } = *deref_non_null(msg)?;
        let data = remote_cq_data(flags, data);
        post_send(ep, segments(msg_iov, iov_count)?, addr, Some(tag), data, context, Some(flags))
    }

    fn senddata(
        ep, buf: *const c_void, len: usize, _: Desc, data: u64, to: u64, tag: u64, ctx: *mut c_void,
    ) -> isize {
        post_send(ep, segment(buf, len), to, Some(tag), Some(data), ctx, None)
    }

    fn inject(ep, buf: *const c_void, len: usize, to: u64, tag: u64) -> isize {
        post_inject(ep, buf, len, to, Some(tag), None)
    }

    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64, tag: u64) -> isize {
        post_inject(ep, buf, len, to, Some(tag), Some(data))
    }
}
