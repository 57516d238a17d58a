//! The sockets that take connections in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun_engine::address::Address;
use rustix::net::{SocketFlags, accept_with, bind, listen};
use smallvec::SmallVec;

use crate::control;
use crate::fork::CloseOnForkFd;
use crate::limits::BACKLOG_CONNECTIONS;
use crate::name;

/// The listening sockets of an endpoint, one for each address that it is bound to.
#[derive(Debug)]
pub(crate) struct Listener {
    sockets: SmallVec<[CloseOnForkFd; 2]>,
    /// Connections may be waiting: the kernel says so once, and not again before the queue was found empty.
    is_pending: bool,
    /// Descriptors or memory ran out; connections wait until it is time to try again.
    is_starved: bool,
}

impl Listener {
    /// Binds an endpoint and returns the address that it is known by.
    pub(crate) fn bind(to: Address, instance: u64) -> io::Result<(Listener, Address)> {
        if to.is_specific() && !name::is_local(to.ip()) {
            return Err(rustix::io::Errno::ADDRNOTAVAIL.into());
        }
        let mut taken = io::Error::from(rustix::io::Errno::ADDRINUSE);
        for port in name::ports(to.port(), instance) {
            let bindings = name::bindings(to.with_port(port));
            let bound: io::Result<SmallVec<_>> = bindings.iter().map(|&address| bind_one(address)).collect();
            match bound {
                Ok(sockets) => {
                    return Ok((Listener { sockets, is_pending: true, is_starved: false }, bindings[0]));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Notes that connections are waiting.
    pub(crate) fn mark_pending(&mut self) {
        self.is_pending = true;
    }

    /// Whether connections may be waiting that could be taken in.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_pending && !self.is_starved
    }

    /// Whether connections wait for something to become free.
    pub(crate) fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// It is time to try again, or something has become free.
    pub(crate) fn clear_starved(&mut self) {
        self.is_starved = false;
    }

    /// Accepts a connection, if one is waiting.
    pub(crate) fn accept(&mut self) -> Option<OwnedFd> {
        if !self.is_ready() {
            return None;
        }
        for socket in &self.sockets {
            match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(accepted) => return Some(accepted),
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) if is_exhaustion(error) => {
                    tracing::debug!(%error, "connections wait until there are descriptors again");
                    self.is_starved = true;
                    return None;
                }
                // What happened to one connection says nothing about the next, which has its turn in the next pass.
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

fn bind_one(address: Address) -> io::Result<CloseOnForkFd> {
    let socket = CloseOnForkFd::new(control::socket()?);
    bind(&socket, &name::of(address)?)?;
    listen(&socket, BACKLOG_CONNECTIONS)?;
    Ok(socket)
}

/// Whether the system has run out of something, so that the connection keeps waiting.
fn is_exhaustion(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&error)
}
