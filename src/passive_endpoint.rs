//! Passive endpoints: `fi_passive_ep` of `fi_endpoint(3)`, and their part of `fi_cm(3)`.

use std::fmt;
use std::sync::{Arc, OnceLock};

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::connection::EndpointRole;
use homespun_engine::engine::Config;
use homespun_engine::error::{Argument, Error, InUse, Misuse, ObjectState};
use homespun_engine::limits::BACKLOG_DEFAULT_REQUESTS;
use parking_lot::{Mutex, MutexGuard};

use crate::av::{AddressVector, AvAttr};
use crate::clock::Clock;
use crate::connection::{Listener, ListenerInfo};
use crate::counter::BoundCounters;
use crate::domain_id::DomainId;
use crate::endpoint_pump::{Bindings, as_drive};
use crate::eq::{EventQueue, ReportedEndpoint, Reporter};
use crate::getinfo::grant_info;
use crate::info::Info;
use crate::lock::Locking;
use crate::mutated;
use crate::open_pump::OpenPump;
use crate::params::Params;

/// An endpoint that receives requests for connections: `fi_passive_ep`. It can also reserve an address
/// before the application knows which side of a connection will use it.
///
/// A passive endpoint belongs to the fabric. The application binds it to an event queue, and makes it
/// listen. Requests arrive while a thread reads the queue. A request is rejected if the application drops it
/// without accepting. Handles may be cloned and used from any thread. Dropping the last handle closes the
/// endpoint, and rejects unread requests.
///
/// A passive endpoint has a transport of its own: for `"tcp"`, a socket, and a connection for each requester
/// that waits. The first call of [`name`](Self::name) or [`listen`](Self::listen) gives the endpoint its
/// address. If a requester asks before the endpoint listens, the requester waits.
///
/// ```
/// use homespun::eq::{EqAttr, Event};
/// use homespun::info::EndpointType;
/// use homespun::{Bytes, BytesMut, ConnectionEvent, CqAttr, Fabric, FabricAddress, Hints, WaitObject};
/// # use homespun::BindFlags;
///
/// let fabric = Fabric::new();
/// let info = fabric.info(&Hints::new().ep_type(EndpointType::Msg).node("127.0.0.1").source())?;
/// let domain = fabric.domain(&info)?;
/// let eq = fabric.open_eq(&EqAttr { wait: WaitObject::Unspec, ..EqAttr::default() })?;
/// let cq = domain.open_cq(&CqAttr::default())?;
///
/// let passive = fabric.passive_endpoint(&info)?;
/// passive.bind_eq(&eq, 1)?;
/// passive.listen()?;
///
/// // Both sides in one thread: one asks, and the other accepts.
/// let both = BindFlags::TRANSMIT | BindFlags::RECV;
/// let client = domain.endpoint(&info)?;
/// client.bind_eq(&eq, 2)?;
/// client.bind_cq(&cq, both)?;
/// client.connect(passive.name()?, b"may I?")?;
/// let Ok(Some(Event::Connection(ConnectionEvent::Request(request)))) = eq.sread(None) else {
///     panic!("nothing else can have happened");
/// };
/// assert_eq!(request.data(), b"may I?");
/// let server = domain.endpoint_for_request(&request.info(), &request)?;
/// server.bind_eq(&eq, 3)?;
/// server.bind_cq(&cq, both)?;
/// server.accept(b"you may")?;
/// for _ in 0..2 {
///     match eq.sread(None).expect("no refusal").expect("no timeout") {
///         Event::Connection(ConnectionEvent::Connected { endpoint: 2, data }) => {
///             assert_eq!(&*data, b"you may");
///         }
///         Event::Connection(ConnectionEvent::Connected { endpoint, .. }) => assert_eq!(endpoint, 3),
///         other => panic!("{other:?}"),
///     }
/// }
/// assert_eq!(client.peer()?, passive.name()?);
///
/// // Messages need no address.
/// server.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, 1)?;
/// client.send(Bytes::from_static(b"hello"), FabricAddress::UNSPECIFIED, 2)?;
/// # let mut ended = Vec::new();
/// # while ended.len() < 2 { ended.extend(cq.read().expect("no failure")); }
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct PassiveEndpoint {
    shared: Arc<PassiveShared>,
}

struct PassiveShared {
    info: Info,
    provider: Arc<dyn OpenPump>,
    format: AddressFormat,
    params: Params,
    clock: Clock,
    setup: Mutex<PassiveSetup>,
    /// Set by the first call of `name` or `listen`, or when an active endpoint takes over the address.
    listener: OnceLock<Arc<Listener>>,
}

struct PassiveSetup {
    /// The address to bind to; `None` for the address of the info.
    name: Option<Address>,
    eq: Option<(EventQueue, u64)>,
    backlog_requests: usize,
    stage: PassiveStage,
}

enum PassiveStage {
    Idle,
    Listening(Arc<Reporter>),
    /// An active endpoint has taken over the address.
    TakenOver,
}

impl PassiveEndpoint {
    pub(crate) fn open(
        provider: Arc<dyn OpenPump>,
        info: &Info,
        params: &Params,
        clock: &Clock,
    ) -> Result<PassiveEndpoint, Error> {
        if !info.endpoint_type().is_connected() {
            return Err(Misuse::Invalid(Argument::Unconnected).into());
        }
        let attr = provider.attr();
        let info = grant_info(&attr, info)?;
        let of_source = info.src_addr.map(|address| address.format());
        let format = info.addr_format.or(of_source).unwrap_or_else(|| attr.preferred_format());
        if of_source.is_some_and(|source| source != format) || !attr.formats.contains(&format) {
            return Err(Misuse::Invalid(Argument::AddressFormat { accepted: format }).into());
        }
        let setup = PassiveSetup {
            name: None,
            eq: None,
            backlog_requests: BACKLOG_DEFAULT_REQUESTS,
            stage: PassiveStage::Idle,
        };
        Ok(PassiveEndpoint {
            shared: Arc::new(PassiveShared {
                info,
                provider,
                format,
                params: params.clone(),
                clock: clock.clone(),
                setup: Mutex::new(setup),
                listener: OnceLock::new(),
            }),
        })
    }

    /// Returns the attributes with which the endpoint was opened.
    pub fn info(&self) -> &Info {
        &self.shared.info
    }

    /// Binds the event queue that reports requests: `fi_pep_bind`. The events name the passive endpoint by
    /// `object`.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] once the endpoint listens; [`Misuse::Busy`] if it has a queue already.
    pub fn bind_eq(&self, eq: &EventQueue, object: u64) -> Result<(), Error> {
        let mut setup = self.lock_idle_setup()?;
        if setup.eq.is_some() {
            return Err(Misuse::Busy(InUse::EventQueueBound).into());
        }
        eq.shared().add_binding();
        setup.eq = Some((eq.clone(), object));
        Ok(())
    }

    /// Sets the address to bind the endpoint to: `fi_setname`.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the endpoint listens already, or its [`name`](Self::name) was asked for.
    /// [`Misuse::Invalid`] if the address does not have the format of the info.
    pub fn set_name(&self, name: Address) -> Result<(), Error> {
        let mut setup = self.lock_idle_setup()?;
        if self.shared.listener.get().is_some() {
            return Err(Misuse::State(ObjectState::AddressAssigned).into());
        }
        if name.format() != self.shared.format {
            return Err(Misuse::Invalid(Argument::AddressFormat { accepted: self.shared.format }).into());
        }
        setup.name = Some(name);
        Ok(())
    }

    /// Returns the address to which peers connect: `fi_getname`. Peers can connect to it even if the
    /// endpoint is bound to every interface.
    ///
    /// # Errors
    ///
    /// The first call binds the endpoint, and may return the system's error: EADDRINUSE, EADDRNOTAVAIL,
    /// EACCES, EMFILE.
    pub fn name(&self) -> Result<Address, Error> {
        if let Some(listener) = self.shared.listener.get() {
            return Ok(listener.listener_info.name);
        }
        let setup = self.shared.setup.lock();
        Ok(self.shared.listener_or_open(&setup)?.listener_info.name)
    }

    /// Sets the number of requests that may wait for an answer (`FI_BACKLOG`). Further requests are
    /// rejected. The default is [`BACKLOG_DEFAULT_REQUESTS`].
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] for 0; [`Misuse::State`] if an endpoint has taken over the address.
    pub fn set_backlog(&self, requests: usize) -> Result<(), Error> {
        if requests == 0 {
            return Err(Misuse::Invalid(Argument::EmptyBacklog).into());
        }
        let mut setup = self.shared.setup.lock();
        if let PassiveStage::TakenOver = setup.stage {
            return Err(TAKEN_OVER);
        }
        setup.backlog_requests = requests;
        match (&setup.stage, self.shared.listener.get()) {
            (PassiveStage::Listening(_), Some(listener)) => listener.pump.listen(requests),
            _ => Ok(()),
        }
    }

    /// Listens for requests: `fi_listen`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoEventQueue`] without an event queue. [`Misuse::State`] if the endpoint listens already,
    /// or an active endpoint has taken over the address. [`Error::System`] if the system lacks memory to
    /// wake the queue's sleepers. Also the errors of [`name`](Self::name).
    pub fn listen(&self) -> Result<(), Error> {
        let mut setup = self.lock_idle_setup()?;
        if setup.eq.is_none() && mutated!("fi_endpoint/passive-endpoint-needs-event-queue") {
            return Ok(());
        }
        let (eq, object) = setup.eq.as_ref().ok_or(Misuse::NoEventQueue)?;
        let listener = self.shared.listener_or_open(&setup)?;
        let subject = ReportedEndpoint::PassiveEndpoint(Arc::downgrade(listener));
        let reporter = Arc::new(Reporter::new(eq, *object, subject));
        // The queue drives the endpoint only after all steps that may fail, such as adding the endpoint's
        // descriptor to the queue's sleepers.
        eq.shared().add_wake_source(&as_drive(&listener.pump))?;
        listener.pump.enable(Bindings {
            av: AddressVector::open(&AvAttr::default(), self.shared.format, DomainId::allocate())?,
            transmit_cq: None,
            receive_cq: None,
            counters: BoundCounters::default(),
            domain_counters: None,
            reporter: Some(reporter.clone()),
            wants_source: false,
            reports_unknown_sources: false,
            shares_receiver: false,
            ends_on_failure: false,
            progress_doorbell: None,
            works: Arc::default(),
        })?;
        listener.pump.listen(setup.backlog_requests)?;
        eq.shared().add_endpoint(&as_drive(&listener.pump));
        setup.stage = PassiveStage::Listening(reporter);
        Ok(())
    }

    /// Hands the passive endpoint's address and transport over to an active endpoint. `domain` is the domain
    /// of the active endpoint, and `format` the format of its address.
    pub(crate) fn hand_over_listener(
        &self,
        domain: &str,
        format: AddressFormat,
    ) -> Result<Arc<Listener>, Error> {
        let mut setup = self.lock_idle_setup()?;
        if self.shared.info.domain.name.as_deref() != Some(domain) || self.shared.format != format {
            return Err(Misuse::Invalid(Argument::PassiveOfOtherDomain).into());
        }
        let listener = self.shared.listener_or_open(&setup)?;
        *listener.is_taken_over.lock() = true;
        setup.stage = PassiveStage::TakenOver;
        Ok(listener.clone())
    }

    fn lock_idle_setup(&self) -> Result<MutexGuard<'_, PassiveSetup>, Error> {
        let setup = self.shared.setup.lock();
        match setup.stage {
            PassiveStage::Idle => Ok(setup),
            PassiveStage::Listening(_) => Err(Misuse::State(ObjectState::Listening).into()),
            PassiveStage::TakenOver => Err(TAKEN_OVER),
        }
    }
}

const TAKEN_OVER: Error = Error::Misuse(Misuse::State(ObjectState::TakenOver));

impl PassiveShared {
    fn listener_or_open(&self, setup: &PassiveSetup) -> Result<&Arc<Listener>, Error> {
        if let Some(listener) = self.listener.get() {
            return Ok(listener);
        }
        let bind = setup.name.or(self.info.src_addr).unwrap_or_else(|| self.format.wildcard());
        let config = Config { role: EndpointRole::Passive, ..Config::default() };
        let (ports, clock) = (self.params.ports, &self.clock);
        let pump = self.provider.open_pump(bind, ports, config, Arc::default(), Locking::Taken, clock)?;
        let listener = Listener {
            listener_info: Arc::new(ListenerInfo { name: pump.address(), bind, info: self.info.clone() }),
            close_linger: self.params.close_linger,
            is_taken_over: Mutex::new(false),
            pump,
        };
        Ok(self.listener.get_or_init(|| Arc::new(listener)))
    }
}

impl Drop for PassiveShared {
    fn drop(&mut self) {
        let setup = self.setup.get_mut();
        if let (PassiveStage::Listening(reporter), Some(listener)) = (&setup.stage, self.listener.get()) {
            // From now on there are no new requests, no progress, and no events.
            listener.pump.stop_listening();
            reporter.eq().remove_endpoint(&as_drive(&listener.pump));
            reporter.drop_entries();
        }
        if let Some((eq, _)) = &setup.eq {
            eq.shared().remove_binding();
        }
    }
}

impl fmt::Debug for PassiveEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassiveEndpoint")
            .field("address", &self.shared.listener.get().map(|listener| listener.listener_info.name))
            .finish_non_exhaustive()
    }
}
