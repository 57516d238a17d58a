//! The provider, which opens transports.

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Provider, ProviderAttr};

use crate::interface_selector::InterfaceSelector;
use crate::socket::{self, KernelBuffers};
use crate::transport::TcpTransport;

/// Opens endpoints that reach each other over TCP, on this host and on others. Its domain is `tcp`.
#[derive(Debug, Clone, Default)]
pub struct TcpProvider {
    buffers: KernelBuffers,
    interfaces: Option<InterfaceSelector>,
}

impl TcpProvider {
    /// A provider with the kernel's default buffers, which the kernel enlarges as a connection needs.
    pub fn new() -> TcpProvider {
        TcpProvider::default()
    }

    /// Sets the allowed interfaces. An endpoint that is bound to a wildcard gives its peers an address of
    /// one of these; if none of them has an address of the right format, opening it fails with EADDRNOTAVAIL.
    #[must_use]
    pub fn with_interfaces(mut self, selector: InterfaceSelector) -> TcpProvider {
        self.interfaces = Some(selector);
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
        TcpTransport::open(bind, instance, self.buffers, self.interfaces.as_ref())
            .map_err(|error| socket::to_errno(&error))
    }
}
