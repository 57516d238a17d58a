//! Two neighbourhoods on one host.

use std::sync::atomic::{AtomicUsize, Ordering};

use homespun_auto::{AutoProvider, AutoTransport};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Provider, ProviderAttr};
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;

/// A provider whose endpoints are in either neighbourhood in turn. So the first and the second are far from
/// each other, and the first and the third are near.
#[derive(Debug)]
pub(crate) struct Neighbours {
    sides: [AutoProvider; 2],
    opened: AtomicUsize,
}

impl Neighbours {
    pub(crate) fn new() -> Neighbours {
        let auto = AutoProvider::new(ShmProvider::new(), TcpProvider::new());
        let sides = ["left", "right"].map(|name| auto.clone().with_neighbourhood(name));
        Neighbours { sides, opened: AtomicUsize::new(0) }
    }
}

impl Provider for Neighbours {
    type Transport = AutoTransport;

    fn attr(&self) -> ProviderAttr {
        self.sides[0].attr()
    }

    fn open(&self, bind: Address, instance: u64) -> Result<AutoTransport, Errno> {
        let turn = self.opened.fetch_add(1, Ordering::Relaxed);
        self.sides[turn % self.sides.len()].open(bind, instance)
    }
}
