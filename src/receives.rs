//! Receives on their way to where they are posted: an endpoint, or a receive context that endpoints share.

use std::mem::ManuallyDrop;

use bytes::BytesMut;
use homespun_engine::buffer::{Buffer, Destination, SegmentMut};
use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::OpFlags;
use homespun_engine::operation::Signalled;
use homespun_engine::rejected::Rejected;

use crate::av::FabricAddress;
use crate::op_flags::{RECEIVE_KINDS, special_receive_kind};
use crate::owned::Owned;
use crate::post::{ReceiveKind, ReceivePost};
use crate::tag::TagMatch;

/// A receive with all options: the arguments of `fi_recvmsg` and `fi_trecvmsg`.
///
/// `B` is the memory: `Vec<BytesMut>` for [`recvmsg`](crate::Endpoint::recvmsg), `&[SegmentMut]` for
/// [`post_receive`](crate::Endpoint::post_receive).
///
/// # Messages that have arrived already
///
/// With some flags nothing is posted. Instead the receive concerns a message that arrived before a receive
/// for it was posted (`fi_tagged(3)`; untagged messages are treated alike):
///
/// | [`flags`](Self::flags) | what is done |
/// | --- | --- |
/// | `PEEK` | looks for the earliest message that this receive would take |
/// | `PEEK \| CLAIM` | and sets it aside: no other receive takes it, nor does a peek find it |
/// | `PEEK \| DISCARD` | and throws it away |
/// | `CLAIM` | receives the message that a peek with the same context and of the same kind has claimed |
/// | `CLAIM \| DISCARD` | throws that message away |
///
/// A peek completes with length, remote data, tag and source of the message. It brings no data, so
/// [`buffers`](Self::buffers) are ignored with `PEEK`, and with `CLAIM | DISCARD`, and dropped. `DISCARD`
/// alone has no meaning. A peek answers at once, from what the endpoint had received before the call: if no
/// such message is among that, it ends with [`OperationError::NoMessage`](crate::OperationError::NoMessage),
/// ENOMSG. After its answer it makes progress, so a loop of peeks finds what arrives, also if it reads no
/// queue. Its end, and that of a `DISCARD`, is reported under selective completion too.
///
/// With `CLAIM` alone or with `DISCARD` neither tag nor source matter: the context names the message, and
/// whether [`tagged`](Self::tagged) is there says of which kind it is. A claimed message takes up memory, of
/// what [`total_buffered_recv_bytes`](crate::info::RxAttr::total_buffered_recv_bytes) allows, until it was
/// received or discarded.
///
/// Beside what every call refuses there are [`Again::QueueFull`](crate::Again::QueueFull) for a peek at
/// untagged messages while the completion queue has no room for those that a multi-receive buffer may take;
/// [`Misuse::Invalid`](crate::Misuse::Invalid) for `DISCARD` with both others, and for claiming with a
/// context that holds a claimed message already; and [`Misuse::NotFound`](crate::Misuse::NotFound) for a
/// context that holds none.
///
/// ```
/// # use homespun::{AvAttr, BindFlags, CqAttr, Fabric, Hints};
/// use homespun::{Buffer, Bytes, BytesMut, OpFlags, OperationError, ReadError, RecvMsg, Tag};
///
/// # let fabric = Fabric::new();
/// # let info = &fabric.info(&Hints::new().node("127.0.0.1").source())?;
/// # let domain = fabric.domain(info)?;
/// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
/// # let endpoint = domain.endpoint(info)?;
/// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// # endpoint.bind_av(&av)?;
/// # endpoint.enable()?;
/// # let own = av.insert_one(endpoint.name()?)?;
/// // The next completion, or nothing for a message that has not arrived.
/// let next = || loop {
///     match cq.read() {
///         Ok(Some(completion)) => break Some(completion),
///         Ok(None) => {}
///         Err(ReadError::ErrorAvailable) => {
///             let failed = cq.read_error().unwrap().unwrap();
///             assert_eq!(failed.error, OperationError::NoMessage);
///             break None;
///         }
///         Err(error) => panic!("{error}"),
///     }
/// };
/// // A message to itself with the tag 7, which no receive expects.
/// endpoint.tsend(Bytes::from_static(b"hello"), own, Tag(7), 0)?;
/// assert_eq!(next().unwrap().context, 0);
///
/// // How long is it? A peek, with the context 1, until it is there.
/// let look = RecvMsg {
///     tagged: Some(Tag(7).into()),
///     context: 1,
///     flags: OpFlags::PEEK | OpFlags::CLAIM,
///     ..RecvMsg::default()
/// };
/// let found = loop {
///     endpoint.recvmsg(look.clone())?;
///     if let Some(found) = next() {
///         break found;
///     }
/// };
/// assert_eq!((found.context, found.tag, found.len_bytes), (1, Tag(7), 5));
///
/// // Room for exactly that. The context says which message is meant.
/// let buffers = vec![BytesMut::zeroed(found.len_bytes)];
/// endpoint.recvmsg(RecvMsg { buffers, flags: OpFlags::CLAIM, ..look })?;
/// let received = next().unwrap();
/// assert_eq!(received.buffer, Buffer::ReceivedVector(vec![BytesMut::from(&b"hello"[..])]));
/// # Ok::<(), homespun::Error>(())
/// ```
///
/// # Many messages in one buffer
///
/// With [`OpFlags::MULTI_RECV`], on an endpoint with the capability of that name, an untagged receive takes
/// one message after another, packed into its one buffer (`fi_msg(3)`). They begin at addresses that are
/// multiples of [`MULTI_RECV_ALIGN_BYTES`](crate::limits::MULTI_RECV_ALIGN_BYTES), except a message
/// that fits only unaligned. The receive keeps its place among the posted receives until
///
/// - less than [`min_multi_recv_bytes`](crate::Endpoint::min_multi_recv_bytes) are left, or
/// - a message is for it that does not fit any more. That message goes to the next receive, or
///   waits for one; nothing is lost. Only a message that is longer than a buffer which has taken
///   nothing yet is cut short, as by any receive, and uses the buffer up.
///
/// Each message completes by itself, with the context of the receive. Where it lies is its
/// [`buffer`](crate::Completion::buffer): a [`BytesMut`] of its own,
/// [`Buffer::Received`](crate::Buffer::Received), that shares the memory of the whole without a copy; or with
/// memory of the caller's its place, [`Buffer::Within`](crate::Buffer::Within). A message that fails, since
/// its sender dies half-way, is an error of its own, and its room is lost; others are still taken.
///
/// Once nothing arrives in it any more the buffer is released, which is reported exactly once, under
/// selective completion too, by [`CompletionFlags::MULTI_RECV`](crate::flags::CompletionFlags::MULTI_RECV):
/// on the completion of the message that is the last to complete, with
/// [`Buffer::ReceivedLast`](crate::Buffer::ReceivedLast); or, if there is none to carry it, in an entry with
/// that flag alone and [`Buffer::Unused`](crate::Buffer::Unused). A receive that is cancelled, or whose only
/// sender is gone, is released by the error entry that says so. It counts as one outstanding receive until
/// then, and so does each message that is arriving in it.
///
/// With resource management, while the completion queue is full, the buffer takes no message. Messages for it
/// wait as if no receive were posted, and no later message or receive overtakes them.
///
/// Beside what every call refuses there are [`Misuse::NoCapability`](crate::Misuse::NoCapability),
/// [`Misuse::TooManySegments`](crate::Misuse::TooManySegments) for more than one buffer, and
/// [`Misuse::Memory`](crate::Misuse::Memory) for none. Tagged receives, and those with the flags above,
/// ignore this one.
///
/// ```
/// use homespun::flags::{BindFlags, CompletionFlags, InfoFlags};
/// use homespun::{AvAttr, Buffer, Bytes, BytesMut, CqAttr, Fabric, FabricAddress};
///
/// # let fabric = Fabric::new();
/// # let info = &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None)?[0];
/// # let domain = fabric.domain(info)?;
/// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
/// # let endpoint = domain.endpoint(info)?;
/// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// # endpoint.bind_av(&av)?;
/// # endpoint.enable()?;
/// # let own = av.insert(&[endpoint.name()?]).remove(0)?;
/// // One buffer, with the context 1, and three messages to itself. The third leaves less than 16 bytes.
/// endpoint.set_min_multi_recv_bytes(16);
/// endpoint.recv_multi(BytesMut::zeroed(32), FabricAddress::UNSPECIFIED, 1)?;
/// for message in ["one", "two", "and three"] {
///     endpoint.send(Bytes::from_static(message.as_bytes()), own, 2)?;
/// }
/// let mut messages = Vec::new();
/// let unused = loop {
///     let completion = match cq.read() {
///         Ok(Some(completion)) if completion.context == 1 => completion,
///         Ok(_) => continue,
///         Err(error) => panic!("{error}: {:?}", cq.read_error()),
///     };
///     match completion.buffer {
///         Buffer::Received(message) => messages.push(message),
///         Buffer::ReceivedLast(last) => {
///             messages.push(last.message);
///             break last.unused;
///         }
///         Buffer::Unused(unused) => break unused,
///         other => unreachable!("{other:?}"),
///     }
/// };
/// assert_eq!(messages, [&b"one"[..], &b"two"[..], &b"and three"[..]]);
/// assert!(unused.len() < 16);
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct RecvMsg<B = Vec<BytesMut>> {
    /// The memory for the message, in up to [`iov_limit`](crate::info::RxAttr::iov_limit) pieces, each
    /// filled up to its length.
    pub buffers: B,
    /// The only sender to accept, which needs [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV);
    /// [`FabricAddress::UNSPECIFIED`] for any. The receive fails when the last link to that sender ends, or
    /// an attempt to connect to it fails. If the sender was lost before the receive is posted, the endpoint
    /// connects to it again; otherwise only sends and accesses connect, and the receive waits for a sender
    /// that may yet start.
    pub from: FabricAddress,
    /// The tags to accept, for a tagged message.
    pub tagged: Option<TagMatch>,
    /// Given back in the completion.
    pub context: u64,
    /// Flags, in place of the endpoint's [default ones](crate::Endpoint::rx_op_flags). Those that
    /// have no meaning for receives are ignored.
    pub flags: OpFlags,
}

/// An object that receives are posted to.
pub(crate) trait ReceivePoster {
    /// With less room than this, in bytes, a multi-receive buffer is released.
    fn multi_receive_min_bytes(&self) -> usize;

    /// Posts a receive with these flags. The memory stays in the post if it is refused.
    fn submit_receive(&self, post: &mut ReceivePost, flags: OpFlags) -> Result<(), Error>;

    /// Posts a receive into the caller's memory.
    ///
    /// # Safety
    ///
    /// As [`Endpoint::post_receive`](crate::Endpoint::post_receive) says.
    #[inline(always)]
    unsafe fn receive_raw(&self, receive: &RecvMsg<&[SegmentMut]>) -> Result<(), Error> {
        let RecvMsg { buffers, from, tagged, context, flags } = *receive;
        let kind = self.receive_kind(tagged.is_some(), flags)?;
        let destination = if kind.fills_memory() {
            // SAFETY: the caller promises what `Destination::raw_allowing_null` asks for: the engine ends
            // the operation before its completion can be read, and is dropped when the endpoint is closed.
            unsafe { Destination::raw_allowing_null(buffers)? }
        } else {
            Destination::default()
        };
        self.submit_receive(&mut self.make_receive_post(from, tagged, kind, destination, context), flags)
    }

    /// Posts a receive whose memory is owned, or hands the memory back. What is not to be filled is dropped.
    #[inline(always)]
    fn receive_owned<B: Owned<Lent = Destination>>(
        &self,
        buffers: B,
        from: FabricAddress,
        tagged: Option<TagMatch>,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        if flags.intersects(RECEIVE_KINDS) {
            return self.receive_owned_special_kind(buffers, from, tagged, context, flags);
        }
        self.receive_owned_as(ReceiveKind::Single, buffers, from, tagged, context, flags)
    }

    #[cold]
    fn receive_owned_special_kind<B: Owned<Lent = Destination>>(
        &self,
        buffers: B,
        from: FabricAddress,
        tagged: Option<TagMatch>,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        let kind = match self.receive_kind(tagged.is_some(), flags) {
            Ok(kind) => kind,
            Err(misuse) => return Err(Rejected { error: misuse.into(), returned: buffers }),
        };
        if kind.fills_memory() {
            return self.receive_owned_as(kind, buffers, from, tagged, context, flags);
        }
        let mut post = self.make_receive_post(from, tagged, kind, Destination::default(), context);
        self.submit_receive(&mut post, flags).map_err(|error| Rejected { error, returned: buffers })
    }

    #[inline(always)]
    fn receive_owned_as<B: Owned<Lent = Destination>>(
        &self,
        kind: ReceiveKind,
        buffers: B,
        from: FabricAddress,
        tagged: Option<TagMatch>,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        // Nothing of it is left to be dropped: a post that is accepted has no memory any more.
        let mut post =
            ManuallyDrop::new(self.make_receive_post(from, tagged, kind, buffers.lend()?, context));
        match self.submit_receive(&mut post, flags) {
            Ok(()) => Ok(()),
            Err(error) => Err(Rejected { error, returned: take_back_buffer(&mut post) }),
        }
    }

    #[inline(always)]
    fn make_receive_post(
        &self,
        from: FabricAddress,
        tagged: Option<TagMatch>,
        kind: ReceiveKind,
        destination: Destination,
        context: u64,
    ) -> ReceivePost {
        let from = (from != FabricAddress::UNSPECIFIED).then_some(from);
        ReceivePost { from, tagged, kind, destination, context, signalled: Signalled::Yes }
    }

    /// Makes a receive that waits for a counter.
    fn make_waiting_receive<B>(
        &self,
        receive: RecvMsg<B>,
        lend: impl FnOnce(B) -> Result<Destination, Rejected<Buffer>>,
    ) -> Result<ReceivePost, Rejected<Buffer>> {
        let RecvMsg { buffers, from, tagged, context, flags } = receive;
        let kind = self.receive_kind(tagged.is_some(), flags);
        let destination = lend(buffers)?;
        match kind {
            Ok(kind) => Ok(self.make_receive_post(from, tagged, kind, destination, context)),
            Err(misuse) => Err(Rejected { error: misuse.into(), returned: destination.into_buffer() }),
        }
    }

    /// Returns the kind of a receive with these flags.
    #[inline(always)]
    fn receive_kind(&self, is_tagged: bool, flags: OpFlags) -> Result<ReceiveKind, Misuse> {
        if flags.intersects(RECEIVE_KINDS) {
            special_receive_kind(flags, is_tagged, self.multi_receive_min_bytes())
        } else {
            Ok(ReceiveKind::Single)
        }
    }
}

/// The memory of a receive that was refused.
#[cold]
fn take_back_buffer<B: Owned>(post: &mut ReceivePost) -> B {
    B::from_buffer(post.take_buffer())
}
