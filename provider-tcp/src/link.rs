//! One connection.

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{FrameHandler, LinkError, LinkEvent, LinkId};
use homespun_engine::wire::hello::Hello;
use mio::net::TcpStream;
use socket2::SockRef;

use crate::greeting::believed_address;
use crate::inbound::{Inbound, ReadOutcome};
use crate::outbound::Outbound;
use crate::staging::SpareBuffers;
use crate::{socket, sys};

/// Which side made the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// This one, to reach this address.
    Connected(Address),
    /// The peer.
    Accepted {
        /// Where the connection comes from.
        remote: SocketAddr,
        /// How many connections were accepted before.
        serial: u64,
    },
}

/// One connection and everything known about it.
///
/// ```text
///   connect --> connecting --+                 +--> ended, reported as down
///                            +--> greeting --> up
///   accept ------------------+         |       +--> draining --> ended
///                                      +--> ended, reported if this side connected
/// ```
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    pub(crate) origin: Origin,
    pub(crate) outbound: Outbound,
    inbound: Inbound,
    closing: Option<Closing>,
    /// Whether the link is in the transport's list of those to read.
    pub(crate) in_ready: bool,
    /// Whether the link is in the transport's list of those to write.
    pub(crate) in_dirty: bool,
}

/// How far a link that this side closed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// What was taken is still being written.
    Writing,
    /// The end of the stream is written; the peer's is awaited.
    Reading,
}

/// Whether a link goes on.
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
        let connected = matches!(origin, Origin::Accepted { .. });
        Link {
            stream,
            origin,
            outbound: Outbound::new(connected),
            inbound: Inbound::new(),
            closing: None,
            in_ready: false,
            in_dirty: false,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether the connection was accepted and its peer has not said who it is: the receiver does not know of this link.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.origin, Origin::Accepted { .. }) && !self.inbound.is_greeted()
    }

    /// Whether a flush would have something to do.
    pub(crate) fn wants_flush(&self) -> bool {
        self.outbound.has_staged() && self.outbound.may_write()
    }

    /// Notes that behind what can be read there is an end.
    pub(crate) fn mark_hung_up(&mut self) {
        self.inbound.mark_hung_up();
    }

    /// Writes what is staged, and the end of the stream behind it if the link is being closed.
    pub(crate) fn flush(&mut self, spare: &mut SpareBuffers) {
        self.outbound.flush(&self.stream, spare);
        if self.closing == Some(Closing::Writing) && !self.outbound.has_staged() {
            if let Err(error) = self.stream.shutdown(Shutdown::Write) {
                tracing::trace!(%error, "the peer was gone before the link was closed");
                self.fail(Errno::ENOTCONN);
            }
            self.closing = Some(Closing::Reading);
        } else if self.outbound.failure().is_some() {
            self.inbound.mark_hung_up();
        }
    }

    /// Notes that the kernel reported the socket writable, or broken.
    pub(crate) fn handle_writable(&mut self) {
        match self.origin {
            Origin::Connected(to) if self.outbound.is_connecting() => self.finish_connecting(to),
            _ => self.outbound.mark_writable(),
        }
    }

    /// Finds out whether the connection was made. Nothing is written for that, so that the hello can leave together
    /// with the first frames.
    fn finish_connecting(&mut self, to: Address) {
        match self.stream.take_error() {
            Ok(Some(error)) | Err(error) => self.fail(socket::errno(&error)),
            Ok(None) if self.stream.peer_addr().is_err() => return,
            // A port without a listener may be the very one that the kernel chose for this socket, which is then
            // connected to itself.
            Ok(None) if self.stream.local_addr().is_ok_and(|own| to == own.into()) => {
                self.fail(Errno::ECONNREFUSED);
            }
            Ok(None) => self.outbound.mark_writable(),
        }
        tracing::debug!(%to, failure = ?self.outbound.failure(), "connected");
    }

    fn fail(&mut self, errno: Errno) {
        self.outbound.fail(errno);
        self.inbound.mark_hung_up();
    }

    /// Reads once and reports what came.
    pub(crate) fn read<R: FrameHandler>(
        &mut self,
        id: LinkId,
        buffer: &mut [u8],
        is_local: impl Fn(IpAddr) -> bool,
        receiver: &mut R,
    ) -> ReadStep {
        let origin = self.origin;
        let greeted = |hello: &Hello, receiver: &mut R| {
            let peer = match origin {
                Origin::Connected(to) => to,
                Origin::Accepted { remote, .. } => believed_address(hello.address, remote, is_local),
            };
            tracing::debug!(link = id.0, %peer, claimed = %hello.address, "hello");
            receiver.link(id, LinkEvent::Up { peer, instance: hello.instance });
        };
        let failure = self.outbound.failure();
        match (self.inbound.read(id, &self.stream, buffer, receiver, greeted), failure) {
            (ReadOutcome::Progress { reported, drained: true }, None) => ReadStep::Idle(reported),
            (ReadOutcome::Progress { reported, .. }, _) => ReadStep::Ready(reported),
            (ReadOutcome::Blocked, None) => ReadStep::Idle(0),
            // The peer ended in order, and was not there any more for what this side wrote after that.
            (ReadOutcome::Closed, None | Some(Errno::EPIPE)) => ReadStep::Ended(LinkError::Closed),
            (ReadOutcome::Broken(error), None | Some(Errno::EPIPE)) => ReadStep::Ended(error),
            (ReadOutcome::Broken(error @ LinkError::Protocol(_)), _) => ReadStep::Ended(error),
            (ReadOutcome::Blocked, Some(Errno::EPIPE)) => {
                ReadStep::Ended(LinkError::System(Errno::ECONNRESET))
            }
            // The write has taken the error from the socket, so the read does not see it.
            (_, Some(errno)) => ReadStep::Ended(LinkError::System(errno)),
        }
    }

    /// Lets what was taken go out and drops what comes in.
    pub(crate) fn close(&mut self) {
        self.inbound.discard();
        self.closing = Some(Closing::Writing);
    }

    /// Whether the peer's kernel has all that this side wrote. The end of the stream may be under way: this side's kernel repeats
    /// it if need be, and the peer's takes its time to acknowledge what comes alone.
    pub(crate) fn is_delivered(&self) -> bool {
        const END_BYTES: usize = 1;
        // Where the kernel does not say, the peer's end of the stream does.
        self.closing == Some(Closing::Reading)
            && sys::unacknowledged_bytes(&self.stream).is_ok_and(|left| left <= END_BYTES)
    }

    /// Makes sure that the peer does not take the end for one in order if it misses something.
    pub(crate) fn reset_if_incomplete(&self) {
        if !self.outbound.is_complete()
            && let Err(error) = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))
        {
            tracing::debug!(%error, "the connection ends without a reset");
        }
    }
}
