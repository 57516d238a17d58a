//! The calls of an endpoint that post sends, with owned memory or with the caller's: `fi_msg(3)`,
//! `fi_tagged(3)`.
//!
//! The calls have the names of their C counterparts, and the errors of [`Endpoint::post_send`]. If a call
//! fails, a [`Rejected`] returns the owned message with the error.

use std::mem::{self, ManuallyDrop};

use bytes::Bytes;
use homespun_engine::buffer::{Segment, Source};
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::{Signalled, TransmitOp};
use homespun_engine::rejected::Rejected;

use super::Endpoint;
use crate::av::FabricAddress;
use crate::op_flags::may_send_at_once;
use crate::owned::Owned;
use crate::post::Post;
use crate::send_msg::SendMsg;
use crate::tag::Tag;
use crate::{is_any_planted, mutated};

impl Endpoint {
    /// Sends a message: `fi_send`.
    ///
    /// ```
    /// use homespun::{Again, Bytes, Endpoint, Error, FabricAddress, Rejected};
    ///
    /// /// Sends a message as soon as the endpoint has room for it.
    /// fn send(endpoint: &Endpoint, mut message: Bytes, to: FabricAddress) -> Result<(), Error> {
    ///     loop {
    ///         match endpoint.send(message, to, 0) {
    ///             Err(Rejected { error: Error::Again(Again::QueueFull), returned }) => message = returned,
    ///             other => return Ok(other?),
    ///         }
    ///         // Read completions here, which makes room.
    ///     }
    /// }
    /// ```
    pub fn send(&self, message: Bytes, to: FabricAddress, context: u64) -> Result<(), Rejected<Bytes>> {
        self.send_owned(message, to, None, None, context, self.uncommitted_op_flags())
    }

    /// Sends a message in pieces: `fi_sendv`.
    pub fn sendv(
        &self,
        pieces: Vec<Bytes>,
        to: FabricAddress,
        context: u64,
    ) -> Result<(), Rejected<Vec<Bytes>>> {
        self.send_owned(pieces, to, None, None, context, self.uncommitted_op_flags())
    }

    /// Sends a message with remote data for the receiver's completion: `fi_senddata`.
    pub fn senddata(
        &self,
        message: Bytes,
        data: u64,
        to: FabricAddress,
        context: u64,
    ) -> Result<(), Rejected<Bytes>> {
        self.send_owned(message, to, None, Some(data), context, self.uncommitted_op_flags())
    }

    /// Sends a tagged message: `fi_tsend`.
    pub fn tsend(
        &self,
        message: Bytes,
        to: FabricAddress,
        tag: Tag,
        context: u64,
    ) -> Result<(), Rejected<Bytes>> {
        self.send_owned(message, to, Some(tag), None, context, self.uncommitted_op_flags())
    }

    /// Sends a tagged message in pieces: `fi_tsendv`.
    pub fn tsendv(
        &self,
        pieces: Vec<Bytes>,
        to: FabricAddress,
        tag: Tag,
        context: u64,
    ) -> Result<(), Rejected<Vec<Bytes>>> {
        self.send_owned(pieces, to, Some(tag), None, context, self.uncommitted_op_flags())
    }

    /// Sends a tagged message with remote data for the receiver's completion: `fi_tsenddata`.
    pub fn tsenddata(
        &self,
        message: Bytes,
        data: u64,
        to: FabricAddress,
        tag: Tag,
        context: u64,
    ) -> Result<(), Rejected<Bytes>> {
        self.send_owned(message, to, Some(tag), Some(data), context, self.uncommitted_op_flags())
    }

    /// Sends with all options: `fi_sendmsg`, `fi_tsendmsg`.
    pub fn sendmsg(&self, send: SendMsg) -> Result<(), Rejected<SendMsg>> {
        let SendMsg { buffers, to, tag, data, context, flags } = send;
        self.send_owned(buffers, to, tag, data, context, flags)
            .map_err(|rejected| rejected.map(|buffers| SendMsg { buffers, to, tag, data, context, flags }))
    }

    /// Posts a send from the caller's memory: `fi_sendmsg`, `fi_tsendmsg`. The other sends of `fi_msg(3)`
    /// and `fi_tagged(3)` are special cases.
    ///
    /// # Errors
    ///
    /// The memory is not used after an error.
    ///
    /// - [`Again`](crate::Again) if as many operations are outstanding as the endpoint's transmit size
    ///   allows.
    /// - [`Misuse`](crate::Misuse) for an unknown address, a message that is too long, an endpoint without
    ///   a queue or counter for sends, or one that is not enabled.
    /// - [`Misuse::Flags`](crate::Misuse::Flags) for `FI_TRIGGER`, `FI_XPU_TRIGGER` and `FI_MULTICAST`,
    ///   which change the meaning of another argument. Sends ignore all other flags that have no meaning
    ///   for them.
    ///
    /// # Safety
    ///
    /// Every segment must stay readable from any thread, and unchanged, until the operation has ended:
    ///
    /// - With [`OpFlags::INJECT`], it has ended when this call returns.
    /// - Otherwise, it has ended when the application has read its completion or has closed the endpoint.
    /// - With selective completion, a send without a completion has ended when a later operation with
    ///   [`OpFlags::FENCE`] to the same peer has completed. No other completion proves the end, since
    ///   operations complete in any order.
    pub unsafe fn post_send(&self, send: &SendMsg<&[Segment]>) -> Result<(), Error> {
        let SendMsg { buffers, to, tag, data, context, flags } = *send;
        // SAFETY: the caller promises what `Source::raw` requires. The engine ends the operation before the
        // application can read its completion. The engine copies injected bytes before this call returns.
        // Closing the endpoint drops the engine.
        let source = unsafe { Source::raw(buffers)? };
        let op = TransmitOp::Send { source, tag: tag.map(|Tag(tag)| tag), data };
        self.post_with_flags(&mut Post::new(to, op, context), flags)
    }

    /// As [`post_send`](Self::post_send), for a message in one piece: `fi_send`, `fi_tsend`. A small one that
    /// nothing holds back takes a shorter way.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// As [`post_send`](Self::post_send), for the bytes. So their lifetime is not that of the borrow.
    #[inline(always)]
    pub unsafe fn post_send_of_one_piece(&self, send: &SendMsg<&[u8]>) -> Result<(), Error> {
        if self.try_send_at_once(send, None) {
            return Ok(());
        }
        // SAFETY: the caller promises it.
        unsafe { self.post_piece(send) }
    }

    /// As [`post_send_of_one_piece`](Self::post_send_of_one_piece), for a send that the lane does not take.
    ///
    /// # Safety
    ///
    /// As [`post_send`](Self::post_send).
    #[inline(never)]
    unsafe fn post_piece(&self, send: &SendMsg<&[u8]>) -> Result<(), Error> {
        let SendMsg { buffers: bytes, to, tag, data, context, flags } = *send;
        let buffers = &[Segment { address: bytes.as_ptr(), len_bytes: bytes.len() }];
        // SAFETY: the caller promises it.
        unsafe { self.post_send(&SendMsg { buffers, to, tag, data, context, flags }) }
    }

    /// Sends a small message, and reports no success: `fi_inject`, `fi_injectdata`, `fi_tinject`,
    /// `fi_tinjectdata`. The application may reuse the message's memory at once.
    ///
    /// # Errors
    ///
    /// The errors of [`post_send`](Self::post_send). Also [`Misuse::TooLong`](crate::Misuse::TooLong) for a
    /// message that is longer than the endpoint's inject size.
    #[inline(always)]
    pub fn inject(
        &self,
        message: &[u8],
        to: FabricAddress,
        tag: Option<Tag>,
        data: Option<u64>,
    ) -> Result<(), Error> {
        let mut tag = tag.map(|Tag(tag)| tag);
        if data.is_some() {
            tag = match tag {
                None if mutated!("fi_msg/every-send-meets-every-receive") => Some(0),
                Some(_) if mutated!("fi_tagged/tagged-sends-meet-tagged-receives") => None,
                tag => tag,
            };
        }
        let pump = self.pump_if_inject_allowed(Caps::SEND, message.len())?;
        let send =
            SendMsg { buffers: message, to, tag: tag.map(Tag), data, context: 0, flags: OpFlags::empty() };
        if !is_any_planted() && pump.try_send_at_once(&send, Signalled::No, None) {
            return Ok(());
        }
        let is_reported = match tag {
            Some(_) => mutated!("fi_tagged/tinject-frees-and-hides"),
            None => mutated!("fi_msg/inject-frees-and-hides"),
        };
        let segment = Segment { address: message.as_ptr(), len_bytes: message.len() };
        // SAFETY: `message` is borrowed until this call returns, and the engine copies an injected
        // message before `post` returns.
        let source = unsafe { Source::raw(&[segment])? };
        let mut post = Post::new(to, TransmitOp::Send { source, tag, data }, 0);
        if is_reported {
            post.request.options.signalled = Signalled::Yes;
        }
        pump.post(&mut post)
    }

    #[inline(always)]
    fn send_owned<B: Owned<Lent = Source>>(
        &self,
        buffers: B,
        to: FabricAddress,
        tag: Option<Tag>,
        data: Option<u64>,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        let mut buffers = buffers;
        if let Some(owned) = buffers.as_single_bytes() {
            let message = SendMsg { buffers: &[][..], to, tag, data, context, flags };
            if self.try_send_at_once(&message, Some(owned)) {
                // What is left is an empty buffer.
                mem::forget(buffers);
                return Ok(());
            }
        }
        let source = buffers.lend()?;
        let op = TransmitOp::Send { source, tag: tag.map(|Tag(tag)| tag), data };
        let mut post = ManuallyDrop::new(Post::new(to, op, context));
        self.submit_owned(&mut post, flags)
    }

    /// Sends a small message by the send lane, if its flags allow that and nothing holds it back. Returns
    /// whether it was sent. If not, nothing has changed, and the caller posts it. `owned` is the message, if
    /// the completion hands it back.
    #[inline(always)]
    fn try_send_at_once(&self, send: &SendMsg<&[u8]>, owned: Option<&mut Bytes>) -> bool {
        let Ok((pump, service)) = self.shared.enabled_pump() else { return false };
        let flags = send.flags;
        may_send_at_once(flags, self.uncommitted_op_flags())
            && self.shared.info.caps.contains(Caps::SEND)
            && pump.try_send_at_once(send, service.signalled_for_transmit(flags), owned)
    }
}
