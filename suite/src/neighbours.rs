//! Two neighbourhoods on one host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homespun_auto::{AutoProvider, AutoTransport};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Provider, ProviderAttr, SharedMemory};
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;

/// A provider that opens its endpoints in two neighbourhoods by turns. So the first and the second endpoint
/// are far from each other, and the first and the third are near each other.
#[derive(Debug)]
pub struct Neighbours {
    sides: [AutoProvider; 2],
    opened: AtomicUsize,
}

impl Neighbours {
    /// The name of the provider's domain.
    pub const DOMAIN: &str = "mixed";

    /// A provider whose first endpoint is in this neighbourhood, 0 or 1.
    pub fn new(first: usize) -> Neighbours {
        let auto = AutoProvider::new(ShmProvider::new(), TcpProvider::new());
        let sides = ["left", "right"].map(|name| auto.clone().with_neighbourhood(name));
        Neighbours { sides, opened: AtomicUsize::new(first) }
    }
}

impl Provider for Neighbours {
    type Transport = AutoTransport;

    fn attr(&self) -> ProviderAttr {
        ProviderAttr { domain: Neighbours::DOMAIN.into(), ..self.sides[0].attr() }
    }

    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        self.sides[0].allocate_shareable(len_bytes)
    }

    fn open(&self, bind: Address, instance: u64) -> Result<AutoTransport, Errno> {
        let turn = self.opened.fetch_add(1, Ordering::Relaxed);
        self.sides[turn % self.sides.len()].open(bind, instance)
    }
}
