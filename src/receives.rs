//! Prepares receives, and posts them to an endpoint or to a shared receive context.

use std::mem::{self, ManuallyDrop};

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
/// `B` is the type of the memory: `Vec<BytesMut>` for [`recvmsg`](crate::Endpoint::recvmsg), `&[SegmentMut]`
/// for [`post_receive`](crate::Endpoint::post_receive).
///
/// # Messages that have arrived already
///
/// With the flags of this table the call posts no receive. It concerns a message that has arrived already
/// and that no receive has taken (`fi_tagged(3)`; homespun does the same for untagged messages):
///
/// | [`flags`](Self::flags) | what the call does |
/// | --- | --- |
/// | `PEEK` | looks for the earliest message that this receive would take |
/// | `PEEK \| CLAIM` | as `PEEK`, and claims the message: no other receive takes it, and no peek finds it |
/// | `PEEK \| DISCARD` | as `PEEK`, and discards the message |
/// | `CLAIM` | receives the message, tagged or not, that a peek with the same context has claimed |
/// | `CLAIM \| DISCARD` | discards that message |
///
/// A peek looks at the messages that the endpoint had received before the call, and completes at once. With
/// manual progress, it does not find what the latest read of a queue received behind the end of a receive:
/// the next read or peek finds that. (In a shared receive context it finds everything.) The completion has
/// the length, remote data, tag and source of the message. If there is no such message, the peek ends with
/// [`OperationError::NoMessage`](crate::OperationError::NoMessage), ENOMSG. Then the call makes progress,
/// so a loop of peeks finds new messages even if it reads no queue.
///
/// Peeks and discards receive no data: they drop [`buffers`](Self::buffers). Their ends are reported under
/// selective completion, too. `DISCARD` without `PEEK` or `CLAIM` has no meaning.
///
/// With `CLAIM` but without `PEEK`, the context names the message. Tag and source are ignored, but
/// [`tagged`](Self::tagged) must be `Some` for a tagged message and `None` for an untagged one. A claimed
/// message takes memory out of [`total_buffered_recv_bytes`](crate::info::RxAttr::total_buffered_recv_bytes)
/// until a call receives or discards it.
///
/// These calls have the errors of every receive, and three more:
///
/// - [`Again::QueueFull`](crate::Again::QueueFull) for a peek at untagged messages, while the completion
///   queue has no room for messages that a multi-receive buffer may take;
/// - [`Misuse::Invalid`] for all three flags at once, or for a `PEEK | CLAIM` with a context that already
///   holds a claimed message;
/// - [`Misuse::NotFound`] for a context that holds no claimed message.
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
/// With [`OpFlags::MULTI_RECV`], an untagged receive takes one message after another into its one buffer
/// (`fi_msg(3)`). Messages begin at addresses that are multiples of
/// [`MULTI_RECV_ALIGN_BYTES`](crate::limits::MULTI_RECV_ALIGN_BYTES), except a message that fits only
/// unaligned. The receive keeps its place among the posted receives until
///
/// - fewer bytes than [`min_multi_recv_bytes`](crate::Endpoint::min_multi_recv_bytes) are left, or
/// - a message that it would take does not fit any more. This message goes to the next receive, or waits for
///   one. Only a message that is longer than an empty buffer is truncated, as in any receive, and uses the
///   buffer up.
///
/// Each message has its own completion, with the context of the receive. The completion's
/// [`buffer`](crate::Completion::buffer) is [`Buffer::Received`]: a [`BytesMut`] of the message, without a
/// copy. With the caller's memory it is [`Buffer::Within`], the place of the message. If the sender of a
/// message dies half-way, an error reports the message, and its room is lost. The receive still takes other
/// messages.
///
/// Once no more messages arrive in the buffer, it is released. The release is reported exactly once, under
/// selective completion, too, by the flag
/// [`CompletionFlags::MULTI_RECV`](crate::flags::CompletionFlags::MULTI_RECV):
///
/// - The last message to complete has the flag in its completion, with [`Buffer::ReceivedLast`].
/// - If no message is left, a separate entry has the flag alone, with [`Buffer::Unused`].
/// - If the receive is cancelled, or its only sender is gone, the error entry has the flag.
///
/// Until the release the buffer counts as one outstanding receive, and each message that is arriving in it
/// counts as another.
///
/// With resource management, the buffer takes no message while the completion queue is full. Messages for it
/// wait as if no receive were posted. No later message or receive overtakes them.
///
/// These receives have the errors of every receive, and two more: [`Misuse::TooManySegments`]
/// for more than one buffer, and [`Misuse::Memory`] for none. Tagged receives, and receives with flags of the
/// table above, ignore `MULTI_RECV`.
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
    /// The memory for the message, in up to [`iov_limit`](crate::info::RxAttr::iov_limit) pieces. A message
    /// fills at most the length of each piece.
    pub buffers: B,
    /// The only sender to accept; [`FabricAddress::UNSPECIFIED`] for any sender. A receive from one sender
    /// needs [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV). The receive fails when the last link to
    /// the sender ends, or an attempt to connect to the sender fails. If the endpoint has lost the sender
    /// before, posting the receive makes the endpoint connect again. Otherwise the receive opens no link,
    /// since the sender may not have started yet.
    pub from: FabricAddress,
    /// The tags to accept, for a tagged message.
    pub tagged: Option<TagMatch>,
    /// The context of the completion.
    pub context: u64,
    /// The flags, instead of the endpoint's [default flags](crate::Endpoint::rx_op_flags). Flags that have
    /// no meaning for a receive are ignored.
    pub flags: OpFlags,
}

/// An object to which receives are posted.
pub(crate) trait ReceivePoster {
    /// Returns the free bytes below which a multi-receive buffer is released.
    fn multi_receive_min_bytes(&self) -> usize;

    /// Posts a receive of one message by the receive lane, if its flags allow that and it has to wait for its
    /// message. Returns whether it was posted. If so, the memory was taken. If not, nothing has changed.
    #[inline(always)]
    fn try_post_waiting<B>(&self, _receive: &RecvMsg<B>, _destination: &mut Destination) -> bool {
        false
    }

    /// Posts a receive with these flags. If it is refused, the memory stays in the post.
    fn submit_receive(&self, post: &mut ReceivePost, flags: OpFlags) -> Result<(), Error>;

    /// Posts a receive into the caller's memory.
    ///
    /// # Safety
    ///
    /// As [`Endpoint::post_receive`](crate::Endpoint::post_receive).
    #[inline(always)]
    unsafe fn post_raw_receive(&self, receive: &RecvMsg<&[SegmentMut]>) -> Result<(), Error> {
        if let [_] = receive.buffers {
            // SAFETY: the caller promises what the function requires. The engine keeps its promise as below.
            let mut destination = unsafe { Destination::raw_allowing_null(receive.buffers)? };
            let is_posted = self.try_post_waiting(receive, &mut destination);
            // Memory of the caller needs no drop.
            mem::forget(destination);
            if is_posted {
                return Ok(());
            }
        }
        // SAFETY: as above.
        unsafe { self.post_raw_receive_in_general(receive) }
    }

    /// As [`post_raw_receive`](Self::post_raw_receive), for a receive that the lane does not take.
    ///
    /// # Safety
    ///
    /// As [`Endpoint::post_receive`](crate::Endpoint::post_receive).
    #[inline(never)]
    unsafe fn post_raw_receive_in_general(&self, receive: &RecvMsg<&[SegmentMut]>) -> Result<(), Error> {
        let RecvMsg { buffers, from, tagged, context, flags } = *receive;
        let kind = self.receive_kind(tagged.is_some(), flags)?;
        let destination = if kind.fills_memory() {
            // SAFETY: the caller promises what `Destination::raw_allowing_null` requires. The engine ends
            // the operation before the application can read its completion, and is dropped when the
            // endpoint is closed.
            unsafe { Destination::raw_allowing_null(buffers)? }
        } else {
            Destination::default()
        };
        self.submit_receive(&mut self.make_receive_post(from, tagged, kind, destination, context), flags)
    }

    /// Posts a receive with owned memory. A refused receive hands the memory back. An accepted receive that
    /// will not fill its memory drops the memory.
    #[inline(always)]
    fn post_owned_receive<B: Owned<Lent = Destination>>(
        &self,
        buffers: B,
        from: FabricAddress,
        tagged: Option<TagMatch>,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        if flags.intersects(RECEIVE_KINDS) {
            return self.post_owned_receive_of_special_kind(buffers, from, tagged, context, flags);
        }
        self.post_owned_receive_of_kind(ReceiveKind::Single, buffers, from, tagged, context, flags)
    }

    #[cold]
    fn post_owned_receive_of_special_kind<B: Owned<Lent = Destination>>(
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
            return self.post_owned_receive_of_kind(kind, buffers, from, tagged, context, flags);
        }
        let mut post = self.make_receive_post(from, tagged, kind, Destination::default(), context);
        self.submit_receive(&mut post, flags).map_err(|error| Rejected { error, returned: buffers })
    }

    #[inline(always)]
    fn post_owned_receive_of_kind<B: Owned<Lent = Destination>>(
        &self,
        kind: ReceiveKind,
        buffers: B,
        from: FabricAddress,
        tagged: Option<TagMatch>,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        let mut destination = buffers.lend()?;
        let receive = RecvMsg { buffers: (), from, tagged, context, flags };
        if kind == ReceiveKind::Single && self.try_post_waiting(&receive, &mut destination) {
            // What is left is an empty destination.
            mem::forget(destination);
            return Ok(());
        }
        // `submit_receive` or `take_back_buffer` moves the memory out of the post, so the post need not be
        // dropped.
        let mut post = ManuallyDrop::new(self.make_receive_post(from, tagged, kind, destination, context));
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
        ReceivePost { from, tagged, kind, destination, context, signalled: Signalled::Yes, work: None }
    }

    /// Returns a receive that is to wait for a counter.
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

/// Moves the memory out of a receive that was refused, and returns it.
#[cold]
fn take_back_buffer<B: Owned>(post: &mut ReceivePost) -> B {
    B::from_buffer(post.take_buffer())
}
