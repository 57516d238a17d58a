//! The interface of a backend: a [`Provider`] opens a [`Transport`], and the transport moves
//! frames.
//!
//! A transport knows sockets or rings. It never sees a completion queue, an operation or an
//! `fi_addr_t`. No raw pointer crosses this interface: the caller passes payload as borrowed
//! slices. The transport puts received payload where [`FrameHandler::payload_space`] says, or
//! passes the payload to [`FrameHandler::payload_arrived`].

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
use crate::wire::hello::VERSION;
use crate::wire::{Header, Message, WireError};

/// One connection between two endpoints, numbered by the transport that owns it.
///
/// The transport may reuse the number of a link once it has reported [`LinkEvent::Down`] for the
/// link, or once the caller has called [`Transport::close`] for the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// How much of a frame the transport has taken in [`Transport::send`] or [`Transport::resume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The transport has taken nothing. The caller may repeat the call later. On a broken link the
    /// result is also `Full`, until the transport reports the end of the link.
    Full,
    /// The transport has taken the header and this many bytes of the payload, but not all. On this
    /// link, the caller may send nothing else until [`Transport::resume`] has delivered the rest.
    Partial(usize),
    /// The transport has taken the whole frame, and will not read the payload again.
    Whole,
}

/// The link has no room, and the transport has taken nothing. The caller may repeat the call later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// How to end a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// Frames that the transport has taken still reach the peer. Then the peer sees
    /// [`LinkError::Closed`], or ECONNRESET if the last frame was taken only in part. The transport
    /// reads and drops what the peer sends later. The endpoint must live until the link is no
    /// longer [draining](Transport::draining_count).
    Drain,
    /// Ends the link at once. Buffered frames are lost.
    Abort,
}

/// The sizes of payload that select how a link carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCaps {
    /// The largest payload, in bytes, that [`Transport::send_inline`] takes.
    pub inline_max_bytes: usize,
    /// From this payload length on, the peer can [pull](Transport::pull), so that this side need not
    /// send. Whether the peer should pull a payload says [`Transport::prefers_pull`]. `usize::MAX`
    /// if the link cannot pull.
    pub pull_min_bytes: usize,
}

/// The description of payload that was [exposed](Transport::expose) to a peer. Only the transports
/// at the two ends understand its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemotePayload(SmallVec<[u8; REMOTE_MAX_BYTES]>);

impl RemotePayload {
    /// Creates a description of these bytes. Returns `None` if there are more than
    /// [`REMOTE_MAX_BYTES`].
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
    /// This process cannot or may not access the peer's memory, and this will not change. The peer
    /// must send the exposed payload.
    Refused,
    /// This process cannot access this payload. The peer must send it. Other payload of the peer may
    /// be accessible.
    Declined,
    /// Some of the described memory is not the peer's own. The link stays usable.
    Fault,
    /// The peer is gone, or no longer exposes anything. Bytes that were already copied are not
    /// valid. A later call of [`receive`](Transport::receive) reports the link as down.
    Gone,
}

/// Whether the descriptor of [`Transport::wake_fd`] wakes the caller for the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// There may be something to do now. The caller must not sleep, but call
    /// [`receive`](Transport::receive).
    Ready,
    /// The next event makes the descriptor readable.
    Asleep {
        /// The caller must call [`receive`](Transport::receive) after this time at the latest. Some events,
        /// such as room in a peer's backlog, make no descriptor readable.
        look_again_after: Option<Duration>,
    },
}

impl Armed {
    /// Returns the same result, but makes a call of [`receive`](Transport::receive) due within
    /// `time`.
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
    /// The peer's hello has arrived. This event comes once for every link, before the first frame
    /// of the link. A transport that checks who its peers are may report the event later. If an
    /// accepted link ends before this event, the transport never reports the link.
    Up {
        /// The address of the peer's endpoint. For a link that this side connected: the address to
        /// which it connected.
        peer: Address,
        /// The random number that the peer's endpoint drew when it was opened. A different number
        /// at the same address means a different endpoint.
        instance: u64,
        /// Why this side believes that the peer is the endpoint at this address. Never
        /// [`Claimed`](AddressProof::Claimed) for a link that this side connected.
        proof: AddressProof,
        /// Whether the link is known to have ended: the peer has ended it, or it is broken. Then only what
        /// the peer has sent before is still to come, and the engine only reads the link. Must be true if a
        /// link to a later endpoint at this address has already come up, unless this side began the link.
        has_ended: bool,
    },
    /// The address of the link's peer was only [`Claimed`](AddressProof::Claimed). Now the endpoint
    /// at that address has confirmed that it made the link. This event comes at most once, between
    /// `Up` and `Down`. The result of [`Transport::receive`] does not count this event.
    Confirmed,
    /// The link has ended. The transport has reported everything that arrived before, and reports
    /// nothing more.
    Down(LinkError),
}

impl LinkEvent {
    /// Returns the event of a link whose peer is proven by
    /// [`Credentials`](AddressProof::Credentials).
    pub fn up(peer: Address, instance: u64) -> LinkEvent {
        LinkEvent::Up { peer, instance, proof: AddressProof::Credentials, has_ended: false }
    }
}

/// Why this side believes that a link's peer is the endpoint at the link's address.
///
/// The receiver drops only messages of peers whose address is [a claim](Self::is_claim). A backend whose
/// peers cannot lie about their address reports [`Credentials`](AddressProof::Credentials).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressProof {
    /// The kernel or this process vouches for the peer, for example by the credentials of its socket. The
    /// peer may use the whole budget. A peer without this proof shares a part of the budget with all peers
    /// of its host.
    Credentials,
    /// This side connected the link to the address.
    Reached,
    /// The endpoint at the address has confirmed that it made the link.
    Confirmed,
    /// The peer claims to be at the address, and nothing has proven this yet.
    Claimed,
}

impl AddressProof {
    /// Whether only the peer itself says that it is at the address.
    pub fn is_claim(self) -> bool {
        self == AddressProof::Claimed
    }
}

/// What the text of a system's error does not say.
fn advice_on(errno: Errno) -> &'static str {
    if errno == Errno::EMFILE { ": raise RLIMIT_NOFILE (ulimit -n)" } else { "" }
}

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer has closed the link or its endpoint in an orderly way ([`Close::Drain`]).
    /// Everything that the peer had sent has arrived.
    #[error("the peer closed the connection")]
    Closed,
    /// The system reported an error, such as ECONNREFUSED, ECONNRESET, ETIMEDOUT, EHOSTUNREACH or
    /// EMFILE.
    #[error("{0}{advice}", advice = advice_on(*.0))]
    System(Errno),
    /// This process may not communicate with the endpoint at this address, or that endpoint may not
    /// communicate with this process.
    #[error("refused: {0}")]
    Denied(Denial),
    /// The peer sent bytes that no correct peer sends.
    #[error("protocol violation: {0}")]
    Protocol(&'static str),
    /// The peer speaks another version of homespun's protocol.
    #[error(
        "the peer speaks version {theirs} of homespun's protocol and this process version {VERSION}: run one \
         version of homespun on both sides"
    )]
    OtherVersion {
        /// The version that the peer speaks.
        theirs: u16,
    },
    /// No endpoint is at the address over this medium (ECONNREFUSED).
    #[error(
        "Connection refused: no endpoint is there over {medium}; the peer has not started, or uses another \
         domain"
    )]
    NoEndpoint {
        /// The medium: "TCP" or "shared memory".
        medium: &'static str,
    },
    /// The endpoint is at a loopback address, and the peer is on another host (ENETUNREACH).
    #[error(
        "the endpoint is at the loopback address {own}, from which {peer} cannot be reached: open it at \
         another address of this host (fi_getinfo with FI_SOURCE, or no source)"
    )]
    LoopbackOnly {
        /// The address of the endpoint. Boxed, to keep errors small.
        own: Box<Address>,
        /// The address of the peer.
        peer: Box<Address>,
    },
}

/// Why two endpoints may not communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denial {
    /// The peer's process belongs to another user.
    #[error("the other process belongs to another user")]
    OtherUser,
    /// The endpoint was inherited by `fork`, and belongs to the parent process.
    #[error("the endpoint belongs to the process that this one was forked from")]
    ForkedChild,
    /// The endpoint has stated the address of another process as its own.
    #[error("the address of this endpoint belongs to another process, says the peer")]
    ForeignAddress,
    /// The peer's process has too few descriptors for the link.
    #[error("the other process has too few descriptors for a link: raise its RLIMIT_NOFILE (ulimit -n)")]
    NoDescriptors,
    /// A limit or a policy forbids memory files to the peer's process.
    #[error(
        "the other process may not create memory to share (RLIMIT_FSIZE, seccomp): use the \
         domain auto or tcp"
    )]
    NoMemoryFiles,
}

impl LinkError {
    /// Returns the error number that operations on this link end with.
    pub fn errno(&self) -> Errno {
        match self {
            LinkError::Closed => Errno::ESHUTDOWN,
            LinkError::System(errno) => *errno,
            LinkError::Denied(Denial::OtherUser | Denial::ForkedChild | Denial::ForeignAddress) => {
                Errno::EACCES
            }
            LinkError::Denied(Denial::NoDescriptors | Denial::NoMemoryFiles) => Errno::ECONNREFUSED,
            LinkError::Protocol(_) | LinkError::OtherVersion { .. } => Errno::EPROTO,
            LinkError::NoEndpoint { .. } => Errno::ECONNREFUSED,
            LinkError::LoopbackOnly { .. } => Errno::ENETUNREACH,
        }
    }
}

impl From<WireError> for LinkError {
    fn from(error: WireError) -> LinkError {
        match error {
            WireError::OtherVersion { theirs } => LinkError::OtherVersion { theirs },
            error => LinkError::Protocol(error.reason()),
        }
    }
}

/// Memory that several processes have mapped: the process that has
/// [allocated](Provider::allocate_shareable) the memory, and peers that have
/// [mapped](Transport::map_peer_memory) it. The system frees the memory once no process maps it.
pub trait SharedMemory: fmt::Debug + Send + Sync {
    /// Returns the memory. Any process may change any of it at any time.
    fn words(&self) -> &[AtomicU64];

    /// Returns the description by which peers [map](Transport::map_peer_memory) the memory. Returns
    /// `None` if a peer has allocated the memory.
    fn describe(&self) -> Option<RemotePayload>;

    /// Marks the memory as ended. Every process that has mapped the memory sees the mark. Later writes of
    /// peers are lost.
    fn retire(&self);

    /// Whether the memory has ended.
    fn is_retired(&self) -> bool;
}

/// The places for the next payload bytes of a frame, in order.
pub type Space<'a> = SmallVec<[IoSliceMut<'a>; IOV_LIMIT + 1]>;

/// What a [`Transport::glance`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glance {
    /// No frame. The caller need not call [`Transport::receive`] now.
    Nothing,
    /// A frame of this link.
    Frame(LinkId),
    /// The caller must call [`Transport::receive`].
    Pass,
}

/// Moves frames between this endpoint and others, in order and without loss on each link.
///
/// # Who calls, and when
///
/// There is one caller at a time: every method takes `&mut self` or is a getter. The caller may
/// move the transport between threads. No method blocks. The transport acts only inside these
/// calls, and has no thread of its own. [`connect`](Self::connect) makes links, and peers make
/// links. Both ends use every link in both directions.
///
/// ```text
///  connect ------+                                    +-- Down -->  the number is free
///                +--> taking frames --> Up ---> ... --+
///  (the peer) ---+   (if connected)                   +-- close -->  the number is free
/// ```
///
/// The caller sends each frame with [`send_inline`](Self::send_inline) or [`send`](Self::send). If
/// the transport has taken only a part of a frame, the caller's next send on this link must be
/// [`resume`](Self::resume). A caller may name a link once `connect` has returned the link or
/// [`Up`](LinkEvent::Up) has reported the link, until the link is reported
/// [`Down`](LinkEvent::Down) or closed. The [`FrameHandler`] cannot call the transport from inside
/// [`receive`](Self::receive).
///
/// # Room to grow
///
/// Every transport must have the methods without a default. These methods will not change. The
/// default of a new method means "this transport does not do that", and the engine works without
/// the method.
pub trait Transport: Send + 'static {
    /// Returns the address under which peers reach this endpoint (`fi_getname`). It never changes.
    /// If the endpoint was bound to a wildcard, the address is that of an interface of this host.
    fn address(&self) -> Address;

    /// Returns what this link can do. A link may lose capabilities while it lives, but never gains
    /// any.
    fn caps(&self, link: LinkId) -> LinkCaps;

    /// Whether the peer should [pull](Self::pull) this payload, which is at least
    /// [`pull_min_bytes`](LinkCaps::pull_min_bytes) long. If not, this side should send the payload.
    /// The caller asks again for each payload. Unlike the capabilities, the answer may change either
    /// way while the link lives, for example since the transport measures what is faster. The answer
    /// may also depend on the memory of the payload: the peer may be able to map it.
    fn prefers_pull(&self, link: LinkId, payload: &[IoSlice<'_>]) -> bool {
        let _ = (link, payload);
        true
    }

    /// Starts to connect to a peer. [`receive`](Self::receive) reports a failure as
    /// [`LinkEvent::Down`]. The caller may send at once, but may get [`Sent::Full`] while the link
    /// is connecting. Frames that were taken before [`Up`](LinkEvent::Up) may be lost with the
    /// link.
    fn connect(&mut self, to: Address) -> LinkId;

    /// Tries again to [`connect`](Self::connect) to a peer. The peer has ended the last link before it came
    /// up, and the last call of [`receive`](Self::receive) has reported that. A limit of time that the
    /// transport sets to a connect goes on.
    fn connect_again(&mut self, to: Address) -> LinkId {
        self.connect(to)
    }

    /// Sends a small frame: copies the whole frame, or takes nothing. `payload` has the length that
    /// the header states, and at most [`LinkCaps::inline_max_bytes`].
    ///
    /// # Errors
    ///
    /// [`Full`], in the cases of [`Sent::Full`].
    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full>;

    /// Sends a small message, and hands it over: [`send_inline`](Self::send_inline), then
    /// [`hand_over`](Self::hand_over). Returns whether the message was sent. If not, nothing has changed, and
    /// the caller takes the general way: the link has no room or is not up, the peer should
    /// [pull](Self::pull) so long a payload, or other frames must be handed over, too.
    ///
    /// Most messages of most programs take this way. A transport may have a shorter one than the default.
    #[inline]
    fn send_at_once(&mut self, link: LinkId, message: &Message, payload: &[u8]) -> bool {
        let LinkCaps { inline_max_bytes, pull_min_bytes } = self.caps(link);
        let is_small = payload.len() <= inline_max_bytes && payload.len() < pull_min_bytes;
        let is_sent = is_small && self.send_inline(link, &Header::Message(*message), payload).is_ok();
        if is_sent {
            self.hand_over();
        }
        is_sent
    }

    /// Sends a frame of any size. The total length of the slices is the length that the header
    /// states. Slices may be empty.
    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent;

    /// Continues a frame that [`send`](Self::send) took in part. `rest` is the untaken payload, at
    /// least one byte. The number in a resulting [`Sent::Partial`] counts from the start of `rest`.
    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent;

    /// Makes payload readable to the peer of this link. Returns the payload's description, or
    /// `None` if the peer cannot access the payload.
    ///
    /// The caller must leave the memory unchanged until the peer no longer needs the payload, or
    /// until the link is reported down or [closed](Self::close). After that no [`pull`](Self::pull)
    /// of the peer succeeds.
    fn expose(&mut self, link: LinkId, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        let _ = (link, payload);
        None
    }

    /// Copies payload that the link's peer has exposed, from `offset_bytes` on, and fills `into`.
    /// After any result but [`Pull::Done`], `into` holds no particular bytes.
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
    /// [allocated](Provider::allocate_shareable). Returns `None` if `from` describes other memory,
    /// or if the memory cannot be mapped.
    fn map_peer_memory(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        len_bytes: u64,
    ) -> Option<Arc<dyn SharedMemory>> {
        let _ = (link, from, len_bytes);
        None
    }

    /// Sends frames that the transport has taken, as far as there is room. Until this call, a
    /// transport may hold frames back to send many together.
    fn flush(&mut self);

    /// Gives the system the frames that the transport has taken, as far as there is room. The caller
    /// has posted an operation, and may soon post more: the system may hold frames back for a short
    /// time, to send them with those that follow. [`flush`](Self::flush) and
    /// [`receive`](Self::receive) end this time. Frames also leave, some time later, if the caller
    /// makes no further call.
    fn hand_over(&mut self) {
        self.flush();
    }

    /// Accepts links, reads all links fairly, and reports up to about `budget_frames` frames in
    /// all. Returns the number of reported frames, pieces of unfinished frames, link events and
    /// writable links; 0 means that there was nothing to do.
    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32;

    /// Looks whether links that are likely to have frames have some. Most polls find nothing. For them, a
    /// glance takes the place of [`receive`](Self::receive). The transport returns [`Glance::Pass`] so often
    /// that nothing else waits for long.
    #[inline(always)]
    fn glance(&mut self) -> Glance {
        Glance::Pass
    }

    /// Offers up to `budget_frames` messages of a link to [`FrameHandler::take_message`], after a
    /// [`glance`](Self::glance) has found the link. Returns how many were taken, up to the first that was
    /// not. If none was taken, the caller calls [`receive`](Self::receive), which reads the frame.
    fn receive_at_once(&mut self, link: LinkId, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        let _ = (link, budget_frames, receiver);
        0
    }

    /// Whether [`receive`](Self::receive) reports every link that takes frames again after [`Sent::Full`] or
    /// [`Sent::Partial`], by [`FrameHandler::link_writable`]. If so, the caller tries again only after this
    /// report or another report about the link. If not, it tries again in every pass.
    fn reports_writable_links(&self) -> bool {
        false
    }

    /// Returns a descriptor that becomes readable when an [armed](Self::arm) transport has an
    /// event. The descriptor can be nested in `epoll(7)`. Only the transport reads it. A transport
    /// that must be polled always returns `None`.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Asks the peers and the kernel to wake this transport, and then checks once more for events.
    /// The caller arms the transport before it sleeps on [`wake_fd`](Self::wake_fd). The transport
    /// stays armed until the next call of a method that takes `&mut self`. Events are: a frame
    /// arrives, a link comes up or ends, or a link has room again after [`Sent::Full`] or
    /// [`Sent::Partial`].
    ///
    /// A frame, a link event or a writable link keeps the transport [`Ready`](Armed::Ready) until `receive`
    /// has reported it, however often the caller arms the transport. If the transport does not
    /// [report writable links](Self::reports_writable_links), room on a link makes it ready only once. Two
    /// events make no descriptor readable: the time to
    /// retry a connect, and progress of a [draining](Self::draining_count) link. For these, the transport
    /// sets [`look_again_after`](Armed::Asleep::look_again_after).
    fn arm(&mut self) -> Armed {
        Armed::Ready
    }

    /// Tells the near peers the core on which the calling thread waits for them. Returns whether a peer that
    /// the thread may wait for has last run on the same core. If so, the caller gives the core away.
    ///
    /// The caller calls this after it has polled in vain for some microseconds, and then again and again.
    /// The transport may look at a part of its peers in each call. An [armed](Self::arm) transport stays
    /// armed.
    fn publish_core_and_find_peer(&mut self, core: u32) -> bool {
        let _ = core;
        false
    }

    /// Ends a link. The transport reports nothing more about it.
    fn close(&mut self, link: LinkId, how: Close);

    /// Stops accepting new links: the endpoint is being closed, or has begun the only link that it needs.
    /// Links that this side has connected or is connecting continue.
    fn stop_accepting(&mut self);

    /// Returns how many links closed with [`Close::Drain`] still need this endpoint. If the endpoint were
    /// dropped now, peers might miss frames, or might not see [`LinkError::Closed`]. An endpoint that is
    /// being closed is dropped once this number is 0, or after a time limit.
    ///
    /// The number falls during calls of [`receive`](Self::receive) and [`flush`](Self::flush). A link counts
    /// until the peer can get all its frames without this endpoint. The peer need not act for this, unless
    /// it must first read some frames to make room for the rest.
    fn draining_count(&self) -> usize;
}

/// Handles what a transport reports. The engine implements this trait.
///
/// The transport reports a frame either whole, by [`frame`](Self::frame), or in pieces. In pieces,
/// the transport first calls [`frame_begun`](Self::frame_begun). Then it calls
/// [`bytes_placed`](Self::bytes_placed) or [`payload_arrived`](Self::payload_arrived) for each
/// piece of payload, in order. The frame ends with its last byte.
pub trait FrameHandler {
    /// Handles a whole frame. `payload` has the length that the header says.
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]);

    /// Handles a whole message, if the place of its payload is known and nothing else is to be done: most
    /// messages of most programs. Calls `read` once with memory of the length that `message` states; `read`
    /// fills the memory with the payload. Returns whether it has handled the message. If not, it has not
    /// called `read`, and the transport reports the message as any other frame.
    #[inline(always)]
    fn take_message(&mut self, link: LinkId, message: &Message, read: impl FnOnce(&mut [u8])) -> bool {
        let _ = (link, message, read);
        false
    }

    /// Handles the header of a frame. At least one byte of payload follows.
    fn frame_begun(&mut self, link: LinkId, header: &Header);

    /// Returns space for the next payload bytes of the link's unfinished frame. The space is never
    /// longer than the rest of the frame. If the space is empty, the transport passes the bytes to
    /// [`payload_arrived`](Self::payload_arrived) instead.
    fn payload_space(&mut self, link: LinkId) -> Space<'_>;

    /// Handles payload bytes that the transport has put at the start of
    /// [`payload_space`](Self::payload_space).
    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize);

    /// Handles the next bytes of the payload.
    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]);

    /// Handles an event of a link.
    fn link_event(&mut self, link: LinkId, event: LinkEvent);

    /// Handles a link that may take frames again, after [`Sent::Full`] or [`Sent::Partial`].
    fn link_writable(&mut self, link: LinkId);
}

/// The capabilities and limits of a provider. `getinfo` uses them to describe the provider's
/// domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderAttr {
    /// The domain's name (`"tcp"`).
    pub domain: String,
    /// The address formats that endpoints may have, the preferred format first.
    pub formats: Vec<AddressFormat>,
    /// Whether endpoints reach peers on the same host.
    pub local: bool,
    /// Whether endpoints reach peers on other hosts.
    pub remote: bool,
    /// The largest message in bytes.
    pub max_message_bytes: u64,
}

impl ProviderAttr {
    /// Returns the address format of an endpoint whose hints name no format.
    pub fn preferred_format(&self) -> AddressFormat {
        self.formats.first().copied().unwrap_or(AddressFormat::SockaddrIn)
    }
}

/// Opens transports, one for each endpoint.
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// The transport that this provider opens.
    type Transport: Transport;

    /// Returns what this provider can do. homespun calls this often, so the call should cost
    /// little.
    fn attr(&self) -> ProviderAttr;

    /// Returns facts about this host that users may want to know, such as a faster path that the
    /// provider may not use. `homespun info` prints each fact, which is one sentence.
    fn host_findings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Allocates at least one byte of zeroed memory that peers can
    /// [map](Transport::map_peer_memory). Peers access mapped memory without the owner's help. The
    /// provider itself accesses the memory only in calls of its transports. Returns `None` if the
    /// provider has no such memory.
    ///
    /// # Errors
    ///
    /// The system's error, such as ENOMEM or EMFILE.
    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        let _ = len_bytes;
        Ok(None)
    }

    /// Opens an endpoint's transport at `bind`. If the port is 0, the system chooses a port. At a
    /// wildcard address, the endpoint accepts connections on every interface. `instance` is a
    /// random number that distinguishes this endpoint from other endpoints at its address.
    ///
    /// # Errors
    ///
    /// The system's error, such as EADDRINUSE, EADDRNOTAVAIL, EMFILE or EACCES.
    fn open(&self, bind: Address, instance: u64) -> Result<Self::Transport, Errno>;
}
