//! The objects of connections: the library's own, or behind the C interface. Where a method of the library's
//! own object is missing here, tests reach it through [`Deref`](std::ops::Deref), and run natively.

use std::sync::Arc;

use homespun::info::Info;
use homespun::{Address, ConnectionEnd, Error, EventError, EventQueue, Fabric};

use super::call::{AddressForm, ConnectionCall, EventForm, Origin, RemoteCall};
use super::handle::{Endpoint, Handle};
use super::remote_party::RemoteParty;

/// A passive endpoint.
pub type PassiveEndpoint = Handle<homespun::PassiveEndpoint>;

/// A request for a connection.
#[derive(Debug, Clone)]
pub struct ConnectionRequest(Arc<Asked>);

#[derive(Debug)]
struct Asked {
    request: Handle<homespun::ConnectionRequest>,
    listener: u64,
    data: Vec<u8>,
    info: Info,
}

impl From<homespun::ConnectionRequest> for ConnectionRequest {
    fn from(request: homespun::ConnectionRequest) -> ConnectionRequest {
        let (listener, data, info) = (request.passive_endpoint(), request.data().to_vec(), request.info());
        ConnectionRequest(Arc::new(Asked { request: Handle::Here(request), listener, data, info }))
    }
}

/// An event of a connection, as the library's own.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see the library's own")]
pub enum ConnectionEvent {
    Request(ConnectionRequest),
    Connected { endpoint: u64, data: Box<[u8]> },
    Shutdown { endpoint: u64, end: ConnectionEnd },
}

impl From<homespun::ConnectionEvent> for ConnectionEvent {
    fn from(event: homespun::ConnectionEvent) -> ConnectionEvent {
        use homespun::ConnectionEvent as Native;
        match event {
            Native::Request(request) => ConnectionEvent::Request(request.into()),
            Native::Connected { endpoint, data } => ConnectionEvent::Connected { endpoint, data },
            Native::Shutdown { endpoint, end } => ConnectionEvent::Shutdown { endpoint, end },
        }
    }
}

impl EventForm {
    /// The event of a side behind the C interface, whose endpoints have this info.
    pub(super) fn into_result(
        self,
        side: &Arc<RemoteParty>,
        info: &Info,
    ) -> Result<ConnectionEvent, EventError> {
        Ok(match self {
            EventForm::Request { number, listener, data, from, to } => {
                let request = Handle::There(Arc::new(RemoteParty::of(side, number)));
                let info = Info { src_addr: Some(to.0), dest_addr: Some(from.0), ..info.clone() };
                ConnectionEvent::Request(ConnectionRequest(Arc::new(Asked { request, listener, data, info })))
            }
            EventForm::Connected(endpoint, data) => {
                ConnectionEvent::Connected { endpoint, data: data.into() }
            }
            EventForm::Shutdown(endpoint) => {
                ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed }
            }
            EventForm::Failed { object, errno, prov_errno, err_data } => {
                let (context, data, peer) = (0, 0, None);
                return Err(EventError { object, context, data, errno, prov_errno, err_data, peer });
            }
        })
    }
}

impl Handle<Fabric> {
    /// `fi_passive_ep(3)`.
    pub fn passive_endpoint(&self, info: &Info) -> Result<PassiveEndpoint, Error> {
        match self {
            Handle::Here(fabric) => fabric.passive_endpoint(info).map(Handle::Here),
            Handle::There(remote) => remote.open_object(ConnectionCall::OpenPassive).map(Handle::There),
        }
    }
}

impl Handle<homespun::Domain> {
    /// `fi_endpoint(3)`.
    pub fn endpoint(&self, info: &Info) -> Result<Endpoint, Error> {
        match self {
            Handle::Here(domain) => Ok(Endpoint::new_local(domain.endpoint(info)?, None)),
            Handle::There(remote) => open_remote(remote, Origin::New, info),
        }
    }

    /// `fi_endpoint(3)`, to accept a request.
    pub fn endpoint_for_request(&self, info: &Info, request: &ConnectionRequest) -> Result<Endpoint, Error> {
        match (self, &request.0.request) {
            (Handle::Here(domain), Handle::Here(request)) => {
                Ok(Endpoint::new_local(domain.endpoint_for_request(info, request)?, None))
            }
            (Handle::There(remote), Handle::There(request)) => open_remote(remote, request.as_origin(), info),
            _ => panic!("the request is of another library"),
        }
    }

    /// `fi_endpoint(3)`, at the address of a passive endpoint.
    pub fn endpoint_from_passive(&self, info: &Info, passive: &PassiveEndpoint) -> Result<Endpoint, Error> {
        match (self, passive) {
            (Handle::Here(domain), Handle::Here(passive)) => {
                Ok(Endpoint::new_local(domain.endpoint_from_passive(info, passive)?, None))
            }
            (Handle::There(remote), Handle::There(passive)) => open_remote(remote, passive.as_origin(), info),
            _ => panic!("the passive endpoint is of another library"),
        }
    }
}

fn open_remote(side: &Arc<RemoteParty>, origin: Origin, info: &Info) -> Result<Endpoint, Error> {
    let remote = side.open_object(ConnectionCall::OpenEndpoint(origin))?;
    Ok(Endpoint::new_remote(remote, None, info.clone()))
}

impl Handle<EventQueue> {
    /// `fi_eq_strerror(3)`.
    pub fn strerror(&self, prov_errno: i32) -> String {
        match self {
            Handle::Here(eq) => eq.strerror(prov_errno).to_owned(),
            Handle::There(remote) => {
                remote.call(RemoteCall::Connection(ConnectionCall::EventStrerror(prov_errno))).text()
            }
        }
    }
}

impl PassiveEndpoint {
    /// `fi_pep_bind(3)`.
    pub fn bind_eq(&self, eq: &Handle<EventQueue>, name: u64) -> Result<(), Error> {
        self.connection_call(|here| here.bind_eq(eq, name), ConnectionCall::Bind(name))
    }

    /// `fi_listen(3)`.
    pub fn listen(&self) -> Result<(), Error> {
        self.connection_call(homespun::PassiveEndpoint::listen, ConnectionCall::Listen)
    }

    /// `fi_control(3)` with `FI_BACKLOG`.
    pub fn set_backlog(&self, requests: usize) -> Result<(), Error> {
        self.connection_call(|here| here.set_backlog(requests), ConnectionCall::SetBacklog(requests))
    }

    /// `fi_setname(3)`.
    pub fn set_name(&self, name: Address) -> Result<(), Error> {
        self.connection_call(|here| here.set_name(name), ConnectionCall::SetName(AddressForm(name)))
    }

    /// `fi_getname(3)`.
    pub fn name(&self) -> Result<Address, Error> {
        self.address(homespun::PassiveEndpoint::name, ConnectionCall::Name)
    }
}

/// The calls of endpoints with connections.
impl Endpoint {
    /// `fi_enable(3)`.
    pub fn enable(&self) -> Result<(), Error> {
        self.handle().connection_call(homespun::Endpoint::enable, ConnectionCall::Enable)
    }

    /// `fi_connect(3)`.
    pub fn connect(&self, to: Address, data: &[u8]) -> Result<(), Error> {
        let there = ConnectionCall::Connect(AddressForm(to), data.to_owned());
        self.handle().connection_call(|here| here.connect(to, data), there)
    }

    /// `fi_accept(3)`.
    pub fn accept(&self, data: &[u8]) -> Result<(), Error> {
        self.handle().connection_call(|here| here.accept(data), ConnectionCall::Accept(data.to_owned()))
    }

    /// `fi_shutdown(3)`.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.handle().connection_call(homespun::Endpoint::shutdown, ConnectionCall::Shutdown)
    }

    /// `fi_setname(3)`.
    pub fn set_name(&self, name: Address) -> Result<(), Error> {
        self.handle().connection_call(|here| here.set_name(name), ConnectionCall::SetName(AddressForm(name)))
    }
}

impl ConnectionRequest {
    /// The info of the endpoint that accepts.
    pub fn info(&self) -> Info {
        self.0.info.clone()
    }

    /// The data of the request.
    pub fn data(&self) -> &[u8] {
        &self.0.data
    }

    /// The context of the passive endpoint.
    pub fn passive_endpoint(&self) -> u64 {
        self.0.listener
    }

    /// `fi_reject(3)`.
    pub fn reject(&self, data: &[u8]) -> Result<(), Error> {
        let there = ConnectionCall::Reject(data.to_owned());
        self.0.request.connection_call(|here| here.reject(data), there)
    }
}

impl PartialEq for ConnectionRequest {
    fn eq(&self, other: &ConnectionRequest) -> bool {
        match (&self.0.request, &other.0.request) {
            (Handle::Here(one), Handle::Here(other)) => one == other,
            _ => Arc::ptr_eq(&self.0, &other.0),
        }
    }
}
