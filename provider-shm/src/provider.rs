//! The provider: what it offers, and how its endpoints are opened.

use std::sync::Arc;

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Provider, ProviderAttr, SharedMemory};

use crate::control;
use crate::findings;
use crate::shareable;
use crate::sys;
use crate::transport::ShmTransport;

/// Opens endpoints that reach each other through shared memory: those of processes of one user on one host, in one
/// network namespace.
///
/// ```
/// use homespun_engine::address::AddressFormat;
/// use homespun_engine::transport::{Provider, Transport};
/// use homespun_shm::ShmProvider;
///
/// let transport = ShmProvider::new().open(AddressFormat::SockaddrIn.wildcard(), 7)?;
/// assert!(transport.address().ip().is_loopback());
/// # Ok::<(), homespun_engine::errno::Errno>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ShmProvider {
    allows_any_tracer: bool,
}

impl ShmProvider {
    /// A provider that leaves the process as it is.
    pub fn new() -> ShmProvider {
        ShmProvider::default()
    }

    /// Lets every process of this user read this one's memory, once an endpoint is opened, where the Yama security module
    /// lets only descendants do so (`kernel.yama.ptrace_scope = 1`). Large messages then go across by one copy between
    /// processes of any descent; without this they take two. It also lets debuggers attach to this process, which is why
    /// it is not done unasked. Has no effect where Yama is not in the way.
    #[must_use]
    pub fn with_any_tracer(mut self) -> ShmProvider {
        self.allows_any_tracer = true;
        self
    }
}

impl Provider for ShmProvider {
    type Transport = ShmTransport;

    fn attr(&self) -> ProviderAttr {
        ProviderAttr {
            domain: "shm".into(),
            formats: vec![AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6],
            local: true,
            remote: false,
            max_message_bytes: MESSAGE_MAX_BYTES,
        }
    }

    fn findings(&self) -> Vec<String> {
        vec![findings::cross_memory(self.allows_any_tracer)]
    }

    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        shareable::allocate(len_bytes).map(Some).map_err(|error| control::errno(&error))
    }

    fn open(&self, bind: Address, instance: u64) -> Result<ShmTransport, Errno> {
        if self.allows_any_tracer
            && let Err(error) = sys::allow_any_tracer()
        {
            tracing::debug!(%error, "other processes are let in by nobody but Yama, which is not here");
        }
        ShmTransport::open(bind, instance).map_err(|error| control::errno(&error))
    }
}
