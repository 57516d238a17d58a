//! The transports under test, and the drivers of their endpoints.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use homespun::Fabric;
use homespun_engine::loopback::Faults;
use serde::{Deserialize, Serialize};

use super::neighbours::Neighbours;
use super::provider::Provider;

/// A transport under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransportKind {
    /// TCP over IPv4, at a loopback address that no other network of a test uses.
    Tcp4,
    /// TCP over IPv6, at \[::1\].
    Tcp6,
    /// Shared memory, with IPv4 addresses as for `Tcp4`.
    Shm4,
    /// Shared memory, with addresses of \[::1\].
    Shm6,
    /// The domain `auto`, with IPv4 addresses as for `Tcp4`. All peers are near.
    Auto4,
    /// The domain `auto`, with addresses of \[::1\]. All peers are near.
    Auto6,
    /// As `Auto4`, but every second endpoint is in another neighbourhood ([`Neighbours`]). The first
    /// endpoint is far from the second, and near the third.
    Mixed4 {
        /// The neighbourhood of the first endpoint, 0 or 1.
        first: usize,
    },
    /// A provider of libfabric, behind the C interface.
    Provider(Provider),
    // Skipped variants come last: deserialised numbers leave them out.
    /// The loopback network inside the process.
    #[serde(skip)]
    Loopback {
        /// The seed of the network's faults.
        seed: u64,
        /// The kinds of the network's faults.
        faults: Faults,
    },
    /// A transport of the tests' own, inside the process.
    #[serde(skip)]
    Backend(Backend),
}

/// A transport of the tests' own. It connects the endpoints of one fabric.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    /// The name of the transport's domain.
    pub domain: &'static str,
    /// Adds the provider of the transport to a fabric, by [`Fabric::with_provider`].
    pub install: fn(Fabric) -> Fabric,
}

impl PartialEq for Backend {
    fn eq(&self, other: &Backend) -> bool {
        self.domain == other.domain
    }
}

impl Eq for Backend {}

impl TransportKind {
    /// The domain `auto` with near and far peers.
    pub const MIXED4: TransportKind = TransportKind::Mixed4 { first: 0 };

    /// Whether the first two endpoints over this transport map memory of each other.
    pub(super) fn maps_peer_memory(&self) -> bool {
        use TransportKind::{Auto4, Auto6, Loopback, Shm4, Shm6};
        matches!(self, Loopback { .. } | Shm4 | Shm6 | Auto4 | Auto6)
    }

    /// Whether the transport is one of homespun, perhaps behind the C interface.
    pub fn is_homespun(&self) -> bool {
        !matches!(self, TransportKind::Provider(provider) if !provider.is_homespun())
    }

    /// Whether the transport reaches endpoints of other processes. Then an application can sleep until an
    /// endpoint has an event.
    pub(super) fn reaches_other_processes(&self) -> bool {
        !matches!(self, TransportKind::Loopback { .. } | TransportKind::Backend(_))
    }

    /// Returns the transport for another process. In the whole network, the first endpoint of that process
    /// has this number, counted from 0.
    #[must_use]
    pub fn for_process(&self, number: usize) -> TransportKind {
        match self {
            TransportKind::Mixed4 { first } => TransportKind::Mixed4 { first: (first + number) % 2 },
            other => other.clone(),
        }
    }

    /// Returns the transport. If it is a loopback network, it has this seed.
    pub(super) fn with_seed(&self, seed: u64) -> TransportKind {
        match self {
            TransportKind::Loopback { faults, .. } => {
                TransportKind::Loopback { seed, faults: faults.clone() }
            }
            other => other.clone(),
        }
    }

    /// Returns the name of the transport's domain, and the IP address of its endpoints.
    pub(super) fn domain_and_address(&self) -> (&'static str, IpAddr) {
        match self {
            TransportKind::Loopback { .. } => ("loopback", Ipv4Addr::LOCALHOST.into()),
            TransportKind::Tcp4 => ("tcp", unique_loopback_address().into()),
            TransportKind::Tcp6 => ("tcp", Ipv6Addr::LOCALHOST.into()),
            TransportKind::Shm4 => ("shm", unique_loopback_address().into()),
            TransportKind::Shm6 => ("shm", Ipv6Addr::LOCALHOST.into()),
            TransportKind::Auto4 => ("auto", unique_loopback_address().into()),
            TransportKind::Auto6 => ("auto", Ipv6Addr::LOCALHOST.into()),
            TransportKind::Mixed4 { .. } => (Neighbours::DOMAIN, unique_loopback_address().into()),
            TransportKind::Backend(backend) => (backend.domain, Ipv4Addr::LOCALHOST.into()),
            TransportKind::Provider(_) => ("tcp", Ipv4Addr::LOCALHOST.into()),
        }
    }
}

/// Returns a loopback address that no other network uses.
///
/// Tests run at the same time, and close endpoints to which peers still send. With a common address, an
/// endpoint of another test could get the port of a closed endpoint.
fn unique_loopback_address() -> Ipv4Addr {
    static NETWORKS: AtomicU32 = AtomicU32::new(0);
    let number = process::id().wrapping_mul(1 << 10) + NETWORKS.fetch_add(1, Ordering::Relaxed);
    let [_, b, c, d] = number.to_be_bytes();
    // Avoid 127.0.0.1, addresses of interfaces, and addresses that end in 0 or 255.
    Ipv4Addr::new(127, 1 + b % 250, c, 1 + d % 254)
}

/// The driver of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turns {
    /// The test's thread. It drives all endpoints in turn while it waits.
    Alternate,
    /// The test's thread, and a thread for each queue. The thread of a queue drives the queue's endpoints
    /// without a pause.
    Threads,
    /// The processes of the endpoints. Each endpoint has a process of its own.
    Processes,
    /// The library, by automatic progress. A test drives only the queue that it reads.
    Automatic,
}
