//! One connection.

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::fork::CloseOnFork;
use homespun_engine::transport::{FrameHandler, LinkError, LinkEvent, LinkId};
use homespun_engine::wire::hello::Hello;
use mio::net::TcpStream;
use socket2::SockRef;

use crate::hello::believed_address;
use crate::inbound::{Inbound, ReadOutcome};
use crate::outbound::Outbound;
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
///   connect --> connecting --+                 +--> ended, reported as down
///                            +--> greeting --> up
///   accept ------------------+         |       +--> draining --> ended
///                                      +--> ended, reported if this side connected
/// ```
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: CloseOnFork<TcpStream>,
    pub(crate) origin: Origin,
    pub(crate) outbound: Outbound,
    inbound: Inbound,
    closing: Option<Closing>,
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
    /// The link has written the end of its stream. The end of the peer's stream has not arrived.
    Reading,
}

/// The end of a link whose peer has said hello when the endpoint had all the links that it may have.
pub(crate) const NO_ROOM: LinkError = LinkError::System(Errno::ENOBUFS);

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
        let is_connected = matches!(origin, Origin::Accepted { .. });
        Link {
            stream: CloseOnFork::new(stream),
            origin,
            outbound: Outbound::new(is_connected),
            inbound: Inbound::new(),
            closing: None,
            in_ready: false,
            in_dirty: false,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether this side accepted the connection and the peer's hello has not arrived. Such a link was not
    /// yet reported.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.origin, Origin::Accepted { .. }) && !self.inbound.has_received_hello()
    }

    /// Whether a flush would write anything.
    pub(crate) fn needs_flush(&self) -> bool {
        self.outbound.has_staged() && self.outbound.can_write()
    }

    /// Notes that the end of the peer's stream, or an error, follows the bytes that can be read.
    pub(crate) fn mark_hung_up(&mut self) {
        self.inbound.mark_hung_up();
    }

    /// Writes the staged bytes. If the link is being closed, also writes the end of the stream once no staged
    /// bytes are left.
    pub(crate) fn flush(&mut self, spare: &mut SpareBuffers) {
        self.outbound.flush(&*self.stream, spare);
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

    /// Handles the kernel's report that the socket is writable or broken.
    pub(crate) fn handle_writable(&mut self) {
        match self.origin {
            Origin::Connected(to) if self.outbound.is_connecting() => self.try_finish_connecting(to),
            _ => self.outbound.mark_writable(),
        }
    }

    /// Checks whether the connection was made. Writes nothing, so that the hello can leave together with the
    /// first frames.
    fn try_finish_connecting(&mut self, to: Address) {
        match self.stream.take_error() {
            Ok(Some(error)) | Err(error) => self.mark_failed(socket::to_errno(&error)),
            Ok(None) if self.stream.peer_addr().is_err() => return,
            // If no socket listens at the port, the kernel may have given this socket the same port. Then it
            // is connected to itself.
            Ok(None) if self.stream.local_addr().is_ok_and(|own| to == own.into()) => {
                self.mark_failed(Errno::ECONNREFUSED);
            }
            Ok(None) => self.outbound.mark_writable(),
        }
        tracing::debug!(%to, failure = ?self.outbound.failure(), "connected");
    }

    fn mark_failed(&mut self, errno: Errno) {
        self.outbound.mark_failed(errno);
        self.inbound.mark_hung_up();
    }

    /// Reads once and reports frames and events. A peer that has connected may come up only if the endpoint
    /// `has_room` for its link.
    pub(crate) fn read<R: FrameHandler>(
        &mut self,
        id: LinkId,
        buffer: &mut [u8],
        has_room: bool,
        is_local: impl FnMut(IpAddr) -> bool,
        receiver: &mut R,
    ) -> ReadStep {
        let origin = self.origin;
        let on_hello = |hello: &Hello, receiver: &mut R| {
            let peer = match origin {
                Origin::Connected(to) => to,
                Origin::Accepted { .. } if !has_room => return Err(NO_ROOM),
                Origin::Accepted { remote, .. } => believed_address(hello.address, remote, is_local),
            };
            tracing::debug!(link = id.0, %peer, claimed = %hello.address, "hello");
            receiver.link_event(id, LinkEvent::Up { peer, instance: hello.instance });
            Ok(())
        };
        let failure = self.outbound.failure();
        match (self.inbound.read(id, &self.stream, buffer, receiver, on_hello), failure) {
            (ReadOutcome::Progress { reported, drained: true }, None) => ReadStep::Idle(reported),
            (ReadOutcome::Progress { reported, .. }, _) => ReadStep::Ready(reported),
            (ReadOutcome::Blocked, None) => ReadStep::Idle(0),
            // The peer had ended in order before this side's failed write.
            (ReadOutcome::Closed, None | Some(Errno::EPIPE)) => ReadStep::Ended(LinkError::Closed),
            (ReadOutcome::Broken(error), None | Some(Errno::EPIPE)) => ReadStep::Ended(error),
            (ReadOutcome::Broken(error @ LinkError::Protocol(_)), _) => ReadStep::Ended(error),
            (ReadOutcome::Blocked, Some(Errno::EPIPE)) => {
                ReadStep::Ended(LinkError::System(Errno::ECONNRESET))
            }
            // A failed write has consumed the socket's error, so a read would not return it.
            (_, Some(errno)) => ReadStep::Ended(LinkError::System(errno)),
        }
    }

    /// Starts to drain the link: it still writes the frames that it has taken, and drops the frames that
    /// arrive.
    pub(crate) fn start_draining(&mut self) {
        self.inbound.start_discarding();
        self.closing = Some(Closing::Writing);
    }

    /// Whether the peer's kernel has acknowledged everything but the end of the stream. There is no need to
    /// wait for the acknowledgement of the end, which the peer's kernel may delay: this side's kernel repeats
    /// the end if necessary.
    pub(crate) fn has_peer_acknowledged_all(&self) -> bool {
        const END_BYTES: usize = 1;
        // If the kernel cannot tell, the link ends when the peer's stream ends.
        self.closing == Some(Closing::Reading)
            && sys::unacknowledged_bytes(&*self.stream).is_ok_and(|left| left <= END_BYTES)
    }

    /// If the peer will miss frames, makes it see a reset instead of an orderly end.
    pub(crate) fn reset_on_close_if_incomplete(&self) {
        if !self.outbound.can_end_stream()
            && let Err(error) = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO))
        {
            tracing::debug!(%error, "the connection ends without a reset");
        }
    }
}
