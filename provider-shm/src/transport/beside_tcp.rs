//! A shared-memory transport beside TCP: one of the two transports of an `auto` endpoint.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;

use homespun_engine::address::Address;
use homespun_engine::transport::LinkId;
use homespun_engine::wire::hello::Hello;

use super::ShmTransport;
use crate::listener::Listener;
use crate::name::NameKind;

impl ShmTransport {
    /// Opens the transport of an endpoint whose TCP transport is bound to `bound`. Peers reach the endpoint
    /// at the address in `hello`.
    pub(crate) fn open_beside_tcp(
        bound: Address,
        neighbourhood: Arc<str>,
        hello: Hello,
        backlog_connections: u16,
    ) -> io::Result<ShmTransport> {
        let names = NameKind::BesideTcp { neighbourhood };
        let listener = Listener::bind_names(&names, &[bound], backlog_connections)?;
        ShmTransport::with_listener(listener, names, hello)
    }

    /// Watches the epoll descriptor of another transport, the companion: when the companion has events, the
    /// [`wake_fd`](homespun_engine::transport::Transport::wake_fd) of this transport becomes readable.
    ///
    /// # Errors
    ///
    /// The system's error, such as ENOMEM, or ENOSPC beyond the user's limit of watches.
    pub fn watch_companion(&self, fd: impl AsFd) -> io::Result<()> {
        self.poller.add_companion(fd)
    }

    /// Whether, since the last call, a poll of the kernel has found events of the
    /// [companion](Self::watch_companion). As long as the companion has events, each poll finds them again.
    #[inline]
    pub fn take_companion_event(&mut self) -> bool {
        mem::take(&mut self.has_companion_event)
    }

    /// Returns a link whose connect found no endpoint beside TCP, or only one of another user, and the
    /// address of the connect. The transport never reports the end of such a link: its number stays in use
    /// until the caller [closes](homespun_engine::transport::Transport::close) the link.
    #[inline]
    pub fn take_absent_link(&mut self) -> Option<(LinkId, Address)> {
        self.absent.pop()
    }

    /// Whether any ring is hot. If so, passes poll the hot rings, and poll the kernel only now and then.
    #[inline]
    pub fn has_hot_rings(&self) -> bool {
        !self.hot.is_empty()
    }
}
