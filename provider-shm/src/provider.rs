//! The provider: its attributes, and how it opens endpoints.

use std::sync::Arc;

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Provider, ProviderAttr, SharedMemory};
use homespun_engine::wire::hello::Hello;

use crate::control;
use crate::cross_memory;
use crate::limits::BACKLOG_CONNECTIONS;
use crate::shareable;
use crate::sys;
use crate::transport::ShmTransport;
use crate::ways;
use crate::write_back::can_write_back;

/// Opens the transports of endpoints that reach each other through shared memory. The endpoints' processes
/// must belong to one user, on one host and in one network namespace.
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
#[derive(Debug, Clone)]
pub struct ShmProvider {
    allows_any_tracer: bool,
    backlog_connections: u16,
}

impl Default for ShmProvider {
    fn default() -> ShmProvider {
        ShmProvider { allows_any_tracer: false, backlog_connections: BACKLOG_CONNECTIONS }
    }
}

impl ShmProvider {
    /// A provider that changes no setting of the process.
    pub fn new() -> ShmProvider {
        ShmProvider::default()
    }

    /// Lets every process of this user read this process's memory (`PR_SET_PTRACER_ANY` in `prctl(2)`), once
    /// an endpoint is opened. This matters where the Yama security module lets only ancestors read it
    /// (`kernel.yama.ptrace_scope = 1`): large messages can then take one copy instead of two. Off by
    /// default, since it also lets debuggers of this user attach to the process.
    #[must_use]
    pub fn with_any_tracer(mut self) -> ShmProvider {
        self.allows_any_tracer = true;
        self
    }

    /// Sets how many connections may wait until an endpoint accepts them (`listen(2)`); the default is 4096.
    /// The kernel's own limit `net.core.somaxconn` applies, too. If the backlog is full, the connecting
    /// endpoint tries again later.
    #[must_use]
    pub fn with_backlog_connections(mut self, connections: u16) -> ShmProvider {
        self.backlog_connections = connections;
        self
    }

    /// Opens the shared-memory transport of an endpoint that also has a TCP transport. The TCP transport is
    /// bound to `bound`, a specific address or a wildcard, with a port. Peers reach the endpoint at
    /// `address`. The shared-memory transport connects only to endpoints that this method has opened with
    /// the same neighbourhood. [`ShmTransport::take_absent_link`] returns the links whose connect found no
    /// such endpoint. If a security policy forbids the endpoint's abstract name (EPERM or EACCES), the
    /// transport still opens, but logs a warning and reaches no peer.
    ///
    /// ```
    /// use homespun_engine::address::Address;
    /// use homespun_engine::transport::Transport;
    /// use homespun_shm::ShmProvider;
    ///
    /// let bound: Address = "127.71.3.9:7471".parse().unwrap();
    /// let mut transport = ShmProvider::new().open_beside_tcp(bound, bound, "", 7)?;
    /// let link = transport.connect(bound.with_port(7472));
    /// assert_eq!(transport.take_absent_link(), Some((link, bound.with_port(7472))), "no endpoint is there");
    /// # Ok::<(), homespun_engine::errno::Errno>(())
    /// ```
    ///
    /// # Errors
    ///
    /// EADDRINUSE if another endpoint has the name; ENAMETOOLONG if the neighbourhood is too long (32 bytes
    /// always fit); the system's error, such as EMFILE.
    pub fn open_beside_tcp(
        &self,
        bound: Address,
        address: Address,
        neighbourhood: &str,
        instance: u64,
    ) -> Result<ShmTransport, Errno> {
        self.apply_tracer_setting();
        let hello = Hello { address, instance };
        ShmTransport::open_beside_tcp(bound, neighbourhood.into(), hello, self.backlog_connections)
            .map_err(|error| control::to_errno(&error))
    }

    fn apply_tracer_setting(&self) {
        if self.allows_any_tracer
            && let Err(error) = sys::allow_any_tracer()
        {
            tracing::debug!(%error, "cannot allow any tracer: the Yama security module is absent");
        }
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

    fn host_findings(&self) -> Vec<String> {
        vec![
            cross_memory::describe_cross_memory_support(self.allows_any_tracer),
            ways::describe_choice(can_write_back()),
        ]
    }

    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        shareable::allocate(len_bytes).map(Some).map_err(|error| control::to_errno(&error))
    }

    fn open(&self, bind: Address, instance: u64) -> Result<ShmTransport, Errno> {
        self.apply_tracer_setting();
        ShmTransport::open(bind, instance, self.backlog_connections)
            .map_err(|error| control::to_errno(&error))
    }
}
