//! The provider, which opens transports.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Provider, ProviderAttr};
use socket2::Socket;

use crate::interface_selector::InterfaceSelector;
use crate::limits::{ACCEPTED_DEFAULT_LINKS, HELLO_TIMEOUT_MS, HOLD_TIMEOUT_MS, UNPROVEN_GRACE_MS};
use crate::local;
use crate::socket::{self, KernelBuffers};
use crate::transport::{AcceptLimits, TcpTransport};

/// Opens endpoints that reach each other over TCP, on this host and on other hosts. The provider of the
/// domain `tcp`.
#[derive(Debug, Clone)]
pub struct TcpProvider {
    buffers: KernelBuffers,
    interfaces: Option<InterfaceSelector>,
    accepting: AcceptLimits,
    connect_timeout: Option<Duration>,
}

impl Default for TcpProvider {
    fn default() -> TcpProvider {
        let accepting = AcceptLimits {
            max_links: ACCEPTED_DEFAULT_LINKS,
            unproven_grace: Duration::from_millis(UNPROVEN_GRACE_MS),
            hello_timeout: Duration::from_millis(HELLO_TIMEOUT_MS),
            hold_timeout: Duration::from_millis(HOLD_TIMEOUT_MS),
        };
        TcpProvider { buffers: KernelBuffers::default(), interfaces: None, accepting, connect_timeout: None }
    }
}

impl TcpProvider {
    /// A provider whose connections have the kernel's default buffers. The kernel enlarges these as needed.
    pub fn new() -> TcpProvider {
        TcpProvider::default()
    }

    /// Sets the allowed interfaces. If an endpoint is bound to a wildcard, it gives its peers an address of
    /// an allowed interface. If no allowed interface has an address of the endpoint's format, the endpoint
    /// does not open: EADDRNOTAVAIL.
    #[must_use]
    pub fn with_interfaces(mut self, selector: InterfaceSelector) -> TcpProvider {
        self.interfaces = Some(selector);
        self
    }

    /// Sets the size of the kernel's send buffer for each connection (`SO_SNDBUF` in `socket(7)`). The
    /// kernel doubles the value, within its own limits.
    #[must_use]
    pub fn with_send_buffer_bytes(mut self, bytes: usize) -> TcpProvider {
        self.buffers.send_bytes = Some(bytes);
        self
    }

    /// Sets the size of the kernel's receive buffer for each connection (`SO_RCVBUF` in `socket(7)`). The
    /// kernel doubles the value, within its own limits.
    #[must_use]
    pub fn with_receive_buffer_bytes(mut self, bytes: usize) -> TcpProvider {
        self.buffers.receive_bytes = Some(bytes);
        self
    }

    /// Sets how long a peer's host may leave all tries to connect unanswered, before the link ends with
    /// ETIMEDOUT. The kernel repeats the tries, and gives a host at least a second. By default the kernel
    /// chooses the time, about two minutes.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Option<Duration>) -> TcpProvider {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how many accepted links an endpoint has at most, by default [`ACCEPTED_DEFAULT_LINKS`]. The
    /// endpoint may have fewer, if the process may have few descriptors. Accepted connections on which the
    /// peer has not said hello do not count. One host may have only a part of the links
    /// ([`HOST_LINKS_PERCENT`](crate::limits::HOST_LINKS_PERCENT)).
    ///
    /// A further peer gets the place of a link whose claim of its address is
    /// [unproven](Self::with_unproven_grace). If there is none, the endpoint refuses the peer: it closes the
    /// connection, and the peer's sends fail with ECONNRESET.
    #[must_use]
    pub fn with_accepted_max_links(mut self, links: usize) -> TcpProvider {
        self.accepting.max_links = links;
        self
    }

    /// Sets how long an accepted link is safe from being displaced by another link, by default
    /// [`UNPROVEN_GRACE_MS`]. After this time it may be displaced, until the endpoint at the address that its
    /// peer claims has confirmed it.
    #[must_use]
    pub fn with_unproven_grace(mut self, grace: Duration) -> TcpProvider {
        self.accepting.unproven_grace = grace;
        self
    }

    /// Sets how long a connection may take until the peer's hello has arrived, by default
    /// [`HELLO_TIMEOUT_MS`].
    #[must_use]
    pub fn with_hello_timeout(mut self, timeout: Duration) -> TcpProvider {
        self.accepting.hello_timeout = timeout;
        self
    }

    /// Sets how long an endpoint holds an accepted link before it ends the link; the default is
    /// [`HOLD_TIMEOUT_MS`]. A link is held if another live link leads to the address that it claims. The
    /// hold ends once the claim is proven.
    #[must_use]
    pub fn with_hold_timeout(mut self, timeout: Duration) -> TcpProvider {
        self.accepting.hold_timeout = timeout;
        self
    }

    /// Binds an endpoint without listening. Until the endpoint listens, no peer can connect to it. But the
    /// system no longer gives its port to another endpoint at port 0.
    ///
    /// ```
    /// use homespun_engine::transport::Transport;
    /// use homespun_tcp::TcpProvider;
    ///
    /// let bound = TcpProvider::new().bind("127.0.0.1:0".parse().unwrap())?;
    /// let address = bound.address();
    /// assert_eq!(bound.listen(7)?.address(), address);
    /// # Ok::<(), homespun_engine::errno::Errno>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error, such as EADDRINUSE, EADDRNOTAVAIL, EMFILE or EACCES.
    pub fn bind(&self, bind: Address) -> Result<BoundTcp, Errno> {
        let bind_socket = || {
            let socket = socket::bind_listener(bind.socket_addr(), self.buffers)?;
            let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
            let address = local::reachable_address(bound, self.interfaces.as_ref())?;
            let TcpProvider { buffers, accepting, connect_timeout, .. } = *self;
            Ok(BoundTcp { socket, bound, address, buffers, accepting, connect_timeout })
        };
        bind_socket().map_err(|error: io::Error| socket::to_errno(&error))
    }
}

/// An endpoint that has its address, but does not listen yet. [`TcpProvider::bind`] makes it.
#[derive(Debug)]
pub struct BoundTcp {
    pub(crate) socket: Socket,
    pub(crate) bound: SocketAddr,
    pub(crate) address: Address,
    pub(crate) buffers: KernelBuffers,
    pub(crate) accepting: AcceptLimits,
    pub(crate) connect_timeout: Option<Duration>,
}

impl BoundTcp {
    /// Returns the address to which the endpoint is bound. The port is not 0, but the IP address may be a
    /// wildcard.
    pub fn bound(&self) -> Address {
        self.bound.into()
    }

    /// Returns the address at which peers will reach the endpoint
    /// ([`Transport::address`](homespun_engine::transport::Transport::address)).
    pub fn address(&self) -> Address {
        self.address
    }

    /// Opens the transport, which listens. For `instance`, see [`Provider::open`].
    ///
    /// # Errors
    ///
    /// EADDRINUSE if another socket has begun to listen at the port since this endpoint was bound; otherwise
    /// the system's error, such as EMFILE.
    pub fn listen(self, instance: u64) -> Result<TcpTransport, Errno> {
        TcpTransport::listen(self, instance).map_err(|error| socket::to_errno(&error))
    }
}

impl Provider for TcpProvider {
    type Transport = TcpTransport;

    fn attr(&self) -> ProviderAttr {
        ProviderAttr {
            domain: "tcp".into(),
            formats: vec![AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6],
            local: true,
            remote: true,
            max_message_bytes: MESSAGE_MAX_BYTES,
        }
    }

    fn open(&self, bind: Address, instance: u64) -> Result<TcpTransport, Errno> {
        self.bind(bind)?.listen(instance)
    }
}
