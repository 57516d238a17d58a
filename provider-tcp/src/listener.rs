//! The socket that takes connections in.

use std::net::SocketAddr;
use std::{io, mem};

use homespun_engine::errno::Errno;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use crate::limits::ACCEPT_RETRY_PASSES;
use crate::socket;

/// A listening socket and whether connections may be waiting at it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    /// Connections may be waiting: the kernel says so once, and not again before the queue was found empty.
    is_pending: bool,
    /// How many passes to let go by, after descriptors or memory ran out.
    pause_passes: u32,
}

impl Listener {
    pub(crate) fn new(mut socket: TcpListener, registry: &Registry, token: Token) -> io::Result<Listener> {
        registry.register(&mut socket, token, Interest::READABLE)?;
        Ok(Listener { socket, is_pending: true, pause_passes: 0 })
    }

    /// Notes that connections are waiting.
    pub(crate) fn mark_pending(&mut self) {
        self.is_pending = true;
    }

    /// Notes that a descriptor has become free.
    pub(crate) fn unpause(&mut self) {
        self.pause_passes = 0;
    }

    /// Whether connections may be waiting that could be taken in now.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_pending && self.pause_passes == 0
    }

    /// Whether connections wait for descriptors or memory; if so the next pass tries again, however soon it comes.
    pub(crate) fn resume_accepting(&mut self) -> bool {
        self.is_pending && mem::take(&mut self.pause_passes) > 0
    }

    /// Accepts a connection, if one is waiting and it is time to look.
    pub(crate) fn accept(&mut self) -> Option<(TcpStream, SocketAddr)> {
        if !self.is_pending {
            return None;
        }
        if self.pause_passes > 0 {
            self.pause_passes -= 1;
            return None;
        }
        match self.socket.accept() {
            Ok(accepted) => return Some(accepted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_pending = false,
            Err(error) if is_exhaustion(socket::errno(&error)) => {
                tracing::debug!(%error, "connections wait until there are descriptors again");
                self.pause_passes = ACCEPT_RETRY_PASSES;
            }
            // What happened to a connection while it waited says nothing about the next one, which is accepted in
            // the next pass.
            Err(error) => tracing::debug!(%error, "a connection ended before it was accepted"),
        }
        None
    }

    /// Closes the socket; the kernel resets the connections that wait at it.
    pub(crate) fn close(mut self, registry: &Registry) {
        if let Err(error) = registry.deregister(&mut self.socket) {
            tracing::debug!(%error, "the listener was not registered");
        }
    }
}

/// Whether the system has run out of something, so that the connection keeps waiting.
fn is_exhaustion(errno: Errno) -> bool {
    [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM].contains(&errno)
}
