//! The calls that post receives to a shared context, with owned memory and with the caller's memory:
//! `fi_msg(3)`, `fi_tagged(3)`.

use homespun_engine::buffer::SegmentMut;
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, OpFlags};

use super::{ReceiveContext, SharedReceiveContext};
use crate::op_flags::{check_receive_flags, signalled_from_flags};
use crate::post::{ReceiveKind, ReceivePost};
use crate::receive_calls::receive_calls;
use crate::receives::{ReceivePoster, RecvMsg};

impl ReceivePoster for SharedReceiveContext {
    fn multi_receive_min_bytes(&self) -> usize {
        self.min_multi_recv_bytes()
    }

    fn submit_receive(&self, post: &mut ReceivePost, flags: OpFlags) -> Result<(), Error> {
        self.shared.prepare_receive(post, flags)?;
        let shared = &self.shared;
        let received = shared.post_without_mail_delivery(post);
        shared.deliver_mail_and_fire();
        if let ReceiveKind::Peek(_) = post.kind {
            // The pass must come after the peek: see docs/design/messages.md.
            shared.members.progress();
        }
        received
    }
}

impl ReceiveContext {
    /// Checks that a receive may be posted with these flags, and sets its options.
    pub(super) fn prepare_receive(&self, post: &mut ReceivePost, flags: OpFlags) -> Result<(), Error> {
        check_receive_flags(flags)?;
        // Endpoints with connections ignore the source.
        if post.from.is_some()
            && !self.attr.caps.contains(Caps::DIRECTED_RECV)
            && self.members.has_only_connected()
        {
            post.from = None;
        }
        self.check_caps(post.required_caps() - Caps::RECV)?;
        // Here only the flags decide whether the receive is reported. An endpoint without selective
        // completion reports every receive.
        post.signalled = signalled_from_flags(true, flags);
        Ok(())
    }
}

receive_calls! {
    SharedReceiveContext,

    /// Receives a message into `buffer[..buffer.len()]`: `fi_recv`. A source other than
    /// [`UNSPECIFIED`](crate::FabricAddress::UNSPECIFIED) needs
    /// [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV). Endpoints with connections ignore the source.
    /// With [`OpFlags::MULTI_RECV`] among the default flags, this is [`recv_multi`](Self::recv_multi).
    ///
    /// # Errors
    ///
    /// [`Again`](crate::Again) when [`size_ops`](crate::info::RxAttr::size_ops) receives are outstanding.
    /// [`Misuse`](crate::Misuse) for a capability that the context lacks, and for a directed receive from an
    /// address that the address vector does not have.
    /// [`Misuse::NoAddressVector`](crate::Misuse::NoAddressVector) for a directed receive while the context
    /// has no enabled endpoint.
    recv,

    /// Receives a message into a buffer that can be posted again: `fi_recv`. See
    /// [`Endpoint::recv_into`](crate::Endpoint::recv_into).
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and as [`Endpoint::recv_into`](crate::Endpoint::recv_into).
    recv_into,

    /// Receives with all options: `fi_recvmsg`, `fi_trecvmsg`. A peek looks at the messages of all endpoints
    /// of the context, and makes a pass over these endpoints.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and as [`RecvMsg`] describes for its flags.
    recvmsg,
}

impl SharedReceiveContext {
    /// Posts a receive into the caller's memory, as
    /// [`Endpoint::post_receive`](crate::Endpoint::post_receive) does.
    ///
    /// # Errors
    ///
    /// As [`recvmsg`](Self::recvmsg).
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory. Until the application has read the operation's completion,
    /// no other code may read or write the segments. Without such a completion this holds until the context
    /// has ended: its last handle and the last endpoint bound to it were dropped. There is no such
    /// completion if the success of the receive is not reported, or if the endpoint that reported the
    /// receive was closed before the application read the completion. A multi-receive buffer must satisfy
    /// the conditions of [`Endpoint::post_receive`](crate::Endpoint::post_receive).
    pub unsafe fn post_receive(&self, receive: &RecvMsg<&[SegmentMut]>) -> Result<(), Error> {
        // SAFETY: the caller promises what `post_raw_receive` requires. The receiver is dropped with
        // the last handle and the last endpoint.
        unsafe { self.post_raw_receive(receive) }
    }
}
