//! Receives at a shared context, in both tiers: `fi_msg(3)`, `fi_tagged(3)`.

use homespun_engine::buffer::SegmentMut;
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, OpFlags};

use super::{ReceiveContext, SharedReceiveContext};
use crate::op_flags::{check_receive_flags, signalled_by_flags};
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
        let received = shared.submit(post);
        shared.deliver_mail_and_fire();
        if let ReceiveKind::Peek(_) = post.kind {
            // Not before it has answered: see docs/decisions/peek.md.
            shared.members.progress();
        }
        received
    }
}

impl ReceiveContext {
    /// Checks a receive with these flags, and completes it by what they say.
    pub(super) fn prepare_receive(&self, post: &mut ReceivePost, flags: OpFlags) -> Result<(), Error> {
        check_receive_flags(flags)?;
        // As at each endpoint with a connection, a source is ignored.
        if post.from.is_some()
            && !self.attr.caps.contains(Caps::DIRECTED_RECV)
            && self.members.has_only_connected()
        {
            post.from = None;
        }
        // Which endpoints receive here is known by the capabilities of each: `SEND` and `RECV` are theirs.
        self.check_caps(post.required_caps() - Caps::RECV)?;
        // An endpoint that is not selective reports it all the same.
        post.signalled = signalled_by_flags(true, flags);
        Ok(())
    }
}

receive_calls! {
    SharedReceiveContext,

    /// Receives a message into `buffer[..buffer.len()]`: `fi_recv`. A source other than
    /// [`UNSPECIFIED`](crate::FabricAddress::UNSPECIFIED) needs
    /// [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV); among endpoints with connections it is ignored.
    /// Where the default flags have [`OpFlags::MULTI_RECV`], as [`recv_multi`](Self::recv_multi).
    ///
    /// # Errors
    ///
    /// [`Again`](crate::Again) when [`size_ops`](crate::info::RxAttr::size_ops) receives are outstanding;
    /// [`Misuse`](crate::Misuse) for a capability that the context lacks, and for a directed receive from an
    /// unknown address, or while no endpoint is enabled whose address vector could name it
    /// ([`Misuse::NoAddressVector`](crate::Misuse::NoAddressVector)).
    recv,

    /// Receives a message into all the room of a buffer that can be posted again: `fi_recv`. See
    /// [`Endpoint::recv_into`](crate::Endpoint::recv_into).
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and as there.
    recv_into,

    /// Receives with all options: `fi_recvmsg`, `fi_trecvmsg`. A peek looks among the messages that any
    /// endpoint of the context has received, and makes progress at all of them.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), with the fields of [`RecvMsg`].
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
    /// Every segment must be initialised memory that nothing else reads or writes until the operation's
    /// completion was read, or the last handle of the context was dropped and no endpoint is bound to it. A
    /// receive that reports no success, or whose completion was not read from the queue of an endpoint that
    /// was closed, keeps its memory for as long. Of a multi-receive buffer the same holds as of an
    /// endpoint's.
    pub unsafe fn post_receive(&self, receive: &RecvMsg<&[SegmentMut]>) -> Result<(), Error> {
        // SAFETY: the caller promises what `receive_raw` asks for: initialised memory that nothing else uses
        // until the receive has ended. The receiver is dropped with the last handle and the last endpoint.
        unsafe { self.receive_raw(receive) }
    }
}
