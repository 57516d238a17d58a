//! The listening socket.

use std::net::SocketAddr;
use std::{io, mem};

use homespun_engine::errno::Errno;
use homespun_engine::fork::CloseOnFork;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::ACCEPT_RETRY_PASSES;
use crate::socket;

/// The result of an accept.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A connection, and the address from which the peer connected.
    Connection(TcpStream, SocketAddr),
    /// No connection, at least in this pass.
    Nothing,
    /// Descriptors or memory have run out, so that the connection keeps waiting. `is_process_limit` if the
    /// process has all the descriptors that it may have, so that it helps to close one.
    Exhausted { is_process_limit: bool },
}

/// A listening socket, and whether connections may be waiting.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: CloseOnFork<TcpListener>,
    /// Connections may be waiting. After the kernel has reported a connection, it may report no more until
    /// an accept has found none.
    is_pending: bool,
    /// How many more passes the listener waits for descriptors, for memory, or for a place for a connection
    /// without a hello; 0 if it does not wait.
    pause_passes: u32,
}

impl Listener {
    pub(crate) fn new(mut socket: TcpListener, registry: &Registry, token: Token) -> io::Result<Listener> {
        registry.register(&mut socket, token, Interest::READABLE)?;
        let socket = CloseOnFork::new(socket);
        Ok(Listener { socket, is_pending: true, pause_passes: 0 })
    }

    /// Notes that connections are waiting.
    pub(crate) fn mark_pending(&mut self) {
        self.is_pending = true;
    }

    /// Ends a pause, because a descriptor has become free.
    pub(crate) fn end_pause(&mut self) {
        self.pause_passes = 0;
    }

    /// Whether connections may be waiting.
    #[inline]
    pub(crate) fn may_have_connections(&self) -> bool {
        self.is_pending
    }

    /// Whether connections may be waiting and the listener is not paused.
    pub(crate) fn can_accept(&self) -> bool {
        self.is_pending && self.pause_passes == 0
    }

    /// If connections may be waiting, ends a pause: the next pass accepts again. Returns whether there was a
    /// pause.
    pub(crate) fn end_pause_if_pending(&mut self) -> bool {
        self.is_pending && mem::take(&mut self.pause_passes) > 0
    }

    /// Counts a pass. Returns whether connections may be waiting and the listener is not paused.
    #[inline]
    pub(crate) fn count_pass_toward_accept(&mut self) -> bool {
        if !self.is_pending {
            return false;
        }
        if self.pause_passes > 0 {
            self.pause_passes -= 1;
            return false;
        }
        true
    }

    /// Accepts a waiting connection, if there is one.
    pub(crate) fn accept(&mut self) -> Accepted {
        match self.socket.accept() {
            Ok((stream, remote)) => return Accepted::Connection(stream, remote),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_pending = false,
            // Without a descriptor, the call fails before the kernel looks for a connection.
            Err(_) if !self.has_connection() => self.is_pending = false,
            Err(error) if is_exhaustion(socket::to_errno(&error)) => {
                tracing::debug!(%error, "cannot accept: out of descriptors or memory");
                return Accepted::Exhausted { is_process_limit: socket::to_errno(&error) == Errno::EMFILE };
            }
            // The error concerns only this connection. The next pass accepts the next connection.
            Err(error) => tracing::debug!(%error, "a connection ended before it was accepted"),
        }
        Accepted::Nothing
    }

    /// Whether a connection is waiting. Says yes if the kernel does not answer.
    pub(crate) fn has_connection(&self) -> bool {
        let mut polled = [PollFd::new(&*self.socket, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())) != Ok(0)
    }

    /// Lets connections wait in the kernel for some passes. After that there may be room for them.
    pub(crate) fn pause(&mut self) {
        self.pause_passes = ACCEPT_RETRY_PASSES;
    }

    /// Closes the socket. The kernel resets the waiting connections.
    pub(crate) fn close(mut self, registry: &Registry) {
        if let Err(error) = registry.deregister(&mut *self.socket) {
            tracing::debug!(%error, "the listener was not registered");
        }
    }
}

/// Whether a call failed for lack of descriptors or memory. Such a call may succeed later.
pub(crate) fn is_exhaustion(errno: Errno) -> bool {
    [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM].contains(&errno)
}
