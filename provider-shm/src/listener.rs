//! The listening sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun_engine::address::Address;
use homespun_engine::fork::CloseOnFork;
use homespun_engine::wire::hello::VERSION;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, SocketFlags, accept_with, bind, listen, shutdown};
use smallvec::SmallVec;

use crate::control;
use crate::name::{self, NameKind};

/// The listening sockets of an endpoint, one for each address to which it is bound.
#[derive(Debug)]
pub(crate) struct Listener {
    sockets: SmallVec<[CloseOnFork<OwnedFd>; 2]>,
    /// Whether connections may be waiting. The kernel reports an arrival only once, so this stays set until
    /// an accept finds no connection.
    is_pending: bool,
    /// Whether an accept has failed for lack of descriptors or memory. The connections then wait for the
    /// next try.
    is_starved: bool,
}

impl Listener {
    /// Binds an endpoint and returns the address at which peers reach it.
    pub(crate) fn bind(
        to: Address,
        instance: u64,
        backlog_connections: u16,
    ) -> io::Result<(Listener, Address)> {
        if to.is_specific() && !name::is_local(to) {
            return Err(rustix::io::Errno::ADDRNOTAVAIL.into());
        }
        let mut taken = io::Error::from(rustix::io::Errno::ADDRINUSE);
        for port in name::ports_to_try(to.port(), instance) {
            let bindings = name::addresses_to_bind(to.with_port(port));
            match Listener::bind_names(&NameKind::Alone, &bindings, backlog_connections) {
                Ok(listener) => return Ok((listener, bindings[0])),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    /// Listens at the names of these addresses.
    pub(crate) fn bind_names(
        kind: &NameKind,
        addresses: &[Address],
        backlog_connections: u16,
    ) -> io::Result<Listener> {
        let sockets = addresses.iter().map(|&address| bind_and_listen(kind, address, backlog_connections));
        Ok(Listener { sockets: sockets.collect::<io::Result<_>>()?, is_pending: true, is_starved: false })
    }

    /// Refuses all connections from now on. The names stay taken.
    pub(crate) fn refuse_connections(&self) {
        for socket in &self.sockets {
            // The sockets listen, so this cannot fail.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Notes that connections are waiting.
    pub(crate) fn mark_pending(&mut self) {
        self.is_pending = true;
    }

    /// Whether connections may be waiting, and no accept has failed for lack of descriptors or memory.
    pub(crate) fn can_accept(&self) -> bool {
        self.is_pending && !self.is_starved
    }

    /// Whether connections wait for descriptors or memory.
    pub(crate) fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Records that connections wait for descriptors.
    pub(crate) fn mark_starved(&mut self) {
        self.is_starved = true;
    }

    /// Whether a connection waits, and need not wait for descriptors or memory.
    pub(crate) fn has_connection(&mut self) -> bool {
        if self.can_accept() {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut polled: SmallVec<[PollFd<'_>; 2]> =
                self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            self.is_pending = poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0);
        }
        self.can_accept()
    }

    /// Lets the transport accept again.
    pub(crate) fn clear_starved(&mut self) {
        self.is_starved = false;
    }

    /// Accepts a waiting connection, if there is one.
    pub(crate) fn try_accept(&mut self) -> Option<OwnedFd> {
        if !self.can_accept() {
            return None;
        }
        for socket in &self.sockets {
            match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(accepted) => return Some(accepted),
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) if is_exhaustion(error) => {
                    tracing::debug!(%error, "cannot accept: out of descriptors or memory");
                    self.is_starved = true;
                    return None;
                }
                // The error concerns only this connection. The next pass accepts the next connection.
                Err(error) => {
                    tracing::debug!(%error, "a connection ended before it was accepted");
                    return None;
                }
            }
        }
        self.is_pending = false;
        None
    }
}

impl Drop for Listener {
    /// Reads the messages of connections that wait: closing the socket would close their descriptors.
    fn drop(&mut self) {
        for socket in self.sockets.iter().filter(|socket| !socket.is_in_forked_child()) {
            if shutdown(socket, Shutdown::Both).is_err() {
                continue;
            }
            while let Ok(waiting) = accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                if shutdown(&waiting, Shutdown::Both).is_ok() {
                    control::discard_messages(&waiting);
                }
            }
        }
    }
}

fn bind_and_listen(
    kind: &NameKind,
    address: Address,
    backlog_connections: u16,
) -> io::Result<CloseOnFork<OwnedFd>> {
    let socket = CloseOnFork::new(control::open_socket()?);
    bind(&socket, &name::socket_name(kind, VERSION, address)?)?;
    listen(&socket, backlog_connections.into())?;
    Ok(socket)
}

/// Whether an accept failed for lack of descriptors or memory. Then the connection keeps waiting.
fn is_exhaustion(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&error)
}
