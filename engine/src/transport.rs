//! The interface of a backend: [`Provider`] opens a [`Transport`], and the transport moves frames.
//!
//! A transport knows sockets or rings, never a completion queue, an operation or an `fi_addr_t`. No raw
//! pointer crosses this interface: payload to send arrives as borrowed slices, and payload that was
//! received is put where [`FrameHandler::payload_space`] says, or handed over by [`FrameHandler::chunk`].

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use smallvec::SmallVec;

use crate::address::{Address, AddressFormat};
use crate::errno::Errno;
use crate::limits::{IOV_LIMIT, REMOTE_MAX_BYTES};
use crate::wire::Header;

/// One connection between two endpoints, numbered by the transport that owns it.
///
/// A number is free for reuse once [`FrameHandler::link_event`] has reported [`LinkEvent::Down`] for it, or
/// [`Transport::close`] was called on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// How much of a frame [`Transport::send`] or [`Transport::resume`] has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Nothing was taken; the same call may be repeated later. Also the answer on a link that has
    /// broken, until that is reported.
    Full,
    /// The header and this many bytes of the payload, fewer than all, were taken. Nothing else may
    /// be given to the link until [`Transport::resume`] has delivered the rest.
    Partial(usize),
    /// All of it was taken; the payload will not be read again.
    Whole,
}

/// Nothing was taken because the link has no room; the same call may be repeated later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// How to end a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// Frames taken so far still reach the peer, which then sees [`LinkError::Closed`], or
    /// ECONNRESET if a frame was taken in part only. Later frames of the peer are read and dropped.
    /// The endpoint must live until the link is no longer [draining](Transport::draining_count).
    Drain,
    /// Ends the link at once. Buffered frames are lost.
    Abort,
}

/// The payload sizes up to which, or from which, a link can do certain things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCaps {
    /// The largest payload, in bytes, that [`Transport::send_inline`] takes.
    pub inline_max_bytes: usize,
    /// From this size on, in bytes, it pays to have the peer [`pull`](Transport::pull) payload
    /// instead of sending it. `usize::MAX` on a link that cannot pull.
    pub pull_min_bytes: usize,
}

/// The description of payload that was [exposed](Transport::expose) to a peer: bytes that only the
/// transports at both ends interpret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemotePayload(SmallVec<[u8; REMOTE_MAX_BYTES]>);

impl RemotePayload {
    /// Holds `bytes`, or is `None` if they are more than [`REMOTE_MAX_BYTES`].
    pub fn new(bytes: &[u8]) -> Option<RemotePayload> {
        (bytes.len() <= REMOTE_MAX_BYTES).then(|| RemotePayload(SmallVec::from_slice(bytes)))
    }

    /// Returns the bytes of the description.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The result of a [`pull`](Transport::pull).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// The bytes are in place.
    Done,
    /// This process may not, or cannot, access the peer's memory, now or later. The peer has to
    /// send the payload that it exposed.
    Refused,
    /// The memory that the peer named is not its own, or not all of it is. The link is sound.
    Fault,
    /// The peer is gone, or no longer exposes anything. Bytes already put in place are not valid.
    /// One of the next calls of [`receive`](Transport::receive) reports the link as down.
    Gone,
}

/// Whether the descriptor of [`Transport::wake_fd`] wakes the caller for the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// There may be something to do right now: call [`receive`](Transport::receive) instead of sleeping.
    Ready,
    /// The next event makes the descriptor readable.
    Asleep {
        /// The time after which the caller must call [`receive`](Transport::receive) at the latest,
        /// for an event that wakes no descriptor, such as room in a peer's backlog.
        look_again_after: Option<Duration>,
    },
}

impl Armed {
    /// Returns the same, but with a call of [`receive`](Transport::receive) due within this time.
    #[must_use]
    pub fn look_again_within(self, time: Duration) -> Armed {
        match self {
            Armed::Ready => Armed::Ready,
            Armed::Asleep { look_again_after } => Armed::Asleep {
                look_again_after: Some(look_again_after.map_or(time, |after| after.min(time))),
            },
        }
    }
}

/// An event of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// The peer's hello has arrived. Comes once, before the first frame of the link, for links that
    /// were accepted as well as for links that this side connected. An accepted link that ends
    /// before its hello is never mentioned.
    Up {
        /// The peer's endpoint address. On a link that this side connected it is the address connected to.
        peer: Address,
        /// A random number that the peer's endpoint drew when it was opened: another number at the same
        /// address is another endpoint.
        instance: u64,
    },
    /// The link has ended. Everything that arrived before was reported first; nothing follows.
    Down(LinkError),
}

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer closed its endpoint in order, after all that it had sent.
    #[error("the peer closed the connection")]
    Closed,
    /// The system reported an error: refused, reset, timed out, unreachable, no more descriptors.
    #[error("{0}")]
    System(Errno),
    /// This process may not communicate with the endpoint at this address, or the other way round.
    #[error("refused: {0}")]
    Denied(Denial),
    /// The peer sent bytes that no correct peer sends.
    #[error("protocol violation: {0}")]
    Protocol(&'static str),
}

/// Why two endpoints may not communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denial {
    /// The peer's process belongs to another user.
    #[error("the other process belongs to another user")]
    OtherUser,
    /// The endpoint was inherited by `fork`, and belongs to the parent.
    #[error("the endpoint belongs to the process that this one was forked from")]
    ForkedChild,
}

impl LinkError {
    /// Returns the error number that operations on this link end with.
    pub fn errno(&self) -> Errno {
        match self {
            LinkError::Closed => Errno::ESHUTDOWN,
            LinkError::System(errno) => *errno,
            LinkError::Denied(_) => Errno::EACCES,
            LinkError::Protocol(_) => Errno::EPROTO,
        }
    }
}

/// Memory that several processes have mapped: the process that has
/// [allocated](Provider::allocate_shareable) it, and peers that have
/// [mapped](Transport::map_peer_memory) it. The system frees it once no process has it mapped.
pub trait SharedMemory: fmt::Debug + Send + Sync {
    /// The memory. Any process may change any of it at any time.
    fn words(&self) -> &[AtomicU64];

    /// Returns its description, for peers to [map](Transport::map_peer_memory) it. `None` for
    /// memory that a peer allocated.
    fn describe(&self) -> Option<RemotePayload>;

    /// Tells every process that has mapped it that it has ended. Later writes of peers are lost.
    fn retire(&self);

    /// Whether it has ended.
    fn is_retired(&self) -> bool;
}

/// The places where the next payload bytes of a frame belong, in order.
pub type Space<'a> = SmallVec<[IoSliceMut<'a>; IOV_LIMIT + 1]>;

/// Moves frames between this endpoint and others, in order and without loss on each link.
///
/// # Who calls, and when
///
/// One caller at a time: every method takes `&mut self` or is a getter, and the caller may move the
/// transport between threads. No method blocks, and a transport acts only inside these calls; it
/// has no thread of its own. Links are made by [`connect`](Self::connect) and by peers; either kind
/// is used in both directions.
///
/// ```text
///  connect ------+                                    +-- Down -->  the number is free
///                +--> taking frames --> Up ---> ... --+
///  (the peer) ---+   (if connected)                   +-- close -->  the number is free
/// ```
///
/// Frames are given with [`send_inline`](Self::send_inline) and [`send`](Self::send), each whole or
/// from its start. While a frame was taken in part, the link's next call is
/// [`resume`](Self::resume), and nothing else is sent on that link. Methods that name a link must
/// be given one that was returned by `connect` or reported [`Up`](LinkEvent::Up), and that neither
/// was reported [`Down`](LinkEvent::Down) nor closed. From inside [`receive`](Self::receive) the
/// [`FrameHandler`] cannot call the transport. The engine acts on a frame afterwards.
///
/// # Room to grow
///
/// Every transport needs the methods without a default, and they will not change. A new method gets
/// a default that means "this transport does not do that", and the engine works without it.
pub trait Transport: Send + 'static {
    /// The address that peers reach this endpoint under, fit to be given to them (`fi_getname`). Where the
    /// endpoint was bound to a wildcard, it names an interface of this host. Never changes.
    fn address(&self) -> Address;

    /// Returns what this link can do. It may lose capabilities while it lives, but never gain any.
    fn caps(&self, link: LinkId) -> LinkCaps;

    /// Starts to connect to a peer. Never fails at once: [`receive`](Self::receive) reports a
    /// failure as [`LinkEvent::Down`]. Sending is possible from now on. It gets [`Sent::Full`]
    /// while the link is connecting, and until [`Up`](LinkEvent::Up), frames that were taken may be
    /// lost with the link.
    fn connect(&mut self, to: Address) -> LinkId;

    /// Copies a small frame whole, or takes nothing of it. `payload` is as long as the header says
    /// and at most [`LinkCaps::inline_max_bytes`].
    ///
    /// # Errors
    ///
    /// [`Full`]: as [`Sent::Full`].
    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full>;

    /// Sends a frame of any size. The slices together are as long as the header says and may be empty.
    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent;

    /// Continues the frame that [`send`](Self::send) took in part. The slices are the payload not
    /// yet taken, at least one byte. [`Sent::Partial`] counts from there.
    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent;

    /// Makes payload readable to the peer of this link and returns its description, or `None` if
    /// the peer cannot access it.
    ///
    /// The memory must stay as it is until the peer reports that it is done, the link is reported
    /// down, or [`close`](Self::close) is called for it. After that no [`pull`](Self::pull) of the
    /// peer succeeds. The caller need not undo anything.
    fn expose(&mut self, link: LinkId, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        let _ = (link, payload);
        None
    }

    /// Copies payload that the peer of this link exposed, from `offset_bytes` on, filling all of
    /// `into`. On any result but [`Pull::Done`], `into` holds no particular bytes.
    fn pull(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        let _ = (link, from, offset_bytes, into);
        Pull::Refused
    }

    /// Maps memory of this length that the peer of this link has
    /// [allocated](Provider::allocate_shareable). `None` if the peer names other memory, or memory
    /// that cannot be reached. Then accesses go by frames.
    fn map_peer_memory(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        len_bytes: u64,
    ) -> Option<Arc<dyn SharedMemory>> {
        let _ = (link, from, len_bytes);
        None
    }

    /// Sends frames that were taken, as far as there is room. A transport may hold them back until
    /// this call, so that many of them travel together.
    fn flush(&mut self);

    /// Accepts, reads and reports, up to about `budget_frames` frames in all, fairly over the
    /// links. Returns how many frames, pieces of unfinished frames, and link events were reported;
    /// 0 means that there was nothing to do.
    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32;

    /// A descriptor that becomes readable when an [armed](Self::arm) transport has an event. It can
    /// be nested in `epoll(7)`, and only the transport reads it. A transport that has to be polled
    /// always returns `None`.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Asks the peers and the kernel to wake this transport, then checks once more for events. Call
    /// this before sleeping on [`wake_fd`](Self::wake_fd). It lasts until the next call of a method
    /// that takes `&mut self`. Events are frames and links that arrive or end, and room on a link
    /// whose last answer was [`Sent::Full`] or [`Sent::Partial`].
    ///
    /// A frame or an event of a link keeps the transport awake until `receive` has reported it,
    /// however often the transport is armed, and whichever call has found it: a connect may be
    /// refused at once. Room keeps it awake once, since the caller then sends again. An event that
    /// no descriptor announces needs [`look_again_after`](Armed::Asleep::look_again_after): a retry
    /// of a connect, or the progress of a link that is [draining](Self::draining_count).
    fn arm(&mut self) -> Armed {
        Armed::Ready
    }

    /// Ends a link. Nothing more is reported about it.
    fn close(&mut self, link: LinkId, how: Close);

    /// Stops accepting new links, for an endpoint that is being closed.
    fn stop_accepting(&mut self);

    /// Returns how many links closed with [`Close::Drain`] still need this endpoint: if it was
    /// dropped now, the peer might miss frames that were taken, or see another end than
    /// [`LinkError::Closed`]. An endpoint that is being closed is dropped once this is 0, or when
    /// its time limit has passed.
    ///
    /// The number falls inside [`receive`](Self::receive) and [`flush`](Self::flush), to 0 without
    /// any call of the peer: it counts neither frames that wait to be read at the peer nor the
    /// peer's answer. Only if there was no room for all frames that were taken, the peer must first
    /// read some of them, or end.
    fn draining_count(&self) -> usize;
}

/// Takes the reports of a transport. The engine implements it.
///
/// A frame arrives either whole, by [`frame`](Self::frame), or by
/// [`frame_begun`](Self::frame_begun) followed by its payload in order. The transport reports each
/// piece by [`bytes_placed`](Self::bytes_placed) or by [`chunk`](Self::chunk), as it chooses. The
/// frame ends with its last byte.
pub trait FrameHandler {
    /// Takes a whole frame. `payload` is as long as the header says.
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]);

    /// Takes the header of a frame whose payload follows, at least one byte.
    fn frame_begun(&mut self, link: LinkId, header: &Header);

    /// Returns the space for the next payload bytes of the link's unfinished frame, so that they
    /// can be read straight into place. It is never longer than the rest of the frame. If it is
    /// empty, the transport gives the bytes to [`chunk`](Self::chunk).
    fn payload_space(&mut self, link: LinkId) -> Space<'_>;

    /// Counts payload bytes that were put at the start of [`payload_space`](Self::payload_space).
    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize);

    /// Takes the next bytes of the payload.
    fn chunk(&mut self, link: LinkId, bytes: &[u8]);

    /// Takes an event of a link.
    fn link_event(&mut self, link: LinkId, event: LinkEvent);
}

/// The capabilities and limits of a provider: the source of all that `getinfo` says of its domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderAttr {
    /// The domain's name (`"tcp"`).
    pub domain: String,
    /// Address formats that endpoints may have, best first.
    pub formats: Vec<AddressFormat>,
    /// Whether peers on the same host are reached.
    pub local: bool,
    /// Whether peers on other hosts are reached.
    pub remote: bool,
    /// The largest message in bytes.
    pub max_message_bytes: u64,
}

impl ProviderAttr {
    /// Returns the address format of an endpoint whose hints name none.
    pub fn preferred_format(&self) -> AddressFormat {
        self.formats.first().copied().unwrap_or(AddressFormat::SockaddrIn)
    }
}

/// Opens transports: one for each endpoint.
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// The transport that this provider opens.
    type Transport: Transport;

    /// Returns what this provider can do. Called often, so it should cost little.
    fn attr(&self) -> ProviderAttr;

    /// Returns facts about this host that users may want to know, such as a faster path that the
    /// provider may not use: one sentence each, for `homespun info`.
    fn host_findings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Allocates memory of at least one byte, all zeros, that peers can [map](Transport::map_peer_memory) to
    /// access it without the help of its owner. `None` for a provider that has no such memory.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, EMFILE.
    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        let _ = len_bytes;
        Ok(None)
    }

    /// Opens an endpoint's transport at `bind`. A port of 0 is chosen by the system; a wildcard accepts
    /// connections on every interface. `instance` is a random number that distinguishes this
    /// endpoint from earlier ones at its address.
    ///
    /// # Errors
    ///
    /// The system's error: EADDRINUSE, EADDRNOTAVAIL, EMFILE, EACCES.
    fn open(&self, bind: Address, instance: u64) -> Result<Self::Transport, Errno>;
}
