//! The provider, which opens transports.

use std::time::Duration;

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Provider, ProviderAttr};

use crate::limits::{ACCEPTED_DEFAULT_LINKS, HELLO_TIMEOUT_MS, HOLD_TIMEOUT_MS};
use crate::socket::{self, KernelBuffers};
use crate::transport::{AcceptLimits, TcpTransport};

/// Opens endpoints that reach each other over TCP, on this host and on others. Its domain is `tcp`.
#[derive(Debug, Clone)]
pub struct TcpProvider {
    buffers: KernelBuffers,
    interface: Option<String>,
    accepting: AcceptLimits,
}

impl Default for TcpProvider {
    fn default() -> TcpProvider {
        let accepting = AcceptLimits {
            max_links: ACCEPTED_DEFAULT_LINKS,
            hello_timeout: Duration::from_millis(HELLO_TIMEOUT_MS),
            hold_timeout: Duration::from_millis(HOLD_TIMEOUT_MS),
        };
        TcpProvider { buffers: KernelBuffers::default(), interface: None, accepting }
    }
}

impl TcpProvider {
    /// A provider with the kernel's default buffers, which the kernel enlarges as a connection needs.
    pub fn new() -> TcpProvider {
        TcpProvider::default()
    }

    /// Sets the preferred interface (such as `eth0`). An endpoint that is bound to a wildcard gives its peers
    /// the address of this interface, unless the interface is down or has no address of the right format.
    #[must_use]
    pub fn with_interface(mut self, name: &str) -> TcpProvider {
        self.interface = Some(name.into());
        self
    }

    /// Asks for a send buffer of this many bytes in the kernel for each connection (`SO_SNDBUF` in
    /// `socket(7)`). The kernel doubles the value, and keeps it within its own limits.
    #[must_use]
    pub fn with_send_buffer_bytes(mut self, bytes: usize) -> TcpProvider {
        self.buffers.send_bytes = Some(bytes);
        self
    }

    /// Asks for a receive buffer of this many bytes in the kernel for each connection (`SO_RCVBUF` in
    /// `socket(7)`). The kernel doubles the value, and keeps it within its own limits.
    #[must_use]
    pub fn with_receive_buffer_bytes(mut self, bytes: usize) -> TcpProvider {
        self.buffers.receive_bytes = Some(bytes);
        self
    }

    /// Sets how many links an endpoint has at most that peers have connected and on which they have said
    /// hello, by default [`ACCEPTED_DEFAULT_LINKS`]. The endpoint refuses further peers: it closes their
    /// connection, and their sends fail with ECONNRESET.
    #[must_use]
    pub fn with_accepted_max_links(mut self, links: usize) -> TcpProvider {
        self.accepting.max_links = links;
        self
    }

    /// Sets how long a connection may take until the peer's hello has arrived, by default
    /// [`HELLO_TIMEOUT_MS`].
    #[must_use]
    pub fn with_hello_timeout(mut self, timeout: Duration) -> TcpProvider {
        self.accepting.hello_timeout = timeout;
        self
    }

    /// Sets how long a link may wait for the proof that it comes from the address that it claims, if another
    /// link to that address lives; by default [`HOLD_TIMEOUT_MS`]. Then the link ends.
    #[must_use]
    pub fn with_hold_timeout(mut self, timeout: Duration) -> TcpProvider {
        self.accepting.hold_timeout = timeout;
        self
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
        TcpTransport::open(bind, instance, self.buffers, self.interface.as_deref(), self.accepting)
            .map_err(|error| socket::to_errno(&error))
    }
}
