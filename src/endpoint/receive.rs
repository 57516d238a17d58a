//! The calls of an endpoint that post receives, with owned memory or with the caller's: `fi_msg(3)`,
//! `fi_tagged(3)`.

use homespun_engine::buffer::{Destination, SegmentMut};
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::limits::MIN_MULTI_RECV_DEFAULT_BYTES;

use super::Endpoint;
use crate::av::FabricAddress;
use crate::endpoint_pump::EndpointPump;
use crate::mutated;
use crate::op_flags::{check_receive_flags, may_wait_in_lane};
use crate::post::ReceivePost;
use crate::receive_calls::receive_calls;
use crate::receives::{ReceivePoster, RecvMsg};

impl ReceivePoster for Endpoint {
    fn multi_receive_min_bytes(&self) -> usize {
        if mutated!("fi_endpoint/min-multi-recv") {
            return MIN_MULTI_RECV_DEFAULT_BYTES;
        }
        self.min_multi_recv_bytes()
    }

    #[inline(always)]
    fn try_post_waiting<B>(&self, receive: &RecvMsg<B>, destination: &mut Destination) -> bool {
        let RecvMsg { from, ref tagged, context, flags, .. } = *receive;
        let Ok((pump, service)) = self.shared.enabled_pump() else { return false };
        let needed =
            if from == FabricAddress::UNSPECIFIED { Caps::RECV } else { Caps::RECV | Caps::DIRECTED_RECV };
        may_wait_in_lane(flags)
            && self.shared.info.caps.contains(needed)
            && pump.try_post_waiting_receive(
                from,
                tagged.as_ref(),
                context,
                service.signalled_for_receive(flags),
                destination,
            )
    }

    #[inline(always)]
    fn submit_receive(&self, post: &mut ReceivePost, flags: OpFlags) -> Result<(), Error> {
        self.prepare_receive(post, flags)?.post_receive(post)
    }
}

impl Endpoint {
    /// Checks that a receive may be posted with these flags, and sets its options. Returns the pump to post
    /// it to.
    #[inline(always)]
    pub(super) fn prepare_receive(
        &self,
        post: &mut ReceivePost,
        flags: OpFlags,
    ) -> Result<&dyn EndpointPump, Error> {
        let enables = match post.tagged {
            Some(_) => mutated!("fi_tagged/tagged-posts-need-enabled-endpoint"),
            None => mutated!("fi_msg/posts-need-enabled-endpoint"),
        };
        if enables {
            self.enable()?;
        }
        let (pump, service) = self.shared.enabled_pump()?;
        check_receive_flags(flags)?;
        if !self.shared.info.caps.contains(post.required_caps()) {
            self.ignore_or_refuse_source(post)?;
        }
        post.signalled = service.signalled_for_receive(flags);
        Ok(pump)
    }

    /// Called if the endpoint lacks a capability that the receive needs. A connected endpoint ignores the
    /// source, since it has only one peer. The receive then needs no capability for the source.
    #[cold]
    fn ignore_or_refuse_source(&self, post: &mut ReceivePost) -> Result<(), Error> {
        if self.shared.is_connection_oriented() {
            post.from = None;
        }
        self.shared.check_caps(post.required_caps())
    }
}

receive_calls! {
    Endpoint,

    /// Receives a message into `buffer[..buffer.len()]`: `fi_recv`. The buffer's length is the room, not
    /// its capacity. If the endpoint's default flags have [`OpFlags::MULTI_RECV`], this is
    /// [`recv_multi`](Self::recv_multi).
    ///
    /// If the source is not [`UNSPECIFIED`](crate::FabricAddress::UNSPECIFIED), the receive accepts
    /// messages only from that peer: see [`RecvMsg::from`]. The endpoint then needs
    /// [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV). A connected endpoint ignores the source.
    ///
    /// # Errors
    ///
    /// The error returns the buffer.
    ///
    /// - [`Again`](crate::Again) if [`size_ops`](crate::info::RxAttr::size_ops) receives are outstanding.
    /// - [`Misuse`](crate::Misuse) for an endpoint without a queue or counter for receives, or a source that
    ///   the address vector does not hold.
    recv,

    /// Receives a message into all the room of a buffer that can be posted again: `fi_recv`. The completion
    /// returns the buffer as [`Buffer::Reusable`](crate::Buffer::Reusable). A failure also returns it, with
    /// the part of the message that was received.
    ///
    /// # Errors
    ///
    /// The errors of [`recv`](Self::recv). Also [`Misuse::Memory`](crate::Misuse::Memory) with
    /// [`BadMemory::Reusable`](crate::error::BadMemory::Reusable) if the default flags have
    /// [`OpFlags::MULTI_RECV`]: the application gets a multi-receive buffer in parts, one for each message,
    /// so the whole buffer cannot come back.
    ///
    /// ```
    /// # use homespun::{Bytes, Fabric, FabricAddress, Hints, OpenEndpoint, OperationKind};
    /// use homespun::{Completion, ReusableBuffer};
    ///
    /// # let hints = Hints::new().node("127.0.0.1").source();
    /// # let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(&hints)?;
    /// # let own = av.insert_one(endpoint.name()?)?;
    /// // The next receive to complete.
    /// let next = || -> Result<Completion, Box<dyn std::error::Error>> {
    ///     loop {
    ///         let completion = cq.sread_entry(None)?.expect("it does not time out").into_result()?;
    ///         if completion.kind() == OperationKind::Receive {
    ///             break Ok(completion);
    ///         }
    ///     }
    /// };
    /// let mut buffer = ReusableBuffer::zeroed(1 << 20);
    /// for message in ["a long message", "a short one"] {
    ///     endpoint.recv_into(buffer, FabricAddress::UNSPECIFIED, 1)?;
    ///     endpoint.send(Bytes::from_static(message.as_bytes()), own, 2)?;
    ///     buffer = next()?.buffer.into_reusable().expect("what was posted");
    ///     // The message alone, and all of the room for the next one.
    ///     assert_eq!((&buffer[..], buffer.room_bytes()), (message.as_bytes(), 1 << 20));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    recv_into,

    /// Receives with all options: `fi_recvmsg`, `fi_trecvmsg`.
    recvmsg,
}

impl Endpoint {
    /// Posts a receive into the caller's memory: `fi_recvmsg`, `fi_trecvmsg`. The other receives of
    /// `fi_msg(3)` and `fi_tagged(3)` are special cases. A segment with a null address has room for no
    /// bytes, whatever its length.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send). [`RecvMsg`] describes the errors of receives for messages that
    /// have already arrived.
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory. Nothing else may read or write a segment until the receive
    /// has ended:
    ///
    /// - A receive ends when the application has read its completion.
    /// - With selective completion, a receive without a completion ends only when the endpoint is closed.
    /// - A multi-receive buffer is in use until the application has read its release
    ///   ([`CompletionFlags::MULTI_RECV`](crate::flags::CompletionFlags::MULTI_RECV)). But the application
    ///   may read and change each message in the buffer once it has read the message's completion.
    ///
    /// Closing the endpoint ends all receives. With `PEEK`, and with `CLAIM | DISCARD`, the segments are
    /// not used.
    #[inline(always)]
    pub unsafe fn post_receive(&self, receive: &RecvMsg<&[SegmentMut]>) -> Result<(), Error> {
        // SAFETY: the caller promises what `post_raw_receive` requires: initialised memory that nothing
        // else uses until the receive has ended.
        unsafe { self.post_raw_receive(receive) }
    }
}
