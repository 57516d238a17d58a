//! The raw tier of posting: addresses and lengths, for C callers and for callers that want neither copy nor ownership.

use homespun_engine::buffer::{Destination, Room, Segment, SegmentMut, Source};
use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::Level;
use homespun_engine::rejected::Rejected;

use super::flags::{RECEIVE_KINDS, SEND_FLAGS, SEND_LEVELS, check_receive_flags, level_of, transmit_flags};
use super::peek::ARRIVED_FLAGS;
use super::{Endpoint, ServiceFlags};
use crate::av::FabricAddress;
use crate::pump::{Drive, ReceivePost, SendPost};

/// A send from the caller's memory: `fi_sendmsg`, `fi_tsendmsg` and all that they include.
#[derive(Debug, Clone, Copy)]
pub struct SendMsgRaw<'a> {
    /// What the message is gathered from.
    pub segments: &'a [Segment],
    /// The receiver, from the endpoint's address vector.
    pub to: FabricAddress,
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Remote data for the receiver's completion.
    pub data: Option<u64>,
    /// Given back in the completion.
    pub context: u64,
    /// `None` for the endpoint's default flags, as `fi_send` has them; otherwise exactly these, as
    /// [`SendMsg::flags`](super::SendMsg::flags) has them.
    pub flags: Option<OpFlags>,
}

/// A receive into the caller's memory: `fi_recvmsg`, `fi_trecvmsg` and all that they include.
#[derive(Debug, Clone, Copy)]
pub struct RecvMsgRaw<'a> {
    /// Where the message is scattered to.
    pub segments: &'a [SegmentMut],
    /// The only sender to accept, with `FI_DIRECTED_RECV`; [`FabricAddress::UNSPECIFIED`] for any.
    pub from: FabricAddress,
    /// The tag and the mask of its bits to ignore, for a tagged message.
    pub tagged: Option<(u64, u64)>,
    /// Given back in the completion.
    pub context: u64,
    /// `None` for the endpoint's default flags; otherwise exactly these. Those about a message that has arrived already, and
    /// for many messages in one buffer, are told at [`RecvMsg`](super::RecvMsg); with `PEEK`, and with `CLAIM
    /// | DISCARD`, the segments are not used.
    pub flags: Option<OpFlags>,
}

impl Endpoint {
    /// Posts a send from the caller's memory.
    ///
    /// # Errors
    ///
    /// [`Again`](homespun_engine::error::Again) when a queue is full; [`Misuse`] for an unknown address, a
    /// message that is too long, a flag that changes the meaning of another argument (`FI_TRIGGER`,
    /// `FI_XPU_TRIGGER`,
    /// `FI_MULTICAST`; all others that sends do not have are ignored), a capability that the endpoint lacks,
    /// or an endpoint that is not enabled. The memory is not used after an error.
    ///
    /// # Safety
    ///
    /// Every segment must be readable, from any thread, and unchanged, until the operation's completion was read or the
    /// endpoint was closed; with [`OpFlags::INJECT`] until this call returns. An operation without a completion of its own
    /// (selective completion) has ended when a later one to the same peer with [`OpFlags::FENCE`] has completed. That any
    /// other has completed says nothing: operations complete in any order.
    pub unsafe fn post_send(&self, send: &SendMsgRaw<'_>) -> Result<(), Error> {
        // SAFETY: the caller promises what `Source::raw` asks for: the engine ends the operation before its completion
        // can be read, copies what is injected before it returns, and is dropped when the endpoint is closed.
        let source = unsafe { Source::raw(send.segments)? };
        Ok(self.send_source(source, send.to, send.tag, send.data, send.context, send.flags)?)
    }

    /// Posts a receive into the caller's memory.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send), and as [`RecvMsg`](super::RecvMsg) tells of flags about a message that has arrived
    /// already.
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory that nothing else reads or writes until the operation's completion was
    /// read or the endpoint was closed. With selective completion and no completion of its own it must stay so until
    /// the endpoint is closed. A multi-receive buffer is the endpoint's until its release was read
    /// ([`CompletionFlags::MULTI_RECV`](homespun_engine::flags::CompletionFlags::MULTI_RECV)), except for the messages
    /// whose completions were: they may be read where they lie, and changed.
    #[inline(always)]
    pub unsafe fn post_receive(&self, receive: &RecvMsgRaw<'_>) -> Result<(), Error> {
        let flags = receive.flags.unwrap_or_else(|| self.rx_op_flags());
        if flags.intersects(RECEIVE_KINDS) {
            // SAFETY: what is asked of the caller is the same.
            return unsafe { self.post_special_receive(receive) };
        }
        // SAFETY: the caller promises what `Room::raw` and `Destination::raw` ask for: the engine ends the operation before
        // its completion can be read, and is dropped when the endpoint is closed.
        unsafe {
            if let [segment] = receive.segments {
                let room = Room::raw(*segment)?;
                let (pump, post) = self.receive(receive.from, receive.tagged, receive.context, flags)?;
                pump.post_receive_into(post, room)
            } else {
                let destination = Destination::raw(receive.segments)?;
                let RecvMsgRaw { from, tagged, context, .. } = *receive;
                Ok(self.receive_destination(destination, from, tagged, context, Some(flags))?)
            }
        }
    }

    /// Posts a receive whose flags, or the endpoint's default ones, have some of [`RECEIVE_KINDS`].
    ///
    /// # Safety
    ///
    /// As [`post_receive`](Self::post_receive).
    #[cold]
    unsafe fn post_special_receive(&self, receive: &RecvMsgRaw<'_>) -> Result<(), Error> {
        let RecvMsgRaw { segments, from, tagged, context, flags } = *receive;
        // SAFETY: the caller promises what is asked for, and the engine keeps to it as for any receive.
        let destination = || unsafe { Destination::raw(segments) };
        match flags {
            Some(flags) if flags.intersects(ARRIVED_FLAGS) => {
                match self.look_at_arrived(from, tagged, context, flags)? {
                    Some((pump, post)) => Ok(pump.receive_claimed(post, destination()?)?),
                    None => Ok(()),
                }
            }
            // `fi_tagged(3)` has no multi-receive buffers.
            flags if tagged.is_some() => {
                Ok(self.receive_destination(destination()?, from, tagged, context, flags)?)
            }
            flags => {
                let flags = flags.unwrap_or_else(|| self.rx_op_flags());
                Ok(self.receive_multi(destination()?, from, context, flags)?)
            }
        }
    }

    /// Sends a small message that may be reused at once and reports nothing: `fi_inject`, `fi_injectdata`,
    /// `fi_tinject`, `fi_tinjectdata`.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooLong`] beyond the endpoint's inject size; otherwise as [`post_send`](Self::post_send).
    #[inline(always)]
    pub fn inject(
        &self,
        message: &[u8],
        to: FabricAddress,
        tag: Option<u64>,
        data: Option<u64>,
    ) -> Result<(), Error> {
        let (pump, _) = self.shared.driven()?;
        self.check_send(message.len(), tag, true)?;
        if pump.inject(to, tag, data, message)? {
            return Ok(());
        }
        let segment = Segment { address: message.as_ptr(), len_bytes: message.len() };
        // SAFETY: `message` is borrowed for the length of this call, and the engine copies what is injected before
        // `post_send` returns.
        let source = unsafe { Source::raw(&[segment])? };
        Ok(pump.post_send(SendPost {
            to,
            source,
            tag,
            data,
            context: 0,
            level: Level::Inject,
            signalled: false,
            inject: true,
            fence: false,
            more: false,
        })?)
    }

    pub(super) fn send_source(
        &self,
        source: Source,
        to: FabricAddress,
        tag: Option<u64>,
        data: Option<u64>,
        context: u64,
        flags: Option<OpFlags>,
    ) -> Result<(), Rejected<Source>> {
        let (pump, service, effective) = match self.transmit(source.len_bytes(), tag, flags) {
            Ok(admitted) => admitted,
            Err(error) => return Err(Rejected { error, buffer: source }),
        };
        pump.post_send(SendPost {
            to,
            source,
            tag,
            data,
            context,
            level: level_of(effective),
            signalled: service.signals_transmit(effective),
            inject: effective.contains(OpFlags::INJECT),
            fence: effective.contains(OpFlags::FENCE),
            more: effective.contains(OpFlags::MORE),
        })
    }

    /// Where a send of this length is to be posted, and with which flags, if the endpoint may send so.
    #[inline(always)]
    fn transmit(
        &self,
        len_bytes: usize,
        tag: Option<u64>,
        flags: Option<OpFlags>,
    ) -> Result<(&dyn Drive, ServiceFlags, OpFlags), Error> {
        let (pump, service) = self.shared.driven()?;
        let default = self.tx_op_flags();
        let mut effective = transmit_flags(flags.unwrap_or(default), SEND_FLAGS)?;
        if !effective.intersects(SEND_LEVELS) {
            effective |= default & SEND_LEVELS;
        }
        self.check_send(len_bytes, tag, effective.contains(OpFlags::INJECT))?;
        Ok((pump, service, effective))
    }

    #[inline(always)]
    pub(super) fn receive_destination(
        &self,
        destination: Destination,
        from: FabricAddress,
        tagged: Option<(u64, u64)>,
        context: u64,
        flags: Option<OpFlags>,
    ) -> Result<(), Rejected<Destination>> {
        let flags = flags.unwrap_or_else(|| self.rx_op_flags());
        match self.receive(from, tagged, context, flags) {
            Ok((pump, post)) => pump.post_receive(post, destination),
            Err(error) => Err(Rejected { error, buffer: destination }),
        }
    }

    /// What is to be posted for a receive, and where, if the endpoint may receive so.
    #[inline(always)]
    pub(super) fn receive(
        &self,
        from: FabricAddress,
        tagged: Option<(u64, u64)>,
        context: u64,
        flags: OpFlags,
    ) -> Result<(&dyn Drive, ReceivePost), Error> {
        let (pump, service) = self.shared.driven()?;
        check_receive_flags(flags)?;
        let kind = if tagged.is_some() { Caps::TAGGED } else { Caps::MSG };
        self.shared.check_caps(kind | Caps::RECV)?;
        let post = ReceivePost {
            from: self.shared.directed(from),
            tagged,
            context,
            signalled: service.signals_receive(flags),
        };
        Ok((pump, post))
    }

    #[inline]
    fn check_send(&self, len_bytes: usize, tag: Option<u64>, inject: bool) -> Result<(), Error> {
        let info = &self.shared.info;
        let kind = if tag.is_some() { Caps::TAGGED } else { Caps::MSG };
        self.shared.check_caps(kind | Caps::SEND)?;
        if inject && len_bytes > info.tx.inject_size_bytes {
            let max_bytes = info.tx.inject_size_bytes as u64;
            return Err(Misuse::TooLong { len_bytes: len_bytes as u64, max_bytes }.into());
        }
        Ok(())
    }
}
