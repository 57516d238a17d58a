//! Fabrics: `fi_fabric(3)`.

use std::fmt;
use std::sync::Arc;

use homespun_auto::AutoProvider;
use homespun_engine::address::AddressFormat;
use homespun_engine::error::{DomainNameSource, Error, Missing, Misuse};
use homespun_engine::flags::InfoFlags;
#[cfg(feature = "simulator")]
use homespun_engine::loopback::{Faults, Network};
use homespun_engine::transport::{Provider, ProviderAttr};
use homespun_shm::ShmProvider;
use homespun_tcp::{LocalAddress, TcpProvider};
use tracing::info;

use crate::clock::{Clock, SimulatedClock};
use crate::domain::Domain;
use crate::eq::{EqAttr, EventQueue};
use crate::getinfo::{getinfo_from_providers, hints_with_param_defaults, no_domain};
use crate::info::Info;
use crate::interfaces;
use crate::lock::{Locking, init_single_threaded_flag};
use crate::open_pump::OpenPump;
use crate::params::Params;
use crate::passive_endpoint::PassiveEndpoint;
#[cfg(feature = "simulator")]
use crate::simulation::Simulation;
use crate::wait::{WaitObject, WaitSet};

/// A network of endpoints that can reach each other: the root of the object model, `fi_fabric(3)`.
///
/// ```
/// use homespun::{Fabric, Hints};
///
/// let fabric = Fabric::new();
/// let info = fabric.info(&Hints::new())?;
/// let domain = fabric.domain(&info)?;
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct Fabric {
    providers: Vec<Arc<dyn OpenPump>>,
    params: Params,
    clock: Clock,
}

impl Fabric {
    /// Returns a fabric with homespun's own providers. The [`params`](crate::params) come from the
    /// environment.
    pub fn new() -> Fabric {
        Fabric::with_params(Params::from_env())
    }

    /// Returns a fabric with homespun's own providers and these parameters. Ignores the environment.
    pub fn with_params(params: Params) -> Fabric {
        init_single_threaded_flag();
        let mut tcp = TcpProvider::new()
            .with_accepted_max_links(params.tcp_accepted_links)
            .with_connect_timeout(params.reach_timeout);
        if let Some(selector) = &params.iface {
            tcp = tcp.with_interfaces(selector.clone());
        }
        let mut shm = ShmProvider::new();
        if params.shm_any_tracer {
            shm = shm.with_any_tracer();
        }
        Fabric { providers: Vec::new(), params, clock: Clock::System }
            .with_provider(AutoProvider::new(shm.clone(), tcp.clone()))
            .with_provider(tcp)
            .with_provider(shm)
    }

    /// Returns a fabric whose network and time are simulated, and the [`Simulation`] that controls them. All
    /// random choices come from `seed`. Ignores the environment. The only domain is `loopback`.
    ///
    /// The [guide](crate::simulation) shows how to test a protocol with it.
    #[cfg(feature = "simulator")]
    pub fn simulated(seed: u64) -> (Fabric, Simulation) {
        init_single_threaded_flag();
        let network = Network::new(seed, Faults::default()).between_hosts();
        let simulation = Simulation::new(network.clone());
        let clock = Clock::Simulation(simulation.clone());
        let fabric = Fabric { providers: Vec::new(), params: Params::default(), clock };
        (fabric.with_provider(network), simulation)
    }

    /// Adds a provider from outside this crate. Hints can name the provider's domain.
    /// [`getinfo`](Self::getinfo) lists this domain after the domains that are already there.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Provider) -> Fabric {
        self.providers.push(Arc::new(provider));
        self
    }

    /// Makes endpoints read this clock instead of the system's clock. Affects only passive endpoints and
    /// domains that are opened after this call.
    #[must_use]
    pub fn with_clock(mut self, clock: &SimulatedClock) -> Fabric {
        self.clock = Clock::Simulated(clock.clone());
        self
    }

    /// Returns the offers that meet the hints, as [`getinfo`](crate::getinfo()) does, but with the
    /// providers and the parameters of this fabric.
    ///
    /// # Errors
    ///
    /// As [`getinfo`](crate::getinfo()).
    pub fn getinfo(
        &self,
        node: Option<&str>,
        service: Option<&str>,
        flags: InfoFlags,
        hints: Option<&Info>,
    ) -> Result<Vec<Info>, Error> {
        let attrs: Vec<ProviderAttr> = self.providers.iter().map(|provider| provider.attr()).collect();
        let hints = hints_with_param_defaults(hints.unwrap_or(&Info::default()), &self.params);
        let only = self.params.domain.as_deref();
        getinfo_from_providers(&attrs, only, node, service, flags, Some(&hints))
            .and_then(|infos| match &self.params.iface {
                Some(selector) if !flags.contains(InfoFlags::PROV_ATTR_ONLY) => {
                    let is_remote =
                        |domain: &str| attrs.iter().any(|attr| attr.remote && attr.domain == domain);
                    interfaces::retain_reachable_infos(infos, selector, is_remote)
                }
                _ => Ok(infos),
            })
            .inspect_err(|error| info!(%error, "getinfo finds nothing"))
    }

    /// Returns the names of the domains that [`getinfo`](Self::getinfo) offers, the best first. If the
    /// parameter [`DOMAIN`](crate::params::DOMAIN) names a domain, returns only that domain.
    pub fn domain_names(&self) -> Vec<String> {
        let only = self.params.domain.as_deref();
        let names = self.providers.iter().map(|provider| provider.attr().domain);
        names.filter(|name| only.is_none_or(|only| only.eq_ignore_ascii_case(name))).collect()
    }

    /// Returns the addresses of this host at which peers can reach an endpoint, the best first. If the
    /// parameter [`IFACE`](crate::params::IFACE) is set, returns only addresses that it selects, in the
    /// order of its entries.
    ///
    /// An endpoint that is bound to all interfaces tells peers the first of these addresses. If `IFACE` is
    /// not set, and the host has no address or only link-local addresses, such an endpoint tells peers the
    /// loopback address.
    ///
    /// # Errors
    ///
    /// The system's error if the interfaces cannot be listed.
    ///
    /// ```
    /// use homespun::{AddressFormat, Fabric};
    ///
    /// for address in Fabric::new().local_addresses(AddressFormat::SockaddrIn)? {
    ///     println!("{} in {}: {}", address.interface, address.network, address.ip);
    /// }
    /// # Ok::<(), homespun::Error>(())
    /// ```
    pub fn local_addresses(&self, format: AddressFormat) -> Result<Vec<LocalAddress>, Error> {
        interfaces::local_addresses(format, self.params.iface.as_ref())
    }

    /// Returns the facts about this host that the domain's provider has found out, one sentence for each.
    /// For example, `"shm"` says whether large messages can be copied straight from process to process.
    /// Returns nothing if the domain does not exist.
    ///
    /// ```
    /// for finding in homespun::Fabric::new().host_findings("shm") {
    ///     println!("shm: {finding}");
    /// }
    /// ```
    pub fn host_findings(&self, domain: &str) -> Vec<String> {
        let provider =
            self.providers.iter().find(|provider| provider.attr().domain.eq_ignore_ascii_case(domain));
        provider.map(|provider| provider.host_findings()).unwrap_or_default()
    }

    /// Opens the domain that an info names: `fi_domain(3)`. With automatic data progress
    /// ([`Progress`](crate::info::Progress)), the domain has a thread once its first endpoint is enabled.
    ///
    /// Any thread may use any object of the domain at any time, whatever threading level the info has. See
    /// [`domain_unsynchronised`](Self::domain_unsynchronised) for a domain without locks.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if the info names no domain. [`Misuse::NoDomain`] if this fabric does not have
    /// the domain. [`Misuse::Invalid`] if the info asks for
    /// [keys](crate::info::DomainAttr::mr_key_size_bytes) that are too short.
    pub fn domain(&self, info: &Info) -> Result<Domain, Error> {
        self.open_domain(info, Locking::Taken)
    }

    pub(crate) fn open_domain(&self, info: &Info, locking: Locking) -> Result<Domain, Error> {
        Domain::open(self.provider_for(info)?.clone(), info, locking, &self.params, &self.clock)
    }

    /// Returns the provider of the domain that an info names.
    fn provider_for(&self, info: &Info) -> Result<&Arc<dyn OpenPump>, Error> {
        let name = info.domain.name.as_deref().ok_or(Misuse::NotFound(Missing::DomainName))?;
        let provider =
            self.providers.iter().find(|provider| provider.attr().domain.eq_ignore_ascii_case(name));
        provider.ok_or_else(|| {
            let available: Vec<String> = self.providers.iter().map(|known| known.attr().domain).collect();
            no_domain(name, DomainNameSource::Info, available.iter().map(String::as_str))
        })
    }

    /// Opens a passive endpoint, which receives requests for connections: `fi_passive_ep` of
    /// `fi_endpoint(3)`.
    ///
    /// # Errors
    ///
    /// - [`Misuse::NotFound`] if the info names no domain.
    /// - [`Misuse::NoDomain`] if this fabric does not have the domain.
    /// - [`Misuse::Invalid`] if [`getinfo`](crate::getinfo()) would not return the info for the domain, or
    ///   if the info has another endpoint type than [`EndpointType::Msg`](crate::info::EndpointType::Msg).
    pub fn passive_endpoint(&self, info: &Info) -> Result<PassiveEndpoint, Error> {
        PassiveEndpoint::open(self.provider_for(info)?.clone(), info, &self.params, &self.clock)
    }

    /// Opens an event queue: `fi_eq_open(3)`.
    ///
    /// # Errors
    ///
    /// - [`Misuse::NotSupported`] for the wait object `PollFd`, and in a simulation for `Fd` and `MutexCond`.
    /// - [`Misuse::Invalid`] for the wait object `Set` without a wait set.
    /// - [`Misuse::Flags`] for unknown flags.
    /// - The system's error if a wait object gets no descriptor: EMFILE, ENFILE, ENOMEM.
    pub fn open_eq(&self, attr: &EqAttr) -> Result<EventQueue, Error> {
        EventQueue::open(attr, &self.clock)
    }

    /// Opens a wait set: `fi_wait_open` of `fi_poll(3)`. A thread can wait for all queues and counters in
    /// the set at once, even of several domains.
    ///
    /// # Errors
    ///
    /// - [`Misuse::Invalid`] for the wait objects `None` and `Set`.
    /// - [`Misuse::NotSupported`] for the wait object `PollFd`, and in a simulation for `Fd` and `MutexCond`.
    /// - The system's error: EMFILE, ENFILE, ENOMEM.
    pub fn open_wait_set(&self, wait: WaitObject) -> Result<WaitSet, Error> {
        WaitSet::open(wait, &self.clock)
    }
}

impl Default for Fabric {
    fn default() -> Self {
        Fabric::new()
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domains = self.providers.iter().map(|provider| provider.attr().domain);
        f.debug_struct("Fabric").field("domains", &domains.collect::<Vec<_>>()).finish()
    }
}

/// Returns the ways to communicate on this host, best first: `fi_getinfo(3)`.
///
/// `node` and `service` name a peer. With [`InfoFlags::SOURCE`] they name the source instead, that is, the
/// local address of an endpoint. A service without a node is a port of this host: as a source on every
/// interface, as a peer on the loopback interface. An empty service counts as no service, but for a source
/// without a node it means any port. As a peer, the wildcard address means this host. Unknown flags are
/// ignored.
///
/// The hints may have the address that the arguments do not name: the source or the destination. If neither
/// hints nor arguments have a source, the source is the address of the interface that leads to the peer. If
/// they have no address at all, the sources are wildcards: peers reach such an endpoint on every interface.
///
/// If the hints have no endpoint type, the infos for unconnected endpoints come before those for connected
/// ones.
///
/// Fields that the hints leave unspecified are filled in. If there is a [parameter](crate::params) for such
/// a field, the parameter of the environment gives the value. [`FabricAttr::api_version`] is returned as the
/// hints have it. Other fields that the hints specify are met or exceeded, with two exceptions:
///
/// - Traffic class and prefix size need not be granted, since an application loses nothing without them.
/// - Some fields only describe homespun, and the application reads them from the result: how many objects a
///   [domain](crate::info::DomainAttr) has room for, and [`FabricAttr::prov_version`].
///
/// [`Caps::MULTI_RECV`] implies [`Caps::MSG`], and [`Caps::RMA_PMEM`] implies [`Caps::RMA`].
/// [`Caps::RMA_EVENT`] implies both [`Caps::RMA`] and [`Caps::ATOMIC`] if the hints have neither of them.
///
/// The domain `auto`, which reaches each peer in the fastest way, comes first. If the hints name no domain
/// and the environment does ([`DOMAIN`](crate::params::DOMAIN)), only that domain is offered, even for
/// hints with [`Caps::REMOTE_COMM`]. If the domain does not reach other hosts, the result lacks that
/// capability. Case does not matter in names of domains.
///
/// With [`InfoFlags::PROV_ATTR_ONLY`] the result is one `Info` in which only [`Info::fabric`] is filled in.
///
/// The call may block while the system's resolver looks up names. [`InfoFlags::NUMERIC_HOST`] prevents
/// that.
///
/// [`Caps::ATOMIC`]: crate::Caps::ATOMIC
/// [`Caps::MSG`]: crate::Caps::MSG
/// [`Caps::MULTI_RECV`]: crate::Caps::MULTI_RECV
/// [`Caps::REMOTE_COMM`]: crate::Caps::REMOTE_COMM
/// [`Caps::RMA`]: crate::Caps::RMA
/// [`Caps::RMA_EVENT`]: crate::Caps::RMA_EVENT
/// [`Caps::RMA_PMEM`]: crate::Caps::RMA_PMEM
/// [`FabricAttr::api_version`]: crate::info::FabricAttr::api_version
/// [`FabricAttr::prov_version`]: crate::info::FabricAttr::prov_version
///
/// # Errors
///
/// - [`Misuse::Unmet`] if the request cannot be met. The error has the reason. A result is never empty.
/// - [`Misuse::NoDomain`] if the hints or [`DOMAIN`](crate::params::DOMAIN) name a domain that there is not.
/// - [`Misuse::Unresolved`] if the node or the service has no address. The error has its name.
/// - [`Misuse::NoInterface`] if [`IFACE`](crate::params::IFACE) matches no interface of this host.
/// - [`Misuse::Invalid`] for [`InfoFlags::SOURCE`] without node and service.
/// - [`Error::System`] if the system lacks descriptors or memory to find the addresses.
///
/// ```
/// use homespun::getinfo;
/// use homespun::flags::InfoFlags;
///
/// let found = getinfo(Some("127.0.0.1"), Some("7471"), InfoFlags::NUMERIC_HOST, None)?;
/// let peer = found[0].dest_addr.expect("a peer was named");
/// assert_eq!(peer.to_string(), "127.0.0.1:7471");
/// # Ok::<(), homespun::Error>(())
/// ```
pub fn getinfo(
    node: Option<&str>,
    service: Option<&str>,
    flags: InfoFlags,
    hints: Option<&Info>,
) -> Result<Vec<Info>, Error> {
    Fabric::new().getinfo(node, service, flags, hints)
}
