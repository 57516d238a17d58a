//! How domains and passive endpoints use a provider: they open pumps over its transports.

use std::sync::Arc;

use homespun_engine::address::Address;
use homespun_engine::buffer::SendBuffer;
use homespun_engine::engine::Config;
use homespun_engine::errno::Errno;
use homespun_engine::error::Error;
use homespun_engine::region::Regions;
use homespun_engine::transport::{Provider, ProviderAttr, SharedMemory};

use crate::clock::Clock;
use crate::endpoint_pump::EndpointPump;
use crate::lock::Locking;
use crate::params::PortRange;
use crate::pump::Pump;
use crate::random;
#[cfg(feature = "simulator")]
use crate::simulation::SimulatedEndpoint;

/// A provider of any transport.
pub(crate) trait OpenPump: Send + Sync {
    fn attr(&self) -> ProviderAttr;
    fn host_findings(&self) -> Vec<String>;
    /// Opens a pump. If the port of `bind` is 0, the port comes from the range `ports`. Without a range, the
    /// system chooses the port.
    fn open_pump(
        &self,
        bind: Address,
        ports: Option<PortRange>,
        config: Config,
        regions: Arc<Regions>,
        locking: Locking,
        clock: &Clock,
    ) -> Result<Arc<dyn EndpointPump>, Error>;
    /// See [`Provider::allocate_shareable`].
    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno>;
    /// See [`SendBuffer::allocate`].
    fn allocate_send_buffer(&self, len_bytes: usize) -> Result<SendBuffer, Errno>;
}

impl<P: Provider> OpenPump for P {
    fn attr(&self) -> ProviderAttr {
        Provider::attr(self)
    }

    fn host_findings(&self) -> Vec<String> {
        Provider::host_findings(self)
    }

    fn open_pump(
        &self,
        bind: Address,
        ports: Option<PortRange>,
        config: Config,
        regions: Arc<Regions>,
        locking: Locking,
        clock: &Clock,
    ) -> Result<Arc<dyn EndpointPump>, Error> {
        let instance = random::draw_u64(clock)?;
        let transport = match ports.filter(|_| bind.port() == 0) {
            Some(ports) => {
                ports.open_at_free_port(instance, |port| self.open(bind.with_port(port), instance))
            }
            None => self.open(bind, instance),
        };
        let transport = transport.map_err(|errno| {
            let ports = ports.filter(|_| bind.port() == 0 && errno == Errno::EADDRINUSE);
            let exhausted = ports.map(PortRange::exhausted);
            Error::Bind { address: Box::new(bind), errno, exhausted }
        })?;
        let pump = Arc::new(Pump::new(transport, config, regions, locking, clock.clone()));
        #[cfg(feature = "simulator")]
        if let Clock::Simulation(simulation) = clock {
            let endpoint: Arc<dyn SimulatedEndpoint> = pump.clone();
            simulation.add_endpoint(pump.address(), Arc::downgrade(&endpoint));
        }
        Ok(pump)
    }

    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        Provider::allocate_shareable(self, len_bytes)
    }

    fn allocate_send_buffer(&self, len_bytes: usize) -> Result<SendBuffer, Errno> {
        SendBuffer::allocate(self, len_bytes)
    }
}
