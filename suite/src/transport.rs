//! The transports under test, and the drivers of their endpoints.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use homespun::Fabric;
use homespun_engine::loopback::Faults;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use super::neighbours::Neighbours;
use super::provider::Provider;

/// A transport under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportKind {
    /// The loopback network inside the process.
    Loopback {
        /// The seed of the network's faults.
        seed: u64,
        /// The kinds of the network's faults.
        faults: Faults,
    },
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
    /// A transport of the tests' own, inside the process.
    Backend(Backend),
    /// A provider of libfabric, behind the C interface.
    Provider(Provider),
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
    /// The transports between processes.
    const BETWEEN_PROCESSES: [TransportKind; 8] = [
        TransportKind::Tcp4,
        TransportKind::Tcp6,
        TransportKind::Shm4,
        TransportKind::Shm6,
        TransportKind::Auto4,
        TransportKind::Auto6,
        TransportKind::Mixed4 { first: 0 },
        TransportKind::Mixed4 { first: 1 },
    ];

    /// The domain `auto` with near and far peers.
    pub const MIXED4: TransportKind = TransportKind::Mixed4 { first: 0 };

    /// Whether the first two endpoints over this transport map memory of each other.
    pub(super) fn maps_peer_memory(&self) -> bool {
        match self {
            TransportKind::Loopback { .. } | TransportKind::Shm4 | TransportKind::Shm6 => true,
            TransportKind::Auto4 | TransportKind::Auto6 => true,
            TransportKind::Tcp4 | TransportKind::Tcp6 => false,
            TransportKind::Mixed4 { .. } | TransportKind::Backend(_) | TransportKind::Provider(_) => false,
        }
    }

    /// Whether the transport is one of homespun, perhaps behind the C interface.
    pub fn is_homespun(&self) -> bool {
        !matches!(self, TransportKind::Provider(provider) if !provider.is_homespun())
    }

    /// Whether the transport reaches endpoints of other processes. Then an application can sleep until an
    /// endpoint has an event.
    pub(super) fn reaches_other_processes(&self) -> bool {
        TransportKind::BETWEEN_PROCESSES.contains(self) || matches!(self, TransportKind::Provider(_))
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

/// The form in which a transport travels to another process.
#[derive(Serialize, Deserialize)]
enum TransportForm {
    /// The index in the list of transports between processes.
    Own(usize),
    Provider(Provider),
}

impl Serialize for TransportKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let TransportKind::Provider(provider) = self {
            return TransportForm::Provider(provider.clone()).serialize(to);
        }
        let index = TransportKind::BETWEEN_PROCESSES.iter().position(|listed| listed == self);
        let index = index.ok_or_else(|| ser::Error::custom("the transport reaches no other process"))?;
        TransportForm::Own(index).serialize(to)
    }
}

impl<'de> Deserialize<'de> for TransportKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TransportKind, D::Error> {
        let index = match TransportForm::deserialize(from)? {
            TransportForm::Own(index) => index,
            TransportForm::Provider(provider) => return Ok(TransportKind::Provider(provider)),
        };
        TransportKind::BETWEEN_PROCESSES
            .get(index)
            .cloned()
            .ok_or_else(|| de::Error::custom("no transport has this index"))
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
