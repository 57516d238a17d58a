//! The provider: its attributes, and how it opens endpoints.

use std::sync::Arc;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Provider, ProviderAttr, SharedMemory};
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;

use crate::interfaces::interface_findings;
use crate::limits::PORT_TRIES;
use crate::transport::AutoTransport;

/// Opens endpoints that reach each peer over shared memory if possible, and otherwise over TCP. The provider
/// of the domain `auto`.
///
/// ```
/// use homespun_auto::AutoProvider;
/// use homespun_engine::address::AddressFormat;
/// use homespun_engine::transport::{Provider, Transport};
/// use homespun_shm::ShmProvider;
/// use homespun_tcp::TcpProvider;
///
/// let provider = AutoProvider::new(ShmProvider::new(), TcpProvider::new());
/// let transport = provider.open(AddressFormat::SockaddrIn.wildcard(), 7)?;
/// assert_ne!(transport.address().port(), 0);
/// # Ok::<(), homespun_engine::errno::Errno>(())
/// ```
#[derive(Debug, Clone)]
pub struct AutoProvider {
    near: ShmProvider,
    far: TcpProvider,
    neighbourhood: Arc<str>,
}

impl AutoProvider {
    /// A provider over these two, with their settings.
    pub fn new(near: ShmProvider, far: TcpProvider) -> AutoProvider {
        AutoProvider { near, far, neighbourhood: Arc::from("") }
    }

    /// Sets the neighbourhood, a name of at most 32 bytes; the default is empty. Endpoints share memory only
    /// within a neighbourhood. With several neighbourhoods, processes of one host act as if they were on
    /// several hosts.
    #[must_use]
    pub fn with_neighbourhood(mut self, name: &str) -> AutoProvider {
        self.neighbourhood = name.into();
        self
    }

    /// Opens an endpoint at `bind`. If the port of `bind` is 0, the system chooses a port.
    fn try_open(&self, bind: Address, instance: u64) -> Result<AutoTransport, Errno> {
        // TCP listens last: a peer that reaches the endpoint over TCP must also find its name in shared
        // memory.
        let bound = self.far.bind(bind)?;
        let near =
            self.near.open_beside_tcp(bound.bound(), bound.address(), &self.neighbourhood, instance)?;
        AutoTransport::new(near, bound.listen(instance)?)
    }
}

impl Provider for AutoProvider {
    type Transport = AutoTransport;

    fn attr(&self) -> ProviderAttr {
        let (near, far) = (self.near.attr(), self.far.attr());
        ProviderAttr {
            domain: "auto".into(),
            formats: far.formats,
            local: true,
            remote: true,
            max_message_bytes: near.max_message_bytes.min(far.max_message_bytes),
        }
    }

    fn host_findings(&self) -> Vec<String> {
        let mut findings = interface_findings();
        findings.extend(self.near.host_findings());
        findings.extend(self.far.host_findings());
        findings
    }

    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        self.near.allocate_shareable(len_bytes)
    }

    fn open(&self, bind: Address, instance: u64) -> Result<AutoTransport, Errno> {
        let tries = if bind.port() == 0 { PORT_TRIES } else { 1 };
        let mut opened = Err(Errno::EADDRINUSE);
        for _ in 0..tries {
            opened = self.try_open(bind, instance);
            if !matches!(opened, Err(Errno::EADDRINUSE)) {
                break;
            }
        }
        opened
    }
}
