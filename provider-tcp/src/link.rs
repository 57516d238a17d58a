//! One connection.

use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::fork::CloseOnFork;
use homespun_engine::transport::{AddressProof, Denial, FrameHandler, LinkError, LinkId};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use mio::net::TcpStream;
use socket2::SockRef;

use crate::address_claims::HangUp;
use crate::burst::Burst;
use crate::greeter::{AddressClaim, Greeter};
use crate::inbound::{Inbound, ReadOutcome};
use crate::outbound::Outbound;
use crate::socket::Departure;
use crate::staging::SpareBuffers;
use crate::{socket, sys};

/// Which side made a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// This side, to this address.
    Connected(Address),
    /// The peer.
    Accepted {
        /// The source address of the connection.
        remote: SocketAddr,
        /// The number of connections that the endpoint accepted before this one.
        serial: u64,
    },
}

/// One connection and its state.
///
/// ```text
///   connect --> connecting --+                           +--> ended, reported as down
///                            +--> greeting [--> held] --> up
///   accept ------------------+         |         |       +--> draining --> ended
///                                      +---------+--> ended, reported if this side connected
/// ```
///
/// A link is held while its claim is contested: see [`AddressClaims`](crate::address_claims::AddressClaims).
/// An accepted connection that brings questions counts as a link without a hello until it ends.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: CloseOnFork<TcpStream>,
    pub(crate) origin: Origin,
    pub(crate) outbound: Outbound,
    pub(crate) burst: Burst,
    inbound: Inbound,
    closing: Option<Closing>,
    /// The claim of an accepted link, once its hello has arrived.
    pub(crate) address_claim: Option<AddressClaim>,
    /// The endpoint at the claimed address has confirmed the claim.
    is_confirmed: bool,
    /// When this side began to try to reach the peer, if this side has made the connection.
    pub(crate) connect_began: Option<Instant>,
    /// The token that the acceptor has given to a link of this side.
    pub(crate) given_token: Option<u64>,
    /// Whether the peer is on this host, once a wait for the peer has found that out.
    pub(crate) is_on_this_host: Option<bool>,
    /// Whether an accepted connection has one of the last descriptors, which are reserved for the process
    /// itself.
    pub(crate) is_in_reserve: bool,
    /// Whether the link is in the transport's list of links to read.
    pub(crate) in_ready: bool,
    /// Whether the link is in the transport's list of links to write.
    pub(crate) in_dirty: bool,
}

/// The progress of a link that this side has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// The link is still writing frames that it has taken.
    Writing,
    /// The link has written the end of its stream. The end of the peer's stream has not arrived yet.
    Reading,
}

/// The error of a link whose peer has said hello when the endpoint already had all allowed accepted links.
pub(crate) const NO_ROOM: LinkError = LinkError::System(Errno::ENOBUFS);

/// The error of a link to an address at which nothing listens.
const NO_ENDPOINT: LinkError = LinkError::NoEndpoint { medium: "TCP" };

/// The error of a link whose acceptor takes no new links.
pub(crate) const NOT_ACCEPTING: LinkError = LinkError::System(Errno::ECONNREFUSED);

/// The error of a link whose acceptor has too few descriptors for it.
pub(crate) const LACKED_DESCRIPTORS: LinkError = LinkError::Denied(Denial::NoDescriptors);

/// The state of a link after a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadStep {
    /// There may be more to read.
    Ready(u32),
    /// There is nothing more to read for now.
    Idle(u32),
    /// The link has ended.
    Ended(LinkError),
}

impl Link {
    pub(crate) fn new(stream: TcpStream, origin: Origin) -> Link {
        let is_accepted = matches!(origin, Origin::Accepted { .. });
        Link {
            stream: CloseOnFork::new(stream),
            origin,
            outbound: Outbound::new(is_accepted),
            burst: Burst::default(),
            inbound: Inbound::new(is_accepted),
            closing: None,
            address_claim: None,
            is_confirmed: false,
            connect_began: None,
            given_token: None,
            is_on_this_host: None,
            is_in_reserve: false,
            in_ready: false,
            in_dirty: false,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether this side accepted the connection and the peer has not said hello. The caller does not know
    /// such a link.
    pub(crate) fn is_half_open(&self) -> bool {
        self.inbound.awaits_hello()
    }

    /// Whether the link reads frames: the peer's hello or greeting is complete, and the link is neither held
    /// nor being closed.
    #[inline]
    pub(crate) fn carries_frames(&self) -> bool {
        self.inbound.carries_frames()
    }

    /// Whether the next bytes to read belong to the payload of a frame that has begun.
    pub(crate) fn is_within_payload(&self) -> bool {
        self.inbound.is_within_payload()
    }

    /// Whether this side holds the link. A held link was not yet reported.
    pub(crate) fn is_held(&self) -> bool {
        self.inbound.is_held()
    }

    /// Whether the caller knows the link and has not closed it. The caller knows links that it has
    /// connected, and links that were reported as up.
    pub(crate) fn is_known_to_engine(&self) -> bool {
        !self.is_closing() && !self.is_half_open() && !self.is_held()
    }

    /// Whether the link takes frames to send. It takes none while the acceptor holds it, nor once this side
    /// closes it.
    #[inline]
    pub(crate) fn can_take_frames(&self) -> bool {
        !self.is_closing() && !self.inbound.is_held_by_acceptor()
    }

    /// Makes a connected link take no frames before the acceptor's greeting.
    pub(crate) fn hold_frames_until_greeting(&mut self) {
        self.inbound.hold_frames_until_greeting();
    }

    /// The address that the link leads to or claims. `None` for an accepted link without the peer's hello.
    pub(crate) fn address(&self) -> Option<Address> {
        match self.origin {
            Origin::Connected(to) => Some(to),
            Origin::Accepted { .. } => self.address_claim.map(|claimed| claimed.address),
        }
    }

    /// Whether the peer has hung up, even if bytes before the end are unread.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.inbound.is_hung_up() || socket::has_hung_up(&*self.stream)
    }

    /// Whether an event of the kernel, or a failed write, has shown that the peer has hung up.
    pub(crate) fn has_kernel_reported_hang_up(&self) -> bool {
        self.inbound.is_hung_up()
    }

    /// Determines how the peer has hung up. If the link is held, also takes the socket's error and stores it
    /// as the link's failure. EPIPE counts as the end of the stream. It arises if the peer ends its stream,
    /// and this side then writes and so causes a reset.
    pub(crate) fn determine_hang_up(&mut self) -> HangUp {
        if self.is_held()
            && self.outbound.failure().is_none()
            && let Ok(Some(error)) = self.stream.take_error()
        {
            self.mark_failed(socket::to_errno(&error));
        }
        match self.outbound.failure() {
            None | Some(Errno::EPIPE) => HangUp::EndOfStream,
            Some(_) => HangUp::Reset,
        }
    }

    /// The first bytes of the peer's stream, until they are a valid hello or question.
    pub(crate) fn opening_bytes(&self) -> &[u8] {
        self.inbound.opening_bytes()
    }

    /// Why this side believes that the peer of an accepted link is at the claimed address.
    pub(crate) fn proof_of_claim(&self) -> AddressProof {
        if self.is_confirmed { AddressProof::Confirmed } else { AddressProof::Claimed }
    }

    /// Whether the endpoint at the claimed address has confirmed the claim.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Records that the endpoint at the claimed address has confirmed the claim with this token. Returns
    /// whether to report the confirmation: the caller knows the link, and this is the first confirmation.
    pub(crate) fn confirm_claim(&mut self, token: u64) -> bool {
        let is_first = !self.is_confirmed && self.address_claim.is_some_and(|claim| claim.token == token);
        self.is_confirmed |= is_first;
        is_first && self.is_known_to_engine()
    }

    /// Stages the acceptor's hello and the record that says whether the link is held.
    pub(crate) fn stage_greeting(&mut self, hello: &[u8], spare: &mut SpareBuffers) {
        let Some(AddressClaim { token, .. }) = self.address_claim else { return };
        let status = if self.is_held() { ClaimStatus::Held } else { ClaimStatus::Welcome };
        self.outbound.stage_bytes(hello, spare);
        self.outbound.stage_bytes(&ClaimRecord { status, token }.to_bytes(), spare);
    }

    /// Admits a held link: tells the peer, and starts to read. Returns the link's claim; `None` if the link
    /// is not held.
    pub(crate) fn admit(&mut self, spare: &mut SpareBuffers) -> Option<AddressClaim> {
        let claimed = self.address_claim.filter(|_| self.is_held())?;
        self.inbound.start_reading_frames();
        let admitted = ClaimRecord { status: ClaimStatus::Admitted, token: claimed.token };
        self.outbound.stage_bytes(&admitted.to_bytes(), spare);
        Some(claimed)
    }

    /// Whether a flush would write anything.
    pub(crate) fn needs_flush(&self) -> bool {
        self.outbound.has_staged() && self.outbound.can_write()
    }

    /// Records that the peer's stream ends, or has an error, after the bytes that can be read.
    pub(crate) fn mark_hung_up(&mut self) {
        self.inbound.mark_hung_up();
    }

    /// Writes the staged bytes. If the link is being closed and no staged bytes are left, also ends the
    /// stream.
    pub(crate) fn flush(&mut self, departure: Departure, spare: &mut SpareBuffers) {
        self.outbound.flush(&*self.stream, departure, spare);
        if self.closing == Some(Closing::Writing) && !self.outbound.has_staged() {
            if let Err(error) = self.stream.shutdown(Shutdown::Write) {
                tracing::trace!(%error, "the peer had gone before the link was closed");
                self.mark_failed(Errno::ENOTCONN);
            }
            self.closing = Some(Closing::Reading);
        } else if self.outbound.failure().is_some() {
            self.inbound.mark_hung_up();
        }
    }

    /// Makes the kernel send the bytes that it holds back.
    pub(crate) fn push_held(&mut self) {
        self.outbound.push_held(&*self.stream);
    }

    /// Handles the kernel's report that the socket is writable or broken. If this shows that a connect has
    /// succeeded, returns the address of the connect.
    pub(crate) fn handle_writable(&mut self) -> Option<Address> {
        match self.origin {
            Origin::Connected(to) if self.outbound.is_connecting() => {
                self.finish_connecting_if_made(to);
                self.outbound.can_write().then_some(to)
            }
            _ => {
                self.outbound.mark_writable();
                None
            }
        }
    }

    /// Checks whether the connection was made. Writes nothing: the hello leaves together with the first
    /// frames.
    fn finish_connecting_if_made(&mut self, to: Address) {
        match self.stream.take_error() {
            Ok(Some(error)) | Err(error) => self.mark_failed(socket::to_errno(&error)),
            Ok(None) if self.stream.peer_addr().is_err() => return,
            // If no socket listens at the port, the kernel may have given this port to this socket. Then the
            // socket is connected to itself.
            Ok(None) if self.stream.local_addr().is_ok_and(|own| to == own.into()) => {
                self.mark_failed(Errno::ECONNREFUSED);
            }
            Ok(None) => {
                self.outbound.mark_writable();
                if let Err(error) = socket::end_connect_timeout(&self.stream) {
                    tracing::debug!(%to, %error, "the limit of the connect stays");
                }
            }
        }
        tracing::debug!(%to, failure = ?self.outbound.failure(), "connected");
    }

    fn mark_failed(&mut self, errno: Errno) {
        self.outbound.mark_failed(errno);
        self.inbound.mark_hung_up();
    }

    /// Reads once, and reports frames and events. If the link does not [carry frames](Self::carries_frames),
    /// a `greeter` is needed.
    pub(crate) fn read<R: FrameHandler>(
        &mut self,
        id: LinkId,
        buffer: &mut [u8],
        mut greeter: Option<&mut Greeter<'_>>,
        receiver: &mut R,
    ) -> ReadStep {
        let failure = self.outbound.failure();
        let outcome = self.inbound.read(id, &self.stream, buffer, receiver, greeter.as_deref_mut());
        if let Some(greeter) = greeter {
            self.address_claim = self.address_claim.or(greeter.address_claim);
            self.given_token = greeter.given_token.or(self.given_token);
        }
        match (outcome, failure) {
            (ReadOutcome::Progress { reported, drained: true }, None) => ReadStep::Idle(reported),
            (ReadOutcome::Progress { reported, .. }, _) => ReadStep::Ready(reported),
            (ReadOutcome::Blocked, None) => ReadStep::Idle(0),
            // The peer had ended in order before this side's failed write.
            (ReadOutcome::Closed, None | Some(Errno::EPIPE)) => ReadStep::Ended(LinkError::Closed),
            (ReadOutcome::Broken(error), None | Some(Errno::EPIPE)) => ReadStep::Ended(error),
            (ReadOutcome::Broken(error @ (LinkError::Protocol(_) | LinkError::OtherVersion { .. })), _) => {
                ReadStep::Ended(error)
            }
            // The acceptor has said this before it has reset the connection.
            (ReadOutcome::Broken(error @ (NOT_ACCEPTING | LACKED_DESCRIPTORS)), _) => ReadStep::Ended(error),
            (ReadOutcome::Blocked, Some(Errno::EPIPE)) => {
                ReadStep::Ended(LinkError::System(Errno::ECONNRESET))
            }
            (_, Some(Errno::ECONNREFUSED)) => ReadStep::Ended(NO_ENDPOINT),
            // A failed write has consumed the socket's error, so a read would not return the error.
            (_, Some(errno)) => ReadStep::Ended(LinkError::System(errno)),
        }
    }

    /// Starts to drain the link. It still writes the frames that it has taken, and drops arriving frames.
    pub(crate) fn start_draining(&mut self) {
        self.inbound.start_discarding();
        self.closing = Some(Closing::Writing);
    }

    /// Whether the peer's kernel has acknowledged everything except the end of the stream. The end needs no
    /// wait: this side's kernel repeats it if necessary.
    pub(crate) fn has_peer_acknowledged_all(&self) -> bool {
        const END_BYTES: usize = 1;
        // If the kernel cannot tell, the link ends when the peer's stream ends.
        self.closing == Some(Closing::Reading)
            && sys::unacknowledged_bytes(&*self.stream).is_ok_and(|left| left <= END_BYTES)
    }

    /// If the peer will miss frames, makes the peer see a reset instead of an orderly end.
    pub(crate) fn reset_on_close_if_incomplete(&self) {
        if !self.outbound.can_end_stream()
            && let Err(error) = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO))
        {
            tracing::debug!(%error, "the connection ends without a reset");
        }
    }
}
