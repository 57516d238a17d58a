//! A shared-memory transport beside TCP: one of the two transports of an `auto` endpoint.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;

use homespun_engine::address::Address;
use homespun_engine::transport::LinkId;
use homespun_engine::wire::hello::Hello;

use super::ShmTransport;
use super::policy::{forbidding_error, is_refused_by_policy};
use crate::listener::Listener;
use crate::name::NameKind;

impl ShmTransport {
    /// Opens the transport of an endpoint whose TCP transport is bound to `bound`. Peers reach the endpoint
    /// at the address in the hello. If a policy or limit forbids the endpoint's name or memory files, the
    /// transport has no peers.
    pub(crate) fn open_beside_tcp(
        bound: Address,
        neighbourhood: Arc<str>,
        hello: Hello,
        backlog_connections: u16,
    ) -> io::Result<ShmTransport> {
        let names = NameKind::BesideTcp { neighbourhood };
        if let Some(error) = forbidding_error() {
            let mut transport = ShmTransport::with_listener(None, names, hello)?;
            transport.note_forbidden_memory_files(&error);
            return Ok(transport);
        }
        match Listener::bind_names(&names, &[bound], backlog_connections) {
            Ok(listener) => ShmTransport::with_listener(Some(listener), names, hello),
            Err(error) if is_refused_by_policy(&error) => {
                let mut transport = ShmTransport::with_listener(None, names, hello)?;
                transport.note_refused_name(&error);
                Ok(transport)
            }
            Err(error) => Err(error),
        }
    }

    /// Watches the epoll descriptor of another transport, the companion. When the companion has events, the
    /// [`wake_fd`](homespun_engine::transport::Transport::wake_fd) of this transport becomes readable.
    ///
    /// # Errors
    ///
    /// The system's error, such as ENOMEM, or ENOSPC beyond the user's limit of watches.
    pub fn watch_companion(&self, fd: impl AsFd) -> io::Result<()> {
        self.poller.add_companion(fd)
    }

    /// Returns whether a poll of the kernel has found events of the [companion](Self::watch_companion) since
    /// the last call. Each poll finds the same events until the companion has handled them.
    #[inline]
    pub fn take_companion_event(&mut self) -> bool {
        mem::take(&mut self.has_companion_event)
    }

    /// Whether [`take_absent_link`](Self::take_absent_link) has a link to return.
    #[inline]
    pub fn has_absent_link(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Removes and returns a link that cannot share memory, with the address of its connect. A link cannot
    /// share memory if no shared-memory endpoint is at the address, if that endpoint belongs to another
    /// user, or if a security policy forbids the connect. The transport never reports the link. The number
    /// of the link stays taken until the caller [closes](homespun_engine::transport::Transport::close) the
    /// link.
    #[inline]
    pub fn take_absent_link(&mut self) -> Option<(LinkId, Address)> {
        self.absent.pop()
    }

    /// Whether any ring is hot. If so, passes poll the hot rings, and seldom poll the kernel.
    #[inline]
    pub fn has_hot_rings(&self) -> bool {
        !self.hot.is_empty()
    }
}
