//! Sides of connections whose objects are the library's own, or behind the C interface. Where a method of the
//! library's own object is missing here, tests reach it through [`Deref`], and run natively.

use std::ops::Deref;
use std::sync::Arc;

use homespun::eq::EqReadError;
use homespun::info::Info;
use homespun::{Address, ConnectionEnd, Error, EventError, EventQueue, Fabric};

use super::call::{AddressForm, ConnectionCall, EventForm, Origin, RemoteAnswer, RemoteCall};
use super::connecting::{self, BOTH, ConnectionSide, LISTENER, SERVER, connect_pair};
use super::ended::Ended;
use super::handle::{Endpoint, Queue};
use super::net::Net;
use super::remote_party::RemoteParty;

/// An object of a side: the library's own, or one behind the C interface.
#[derive(Debug)]
pub(crate) enum Handle<T> {
    /// The library's own.
    Here(T),
    /// Behind the C interface.
    There(Arc<RemoteParty>),
}

impl<T> Deref for Handle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Handle::Here(object) => object,
            Handle::There(_) => panic!("the object lives behind the C interface"),
        }
    }
}

/// A passive endpoint.
pub(crate) type PassiveEndpoint = Handle<homespun::PassiveEndpoint>;

/// A client or a server, as [`connecting::Side`].
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) fabric: Handle<Fabric>,
    pub(crate) domain: Handle<homespun::Domain>,
    pub(crate) info: Info,
    pub(crate) eq: Handle<EventQueue>,
    pub(crate) cq: Queue,
    /// Drives the library's own objects.
    _native: Option<connecting::Side>,
}

/// A request for a connection.
#[derive(Debug, Clone)]
pub(crate) enum ConnectionRequest {
    Here(homespun::ConnectionRequest),
    There(Arc<Asked>),
}

/// A request that waits behind the C interface.
#[derive(Debug)]
pub(crate) struct Asked {
    remote: Arc<RemoteParty>,
    listener: u64,
    data: Vec<u8>,
    info: Info,
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConnectionEvent {
    Request(ConnectionRequest),
    Connected { endpoint: u64, data: Box<[u8]> },
    Shutdown { endpoint: u64, end: ConnectionEnd },
}

/// An event that a peek finds.
#[derive(Debug, PartialEq)]
pub(crate) enum Event {
    Connection(ConnectionEvent),
}

impl From<homespun::ConnectionEvent> for ConnectionEvent {
    fn from(event: homespun::ConnectionEvent) -> ConnectionEvent {
        match event {
            homespun::ConnectionEvent::Request(request) => {
                ConnectionEvent::Request(ConnectionRequest::Here(request))
            }
            homespun::ConnectionEvent::Connected { endpoint, data } => {
                ConnectionEvent::Connected { endpoint, data }
            }
            homespun::ConnectionEvent::Shutdown { endpoint, end } => {
                ConnectionEvent::Shutdown { endpoint, end }
            }
        }
    }
}

impl From<connecting::Side> for Side {
    fn from(native: connecting::Side) -> Side {
        Side {
            fabric: Handle::Here(native.fabric.clone()),
            domain: Handle::Here(native.domain.clone()),
            info: native.info.clone(),
            eq: Handle::Here(native.eq.clone()),
            cq: Queue::Here(native.cq.clone()),
            _native: Some(native),
        }
    }
}

impl Side {
    /// Opens a side whose queues have no wait objects.
    pub(crate) fn new(net: &Net) -> Side {
        let Some((remote, info, cq)) = net.open_answering_side() else {
            return connecting::Side::new(net).into();
        };
        Side {
            fabric: Handle::There(remote.clone()),
            domain: Handle::There(remote.clone()),
            info,
            eq: Handle::There(remote),
            cq,
            _native: None,
        }
    }

    pub(crate) fn open_endpoint(&self, name: u64) -> Endpoint {
        self.bind_endpoint(self.domain.endpoint(&self.info).expect("an endpoint"), name)
    }

    pub(crate) fn open_endpoint_for_request(&self, request: &ConnectionRequest, name: u64) -> Endpoint {
        let endpoint = self.domain.endpoint_for_request(&request.info(), request);
        self.bind_endpoint(endpoint.expect("the request is open"), name)
    }

    pub(crate) fn accept(&self, request: &ConnectionRequest, data: &[u8]) -> Endpoint {
        let accepting = self.open_endpoint_for_request(request, SERVER);
        accepting.accept(data).expect("an open request can be accepted");
        accepting
    }

    pub(crate) fn bind_endpoint(&self, endpoint: Endpoint, name: u64) -> Endpoint {
        let bind = |here: &homespun::Endpoint| {
            here.bind_eq(&self.eq, name)?;
            here.bind_cq(&self.cq, BOTH)
        };
        endpoint.connection_call(bind, || ConnectionCall::Bind(name)).expect("its first queues");
        endpoint
    }

    pub(crate) fn open_listener(&self, name: u64) -> PassiveEndpoint {
        let passive = self.fabric.passive_endpoint(&self.info).expect("a passive endpoint");
        passive.bind_eq(&self.eq, name).expect("its first event queue");
        passive.listen().expect("it has all that it needs");
        passive
    }

    pub(crate) fn poll_event(&self) -> Option<Result<ConnectionEvent, EventError>> {
        let remote = match (&self._native, &self.eq) {
            (None, Handle::There(remote)) => remote,
            (native, _) => {
                let event = native.as_ref().expect("a side is of one kind").poll_event()?;
                return Some(event.map(ConnectionEvent::from));
            }
        };
        let event = match remote.call(&RemoteCall::Connection(ConnectionCall::ReadEvent)) {
            RemoteAnswer::Event(event) => event?,
            other => panic!("{other:?}"),
        };
        Some(match event {
            EventForm::Request { number, listener, data, from: AddressForm(from), to: AddressForm(to) } => {
                let remote = Arc::new(RemoteParty::of(remote, number));
                let info = Info { src_addr: Some(to), dest_addr: Some(from), ..self.info.clone() };
                let asked = Asked { remote, listener, data, info };
                Ok(ConnectionEvent::Request(ConnectionRequest::There(Arc::new(asked))))
            }
            EventForm::Connected { endpoint, data } => {
                Ok(ConnectionEvent::Connected { endpoint, data: data.into() })
            }
            EventForm::Shutdown { endpoint } => {
                Ok(ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed })
            }
            EventForm::Failed { object, errno, prov_errno, err_data } => {
                Err(EventError { object, context: 0, data: 0, errno, prov_errno, err_data, peer: None })
            }
        })
    }

    pub(crate) fn progress(&self) {
        match &self.eq {
            Handle::Here(eq) => {
                eq.progress();
                self.cq.progress();
            }
            Handle::There(remote) => remote.progress_if_idle(),
        }
    }
}

impl ConnectionSide for Side {
    type Endpoint = Endpoint;
    type Listener = PassiveEndpoint;
    type Request = ConnectionRequest;
    type Event = ConnectionEvent;

    fn open_listener(&self, name: u64) -> PassiveEndpoint {
        self.open_listener(name)
    }

    fn connect(&self, name: u64, to: &PassiveEndpoint, data: &[u8]) -> Endpoint {
        let connecting = self.open_endpoint(name);
        connecting.connect(to.name().expect("it listens"), data).expect("a new endpoint can connect");
        connecting
    }

    fn accept(&self, request: &ConnectionRequest, data: &[u8]) -> Endpoint {
        self.accept(request, data)
    }

    fn poll_event(&self) -> Option<Result<ConnectionEvent, EventError>> {
        self.poll_event()
    }

    fn request_of(event: ConnectionEvent) -> Result<ConnectionRequest, ConnectionEvent> {
        if let ConnectionEvent::Request(request) = event { Ok(request) } else { Err(event) }
    }

    fn poll_operation_end(&self) -> Option<Ended> {
        self.cq.poll_completion()
    }

    fn progress(&self) {
        self.progress();
    }
}

impl Handle<Fabric> {
    pub(crate) fn passive_endpoint(&self, info: &Info) -> Result<PassiveEndpoint, Error> {
        match self {
            Handle::Here(fabric) => fabric.passive_endpoint(info).map(Handle::Here),
            Handle::There(remote) => remote.open_object(ConnectionCall::OpenPassive).map(Handle::There),
        }
    }
}

impl Handle<homespun::Domain> {
    pub(crate) fn endpoint(&self, info: &Info) -> Result<Endpoint, Error> {
        self.open(|domain| domain.endpoint(info), || Origin::New, info)
    }

    pub(crate) fn endpoint_for_request(
        &self,
        info: &Info,
        request: &ConnectionRequest,
    ) -> Result<Endpoint, Error> {
        let origin = || match request {
            ConnectionRequest::There(asked) => {
                Origin::Of(asked.remote.number().expect("a request is an object"))
            }
            ConnectionRequest::Here(_) => panic!("the request is of the library itself"),
        };
        let open = |domain: &homespun::Domain| match request {
            ConnectionRequest::Here(request) => domain.endpoint_for_request(info, request),
            ConnectionRequest::There(_) => panic!("the request is of another library"),
        };
        self.open(open, origin, info)
    }

    pub(crate) fn endpoint_from_passive(
        &self,
        info: &Info,
        passive: &PassiveEndpoint,
    ) -> Result<Endpoint, Error> {
        let origin = || match passive {
            Handle::There(remote) => Origin::Of(remote.number().expect("a passive endpoint is an object")),
            Handle::Here(_) => panic!("the passive endpoint is of the library itself"),
        };
        self.open(|domain| domain.endpoint_from_passive(info, passive), origin, info)
    }

    fn open(
        &self,
        here: impl FnOnce(&homespun::Domain) -> Result<homespun::Endpoint, Error>,
        there: impl FnOnce() -> Origin,
        info: &Info,
    ) -> Result<Endpoint, Error> {
        match self {
            Handle::Here(domain) => Ok(Endpoint::new_local(here(domain)?, None, Arc::default())),
            Handle::There(remote) => {
                let remote = remote.open_object(ConnectionCall::OpenEndpoint(there()))?;
                Ok(Endpoint::new_remote(remote, None, info.clone(), Arc::default()))
            }
        }
    }
}

impl Handle<EventQueue> {
    pub(crate) fn strerror(&self, prov_errno: i32) -> String {
        match self {
            Handle::Here(eq) => eq.strerror(prov_errno).to_owned(),
            Handle::There(remote) => {
                let call = ConnectionCall::EventStrerror(prov_errno);
                match remote.call(&RemoteCall::Connection(call)) {
                    RemoteAnswer::Text(text) => text,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    pub(crate) fn peek(&self) -> Result<Option<Event>, EqReadError> {
        let event = (**self).peek()?;
        Ok(event.map(|event| match event {
            homespun::eq::Event::Connection(event) => Event::Connection(event.into()),
            other => panic!("an event that is not of a connection: {other:?}"),
        }))
    }
}

impl PassiveEndpoint {
    pub(crate) fn bind_eq(&self, eq: &Handle<EventQueue>, name: u64) -> Result<(), Error> {
        self.connection_call(|here| here.bind_eq(eq, name), || ConnectionCall::Bind(name))
    }

    pub(crate) fn listen(&self) -> Result<(), Error> {
        self.connection_call(homespun::PassiveEndpoint::listen, || ConnectionCall::Listen)
    }

    pub(crate) fn set_backlog(&self, requests: usize) -> Result<(), Error> {
        self.connection_call(|here| here.set_backlog(requests), || ConnectionCall::SetBacklog(requests))
    }

    pub(crate) fn set_name(&self, name: Address) -> Result<(), Error> {
        self.connection_call(|here| here.set_name(name), || ConnectionCall::SetName(AddressForm(name)))
    }

    pub(crate) fn name(&self) -> Result<Address, Error> {
        match self {
            Handle::Here(passive) => passive.name(),
            Handle::There(remote) => remote.call_for_address(ConnectionCall::Name),
        }
    }

    fn connection_call(
        &self,
        here: impl FnOnce(&homespun::PassiveEndpoint) -> Result<(), Error>,
        there: impl FnOnce() -> ConnectionCall,
    ) -> Result<(), Error> {
        match self {
            Handle::Here(passive) => here(passive),
            Handle::There(remote) => remote.call_for_result(&RemoteCall::Connection(there())),
        }
    }
}

/// The calls of endpoints with connections.
impl Endpoint {
    /// `fi_enable(3)`.
    pub fn enable(&self) -> Result<(), Error> {
        self.connection_call(homespun::Endpoint::enable, || ConnectionCall::Enable)
    }

    /// `fi_connect(3)`.
    pub fn connect(&self, to: Address, data: &[u8]) -> Result<(), Error> {
        let there = || ConnectionCall::Connect(AddressForm(to), data.to_owned());
        self.connection_call(|here| here.connect(to, data), there)
    }

    /// `fi_accept(3)`.
    pub fn accept(&self, data: &[u8]) -> Result<(), Error> {
        self.connection_call(|here| here.accept(data), || ConnectionCall::Accept(data.to_owned()))
    }

    /// `fi_shutdown(3)`.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.connection_call(homespun::Endpoint::shutdown, || ConnectionCall::Shutdown)
    }

    /// `fi_setname(3)`.
    pub fn set_name(&self, name: Address) -> Result<(), Error> {
        self.connection_call(|here| here.set_name(name), || ConnectionCall::SetName(AddressForm(name)))
    }
}

impl ConnectionRequest {
    pub(crate) fn info(&self) -> Info {
        match self {
            ConnectionRequest::Here(request) => request.info(),
            ConnectionRequest::There(asked) => asked.info.clone(),
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        match self {
            ConnectionRequest::Here(request) => request.data(),
            ConnectionRequest::There(asked) => &asked.data,
        }
    }

    pub(crate) fn passive_endpoint(&self) -> u64 {
        match self {
            ConnectionRequest::Here(request) => request.passive_endpoint(),
            ConnectionRequest::There(asked) => asked.listener,
        }
    }

    pub(crate) fn reject(&self, data: &[u8]) -> Result<(), Error> {
        match self {
            ConnectionRequest::Here(request) => request.reject(data),
            ConnectionRequest::There(asked) => {
                let call = ConnectionCall::Reject(data.to_owned());
                asked.remote.call_for_result(&RemoteCall::Connection(call))
            }
        }
    }
}

impl PartialEq for ConnectionRequest {
    fn eq(&self, other: &ConnectionRequest) -> bool {
        match (self, other) {
            (ConnectionRequest::Here(one), ConnectionRequest::Here(other)) => one == other,
            (ConnectionRequest::There(one), ConnectionRequest::There(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Opens a client, and a server with a passive endpoint that listens.
pub(crate) fn open_sides(net: &Net) -> (Side, Side, PassiveEndpoint) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.open_listener(LISTENER);
    (client, server, listener)
}

/// As [`connecting::open_connection`].
#[track_caller]
pub(crate) fn open_connection(net: &Net) -> ((Side, Endpoint), (Side, Endpoint)) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = connect_pair(&client, &server);
    ((client, one), (server, other))
}

pub(crate) fn make_connected_event(endpoint: u64, data: &[u8]) -> ConnectionEvent {
    ConnectionEvent::Connected { endpoint, data: data.into() }
}

pub(crate) fn make_shutdown_event(endpoint: u64) -> ConnectionEvent {
    ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed }
}
