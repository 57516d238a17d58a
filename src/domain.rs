//! Domains: `fi_domain(3)`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::buffer::{SegmentMut, SendBuffer};
use homespun_engine::engine::Config;
use homespun_engine::error::{Argument, Error, Misuse, SystemRequest, Unmet};
use homespun_engine::region::Regions;
use homespun_engine::transport::{ProviderAttr, SharedMemory};
use parking_lot::Mutex;

use crate::av::{AddressVector, AvAttr};
use crate::clock::Clock;
use crate::connection::ConnectionRequest;
use crate::counter::{Counter, CounterAttr, DomainCounters};
use crate::cq::{CompletionQueue, CqAttr};
use crate::domain_id::DomainId;
use crate::endpoint::{Endpoint, EndpointOrigin};
use crate::endpoint_pump::EndpointPump;
use crate::getinfo::{
    grant_info, grant_key_size_bytes, grant_rx_attr, grant_tx_attr, hints_with_param_defaults,
};
use crate::info::{EndpointType, Info, MrMode, Progress, ResourceManagement, RxAttr, Threading, TxAttr};
use crate::lock::Locking;
use crate::mutated;
use crate::open_pump::OpenPump;
use crate::params::Params;
use crate::passive_endpoint::PassiveEndpoint;
use crate::poll_set::PollSet;
use crate::poster::Poster;
use crate::progress_thread::ProgressThread;
use crate::region_keys::RegionKeys;
use crate::shared_receive_context::{ReceiveContext, SharedReceiveContext};
use crate::shared_transmit_context::SharedTransmitContext;
use crate::works::domain::WorkDomain;
use crate::works::queue::WorkQueue;

/// One transport (`"auto"`, `"shm"` or `"tcp"`), and the objects that are opened for it: endpoints,
/// completion queues, address vectors and others. See `fi_domain(3)`.
///
/// Any thread may clone and use a handle. A domain exists as long as any object that was opened from it. A
/// completion queue or an address vector can be bound only to endpoints of its own domain.
///
/// ```
/// use homespun::{AvAttr, CqAttr, Fabric, Hints};
///
/// let fabric = Fabric::new();
/// let info = fabric.info(&Hints::new().domain("tcp"))?;
/// let domain = fabric.domain(&info)?;
/// assert_eq!(domain.name(), "tcp");
/// let cq = domain.open_cq(&CqAttr { size_entries: 64, ..CqAttr::default() })?;
/// let av = domain.open_av(&AvAttr::default())?;
/// let endpoint = domain.endpoint(&info)?;
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct Domain {
    pub(crate) shared: Arc<DomainShared>,
}

/// The support for an atomic operation: `struct fi_atomic_attr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicAttr {
    /// The largest number of elements in one call.
    pub count: usize,
    /// The size of an element in bytes.
    pub size_bytes: usize,
}

pub(crate) struct DomainShared {
    id: DomainId,
    provider: Arc<dyn OpenPump>,
    attr: ProviderAttr,
    format: AddressFormat,
    resource_mgmt: ResourceManagement,
    threading: Threading,
    locking: Locking,
    control_progress: Progress,
    data_progress: Progress,
    /// The progress thread. The thread starts when the first endpoint with automatic progress is enabled,
    /// and ends with the domain.
    progress_thread: ProgressThread,
    mr_mode: MrMode,
    region_keys: RegionKeys,
    params: Params,
    clock: Clock,
    /// The regions that peers may access through any endpoint of the domain.
    regions: Arc<Regions>,
    domain_counters: Arc<DomainCounters>,
    /// The works that wait for counters.
    works: Arc<WorkQueue>,
    /// Whether a work has ever waited for a counter. The flag changes only while `pumps` is locked.
    has_had_works: AtomicBool,
    /// The pumps of the domain's endpoints. Some of the endpoints may be gone.
    pumps: Mutex<Vec<Weak<dyn EndpointPump>>>,
    /// The shared receive contexts. Some of them may be gone.
    receive_contexts: Mutex<Vec<Weak<ReceiveContext>>>,
}

impl Domain {
    pub(crate) fn open(
        provider: Arc<dyn OpenPump>,
        info: &Info,
        locking: Locking,
        params: &Params,
        clock: &Clock,
    ) -> Result<Domain, Error> {
        let attr = provider.attr();
        let key_size_bytes = grant_key_size_bytes(info.domain.mr_key_size_bytes);
        let format = info.addr_format.unwrap_or_else(|| attr.preferred_format());
        let domain_counters = Arc::new(DomainCounters::default());
        Ok(Domain {
            shared: Arc::new(DomainShared {
                id: DomainId::allocate(),
                provider,
                attr,
                format,
                resource_mgmt: info.domain.resource_mgmt.unwrap_or(ResourceManagement::Enabled),
                threading: info.domain.threading.unwrap_or(Threading::Safe),
                locking,
                control_progress: info.domain.control_progress.unwrap_or(Progress::Manual),
                data_progress: match info.domain.data_progress {
                    Some(Progress::Auto) => Progress::Auto,
                    _ => Progress::Manual,
                },
                progress_thread: ProgressThread::default(),
                mr_mode: info.domain.mr_mode,
                region_keys: RegionKeys::new(key_size_bytes, clock.clone()),
                params: params.clone(),
                clock: clock.clone(),
                regions: Arc::default(),
                works: Arc::new(WorkQueue::new(domain_counters.clone())),
                domain_counters,
                has_had_works: AtomicBool::new(false),
                pumps: Mutex::default(),
                receive_contexts: Mutex::default(),
            }),
        })
    }

    /// The domain's name.
    pub fn name(&self) -> &str {
        &self.shared.attr.domain
    }

    /// The format of all addresses in the domain.
    pub fn addr_format(&self) -> AddressFormat {
        self.shared.format
    }

    /// The size of the keys of memory regions in bytes: 8, unless the info of the domain asks for shorter
    /// keys ([`mr_key_size_bytes`](crate::info::DomainAttr::mr_key_size_bytes)).
    pub fn key_size_bytes(&self) -> usize {
        self.shared.region_keys.size_bytes()
    }

    /// Whether the domain's completion queues are protected from overruns.
    pub fn resource_mgmt(&self) -> ResourceManagement {
        self.shared.resource_mgmt
    }

    /// Opens a completion queue: `fi_cq_open(3)`. If the size in the attributes is 0,
    /// [`CQ_SIZE`](crate::params::CQ_SIZE) gives the size. The info of the domain decides whether the queue
    /// can be overrun: see [`resource_mgmt`](crate::info::DomainAttr::resource_mgmt).
    ///
    /// # Errors
    ///
    /// - [`Misuse::NotSupported`] for the wait object `PollFd`, and in a simulation for `Fd` and `MutexCond`.
    /// - [`Misuse::Invalid`] for the wait object `Set` without a wait set, or for a size above
    ///   [`CQ_DEPTH_MAX_ENTRIES`](crate::cq::CQ_DEPTH_MAX_ENTRIES).
    /// - The system's error if a wait object gets no descriptor: EMFILE, ENFILE, ENOMEM.
    pub fn open_cq(&self, attr: &CqAttr) -> Result<CompletionQueue, Error> {
        let size_entries = match attr.size_entries {
            0 if mutated!("fi_cq/size-zero-is-default") => {
                return Err(Misuse::Invalid(Argument::QueueDepth { max_entries: 0 }).into());
            }
            0 => self.shared.params.cq_size_entries,
            asked => asked,
        };
        let attr = CqAttr { size_entries, ..attr.clone() };
        let DomainShared { id, resource_mgmt, locking, clock, .. } = &*self.shared;
        CompletionQueue::open(&attr, *id, *resource_mgmt, *locking, clock)
    }

    /// Opens a counter: `fi_cntr_open`, `fi_cntr(3)`.
    ///
    /// # Errors
    ///
    /// - [`Misuse::NotSupported`] for the wait object `PollFd`, and in a simulation for `Fd` and `MutexCond`.
    /// - [`Misuse::Invalid`] for the wait object `Set` without a wait set.
    /// - The system's error if a wait object gets no descriptor: EMFILE, ENFILE, ENOMEM.
    pub fn open_counter(&self, attr: &CounterAttr) -> Result<Counter, Error> {
        Counter::open(attr, self.shared.id, &self.shared.clock)
    }

    /// Opens a poll set: `fi_poll_open` of `fi_poll(3)`. A poll set drives several completion queues and
    /// counters of the domain together.
    pub fn open_poll_set(&self) -> PollSet {
        PollSet::new(self.shared.id)
    }

    /// Opens an address vector: `fi_av_open(3)`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] for a vector that processes share, or that inserts asynchronously.
    /// [`Misuse::Flags`] for unknown flags.
    pub fn open_av(&self, attr: &AvAttr) -> Result<AddressVector, Error> {
        AddressVector::open(attr, self.shared.format, self.shared.id)
    }

    /// Opens a transmit context that endpoints share: `fi_stx_context`. Empty capabilities, empty orders
    /// and sizes of 0 get the values that [`getinfo`](crate::getinfo()) would fill in.
    ///
    /// # Errors
    ///
    /// [`Misuse::Unmet`] if [`getinfo`](crate::getinfo()) could not offer these attributes.
    pub fn shared_transmit_context(&self, attr: &TxAttr) -> Result<SharedTransmitContext, Error> {
        let asked =
            hints_with_param_defaults(&Info { tx: attr.clone(), ..Info::default() }, &self.shared.params);
        Ok(SharedTransmitContext::new(self.shared.id, grant_tx_attr(&self.shared.attr, &asked.tx)?))
    }

    /// Returns how endpoints support an atomic operation:
    /// `fi_query_atomic`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoAtomic`] if the domain does not support the operation.
    pub fn query_atomic(
        &self,
        datatype: Datatype,
        op: AtomicOp,
        kind: AtomicKind,
    ) -> Result<AtomicAttr, Error> {
        let count = kind.count_max(op, datatype).ok_or(Misuse::NoAtomic { kind, op, datatype })?;
        Ok(AtomicAttr { count, size_bytes: datatype.size_bytes() })
    }

    /// Opens an endpoint: `fi_endpoint(3)`. If the info names no domain, this domain is meant. If the info
    /// has no endpoint type, the endpoint is an [`EndpointType::Rdm`].
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] if [`getinfo`](crate::getinfo()) would not return the info for this domain. For
    /// example, the info names another domain, or has an endpoint type, address format, capability or size
    /// that the domain does not support. Also for [`EndpointType::Msg`] in a domain [without
    /// locks](crate::Fabric::domain_unsynchronised).
    pub fn endpoint(&self, info: &Info) -> Result<Endpoint, Error> {
        Endpoint::open(self.shared.clone(), self.grant_endpoint_info(info)?, EndpointOrigin::Alone)
    }

    /// Opens an endpoint for [accepting](Endpoint::accept) a request: `fi_endpoint(3)` with the request as
    /// its `handle`. Pass the request's [`info`](ConnectionRequest::info), with changes if needed. If the
    /// endpoint is closed before it accepts the request, another endpoint may be opened for the request.
    ///
    /// # Errors
    ///
    /// - The errors of [`endpoint`](Self::endpoint).
    /// - [`Misuse::Invalid`] if the info has another type than [`EndpointType::Msg`], or if the passive
    ///   endpoint of the request has another domain.
    /// - [`Misuse::State`] if the request was rejected or accepted, or if another endpoint is open for it.
    pub fn endpoint_for_request(&self, info: &Info, request: &ConnectionRequest) -> Result<Endpoint, Error> {
        if mutated!("fi_endpoint/connection-needs-info-of-request") {
            return self.endpoint(info);
        }
        let granted = self.grant_msg_endpoint_info(info)?;
        if request.listener_info().info.domain.name.as_deref() != Some(self.name()) {
            return Err(Misuse::Invalid(Argument::RequestOfOtherDomain).into());
        }
        request.try_reserve_for_endpoint()?;
        Endpoint::open(self.shared.clone(), granted, EndpointOrigin::Request(request.clone()))
    }

    /// Opens an endpoint that takes over the address and the transport of a passive endpoint:
    /// `fi_endpoint(3)` with the passive endpoint as its `handle`. The passive endpoint must not listen,
    /// and cannot be used any more.
    ///
    /// # Errors
    ///
    /// - The errors of [`endpoint`](Self::endpoint) and of [`PassiveEndpoint::name`].
    /// - [`Misuse::Invalid`] if the info has another type than [`EndpointType::Msg`], or if the passive
    ///   endpoint has another domain or address format.
    /// - [`Misuse::State`] if the passive endpoint listens, or if another endpoint has taken it over.
    pub fn endpoint_from_passive(&self, info: &Info, passive: &PassiveEndpoint) -> Result<Endpoint, Error> {
        let granted = self.grant_msg_endpoint_info(info)?;
        let listener = passive.hand_over_listener(self.name(), self.shared.format)?;
        Endpoint::open(self.shared.clone(), granted, EndpointOrigin::TakenOver(listener))
    }

    /// Opens a receive context that endpoints share: `fi_srx_context` of `fi_endpoint(3)`. Unspecified
    /// attributes get the values that an endpoint would get.
    ///
    /// If the attributes name no capabilities, the context has all capabilities of an endpoint's receive
    /// side, except three that must be requested: [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV),
    /// [`Caps::SOURCE_ERR`](crate::Caps::SOURCE_ERR) and [`Caps::TRIGGER`](crate::Caps::TRIGGER).
    ///
    /// # Errors
    ///
    /// [`Misuse::Unmet`] if [`getinfo`](crate::getinfo()) could not offer these attributes.
    pub fn shared_receive_context(&self, attr: &RxAttr) -> Result<SharedReceiveContext, Error> {
        let asked =
            hints_with_param_defaults(&Info { rx: attr.clone(), ..Info::default() }, &self.shared.params);
        let granted = grant_rx_attr(&asked.rx)?;
        let context = SharedReceiveContext::open(self.shared.id, self.shared.clone(), granted);
        let mut contexts = self.shared.receive_contexts.lock();
        contexts.retain(|context| context.strong_count() > 0);
        contexts.push(context.downgrade());
        Ok(context)
    }

    /// Cancels the posted receives whose memory overlaps `memory`, of all endpoints and shared receive
    /// contexts of the domain. Each ends with an error completion, ECANCELED. A receive that a message is
    /// filling ends, too: what has not arrived of the message is dropped. Receives that wait for a counter,
    /// or into owned memory, stay.
    ///
    /// libfabric has no such call. With it an application can give memory away although it does not know
    /// what is posted there. The call takes the lock of each endpoint in turn, so it may wait for a pass of
    /// its progress. It does not access the memory.
    pub fn cancel_receives_into(&self, memory: SegmentMut) {
        // The contexts first: after that, no message begins to fill such a receive.
        let contexts: Vec<_> = self.shared.receive_contexts.lock().iter().filter_map(Weak::upgrade).collect();
        contexts.iter().for_each(|context| context.cancel_receives_into(&memory));
        let pumps: Vec<_> = self.shared.pumps.lock().iter().filter_map(Weak::upgrade).collect();
        pumps.iter().for_each(|pump| pump.cancel_receives_into(&memory));
    }

    /// As [`grant_endpoint_info`](Self::grant_endpoint_info), but refuses all types except
    /// [`EndpointType::Msg`].
    fn grant_msg_endpoint_info(&self, info: &Info) -> Result<Info, Error> {
        if !info.endpoint_type().is_connected() {
            return Err(Misuse::Invalid(Argument::Unconnected).into());
        }
        self.grant_endpoint_info(info)
    }

    /// Checks `info`, and returns it with all attributes filled in for an endpoint.
    fn grant_endpoint_info(&self, info: &Info) -> Result<Info, Error> {
        if info.domain.name.as_deref().is_some_and(|name| !name.eq_ignore_ascii_case(self.name())) {
            return Err(Misuse::Invalid(Argument::InfoOfOtherDomain).into());
        }
        let endpoint_type = info.endpoint_type();
        if !EndpointType::OFFERED.contains(&endpoint_type) {
            return Err(Misuse::Invalid(Argument::NotOffered(Unmet::Datagrams)).into());
        }
        if endpoint_type.needs_locks() && self.shared.locking != Locking::Taken {
            return Err(Misuse::Invalid(Argument::UnlockedConnections).into());
        }
        let formats = [info.addr_format, info.src_addr.map(|address| address.format())];
        if formats.into_iter().flatten().any(|format| format != self.shared.format) {
            return Err(Misuse::Invalid(Argument::AddressFormat { accepted: self.shared.format }).into());
        }
        let wanted = hints_with_param_defaults(info, &self.shared.params);
        let mut granted = grant_info(&self.shared.attr, &wanted)?;
        // The attributes of the domain rule completion queues, progress and keys, whatever the info says.
        granted.domain.resource_mgmt = Some(self.shared.resource_mgmt);
        granted.domain.threading = Some(self.shared.threading);
        granted.domain.control_progress = Some(self.shared.control_progress);
        granted.domain.data_progress = Some(self.shared.data_progress);
        granted.domain.mr_key_size_bytes = self.shared.region_keys.size_bytes();
        Ok(granted)
    }
}

impl DomainShared {
    pub(crate) fn open_pump(&self, bind: Address, config: Config) -> Result<Arc<dyn EndpointPump>, Error> {
        let (ports, regions) = (self.params.ports, self.regions.clone());
        let pump = self.provider.open_pump(bind, ports, config, regions, self.locking, &self.clock)?;
        self.register_pump(&pump);
        Ok(pump)
    }

    /// Makes the pump of a passive endpoint serve an active endpoint of this domain.
    pub(crate) fn adopt_passive_pump(
        &self,
        pump: &Arc<dyn EndpointPump>,
        config: Config,
    ) -> Result<(), Error> {
        pump.become_active(config, self.regions.clone())?;
        self.register_pump(pump);
        Ok(())
    }

    fn register_pump(&self, pump: &Arc<dyn EndpointPump>) {
        let mut pumps = self.pumps.lock();
        pumps.retain(|pump| pump.strong_count() > 0);
        pumps.push(Arc::downgrade(pump));
        if self.has_had_works.load(Ordering::Relaxed) {
            self.attach_work_queue_to_pump(pump);
        }
    }

    fn attach_work_queue_to_pump(&self, pump: &Arc<dyn EndpointPump>) {
        let weak = Arc::downgrade(pump);
        self.works.attach_endpoint(weak);
        pump.attach_work_queue(&self.works);
    }

    #[cold]
    fn attach_work_queue_to_all_pumps(&self) {
        let present: Vec<_>;
        let pumps = self.pumps.lock();
        if self.has_had_works.load(Ordering::Acquire) {
            // Another thread was faster.
            return;
        }
        present = pumps.iter().filter_map(Weak::upgrade).collect();
        present.iter().for_each(|pump| self.attach_work_queue_to_pump(pump));
        self.has_had_works.store(true, Ordering::Release);
    }

    /// Allocates memory that peers may map. Returns `None` if the provider has no such memory.
    pub(crate) fn allocate_shareable(
        &self,
        len_bytes: usize,
    ) -> Result<Option<Arc<dyn SharedMemory>>, Error> {
        self.provider
            .allocate_shareable(len_bytes)
            .map_err(|errno| SystemRequest::ShareableMemory.refused(errno))
    }

    pub(crate) fn allocate_send_buffer(&self, len_bytes: usize) -> Result<SendBuffer, Error> {
        self.provider
            .allocate_send_buffer(len_bytes)
            .map_err(|errno| SystemRequest::ShareableMemory.refused(errno))
    }

    pub(crate) fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    /// Returns the counters to which regions are bound, or on which works depend.
    pub(crate) fn domain_counters(&self) -> &Arc<DomainCounters> {
        &self.domain_counters
    }

    pub(crate) fn mr_mode(&self) -> MrMode {
        self.mr_mode
    }

    /// Returns the source of the keys that the domain chooses.
    pub(crate) fn region_keys(&self) -> &RegionKeys {
        &self.region_keys
    }

    /// Waits until no thread accesses regions that were closed before the call.
    pub(crate) fn wait_for_running_passes(&self) {
        let pumps: Vec<_> = self.pumps.lock().iter().filter_map(Weak::upgrade).collect();
        pumps.iter().for_each(|pump| pump.wait_for_running_pass());
    }

    /// Returns the progress thread if it drives the endpoint. If only control progress is automatic, the
    /// thread drives only endpoints for connections. In a simulation, its steps take the thread's place.
    pub(crate) fn progress_thread(&self, is_connection_oriented: bool) -> Option<&ProgressThread> {
        let is_auto = self.data_progress == Progress::Auto
            || is_connection_oriented && self.control_progress == Progress::Auto;
        (is_auto && !self.clock.is_of_simulation()).then_some(&self.progress_thread)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn id(&self) -> DomainId {
        self.id
    }

    pub(crate) fn format(&self) -> AddressFormat {
        self.format
    }

    /// Returns the size of the largest message that an endpoint sends without an offer.
    pub(crate) fn eager_max_bytes(&self) -> usize {
        self.params.eager_bytes
    }

    pub(crate) fn connect_timeout(&self) -> Option<Duration> {
        self.params.connect_timeout
    }

    pub(crate) fn close_linger(&self) -> Duration {
        self.params.close_linger
    }
}

impl WorkDomain for DomainShared {
    fn work_queue(&self) -> &Arc<WorkQueue> {
        &self.works
    }

    fn enlist_work_counter(&self, counter: &Counter) -> Result<(), Error> {
        if !self.has_had_works.load(Ordering::Acquire) {
            self.attach_work_queue_to_all_pumps();
        }
        counter.add_to_domain_counters(&self.domain_counters)?;
        // A thread that waits on the counter for the end of a work then also runs due works that no other
        // thread has run.
        counter.shared().register_work_queue(&self.works);
        Ok(())
    }
}

impl Drop for DomainShared {
    fn drop(&mut self) {
        self.works.drop_all_waiting_works();
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("name", &self.name())
            .field("format", &self.shared.format)
            .field("resource_mgmt", &self.shared.resource_mgmt)
            .field("threading", &self.shared.threading)
            .field("data_progress", &self.shared.data_progress)
            .finish()
    }
}
