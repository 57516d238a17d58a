//! Posts receives to a shared receive context: `fi_msg(3)` and `fi_tagged(3)`.

use homespun::{RecvMsg, SegmentMut, SharedReceiveContext, TagMatch};
use libc::{c_void, iovec};

use crate::abi::endpoint::{FiMsg, FiOpsMsg, FidEp};
use crate::abi::tagged::{FiMsgTagged, FiOpsTagged};
use crate::edge::Failure;
use crate::message::segments_of_receive;
use crate::posting::{
    Desc, Descs, context_number, deref_non_null, entry_points, flags_or_default, receive_source, segment_mut,
    segments_mut,
};
use crate::shared_receive_context::receive_context_from_fid;
use crate::triggered;
use crate::unsupported::StubFn;

pub(crate) static MSG_OPS: FiOpsMsg = FiOpsMsg {
    size: size_of::<FiOpsMsg>(),
    recv,
    recvv,
    recvmsg,
    send: StubFn::STUB,
    sendv: StubFn::STUB,
    sendmsg: StubFn::STUB,
    inject: StubFn::STUB,
    senddata: StubFn::STUB,
    injectdata: StubFn::STUB,
};

pub(crate) static TAGGED_OPS: FiOpsTagged = FiOpsTagged {
    size: size_of::<FiOpsTagged>(),
    recv: trecv,
    recvv: trecvv,
    recvmsg: trecvmsg,
    send: StubFn::STUB,
    sendv: StubFn::STUB,
    sendmsg: StubFn::STUB,
    inject: StubFn::STUB,
    senddata: StubFn::STUB,
    injectdata: StubFn::STUB,
};

entry_points! {
    of receive_context_from_fid_ep,

    fn recv(srx, buf: *mut c_void, len: usize, _: Desc, from: u64, ctx: *mut c_void) -> isize {
        post_receive(srx, segment_mut(buf, len), from, None, ctx, None)
    }

    fn recvv(srx, iov: *const iovec, _: Descs, count: usize, from: u64, ctx: *mut c_void) -> isize {
        post_receive(srx, segments_mut(iov, count)?, from, None, ctx, None)
    }

    fn recvmsg(srx, msg: *const FiMsg, flags: u64) -> isize {
        let FiMsg { msg_iov, iov_count, addr, context, .. } = *deref_non_null(msg)?;
        post_receive(srx, segments_of_receive(msg_iov, iov_count, flags)?, addr, None, context, Some(flags))
    }

    fn trecv(
        srx, buf: *mut c_void, len: usize, _: Desc, from: u64, tag: u64, ignore: u64, ctx: *mut c_void,
    ) -> isize {
        post_receive(srx, segment_mut(buf, len), from, Some(TagMatch { tag, ignore }), ctx, None)
    }

    fn trecvv(
        srx, iov: *const iovec, _: Descs, count: usize, from: u64, tag: u64, ignore: u64, ctx: *mut c_void,
    ) -> isize {
        post_receive(srx, segments_mut(iov, count)?, from, Some(TagMatch { tag, ignore }), ctx, None)
    }

    fn trecvmsg(srx, msg: *const FiMsgTagged, flags: u64) -> isize {
        let FiMsgTagged { msg_iov, iov_count, addr, tag, ignore, context, .. } = *deref_non_null(msg)?;
        let buffers = segments_of_receive(msg_iov, iov_count, flags)?;
        let tagged = Some(TagMatch { tag, ignore });
        post_receive(srx, buffers, addr, tagged, context, Some(flags))
    }
}

/// Returns the shared receive context behind a `struct fid_ep`.
///
/// # Errors
///
/// As [`receive_context_from_fid`].
///
/// # Safety
///
/// As [`receive_context_from_fid`].
unsafe fn receive_context_from_fid_ep<'a>(srx: *mut FidEp) -> Result<&'a SharedReceiveContext, Failure> {
    // SAFETY: the caller promises it.
    unsafe { receive_context_from_fid(srx.cast()) }
}

/// Posts a receive.
///
/// # Safety
///
/// No other code accesses the segments until the application has read the completion (`fi_msg(3)`).
unsafe fn post_receive(
    srx: &SharedReceiveContext,
    buffers: impl AsRef<[SegmentMut]>,
    from: u64,
    tagged: Option<TagMatch>,
    ctx: *mut c_void,
    flags: Option<u64>,
) -> Result<(), Failure> {
    let (context, flags) = (context_number(ctx), flags_or_default(flags, srx.rx_op_flags()));
    let from = receive_source(from, srx.attr().caps);
    let receive = RecvMsg { buffers: buffers.as_ref(), from, tagged, context, flags };
    // SAFETY: the caller promises it.
    unsafe {
        srx.post_receive(&receive)
            .or_else(|error| triggered::receive_triggered_or_refuse(srx, ctx, error, receive))
    }
}
