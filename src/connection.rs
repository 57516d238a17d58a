//! Connections between endpoints of [`EndpointType::Msg`](crate::info::EndpointType::Msg): `fi_cm(3)`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::connection::{ConnectionEnd, Request, RequestId, Requester};
use homespun_engine::error::{Argument, Error, Misuse, ObjectState};
use homespun_engine::limits::CONNECTION_DATA_MAX_BYTES;
use parking_lot::Mutex;

use crate::endpoint_pump::EndpointPump;
use crate::info::Info;
use crate::mutated;

/// An event of a connection, as an [`EventQueue`](crate::EventQueue) reports it. Events name an endpoint by
/// the number that it was [bound](crate::Endpoint::bind_eq) with.
///
/// A failed attempt to connect is reported as an [`EventError`](crate::EventError) instead:
///
/// - ECONNREFUSED if no endpoint listens, or if the request was rejected; `err_data` is then the data that
///   the other application has passed to [`reject`](ConnectionRequest::reject)
/// - ECONNABORTED if the requester was gone, or had given up, when its request was accepted
/// - ETIMEDOUT if the request was not answered within the endpoint's
///   [`connect_timeout`](crate::Endpoint::connect_timeout), or if the system reports it of the peer's host
/// - otherwise the system's error
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// A requester asks a passive endpoint for a connection (`FI_CONNREQ`).
    Request(ConnectionRequest),
    /// An endpoint is connected (`FI_CONNECTED`): it can send from now on.
    Connected {
        /// The endpoint.
        endpoint: u64,
        /// At the requester, the data that the other application has passed to
        /// [`accept`](crate::Endpoint::accept).
        data: Box<[u8]>,
    },
    /// A connection has ended (`FI_SHUTDOWN`). Either the peer has shut it down, was closed or is gone; or
    /// this side has shut it down and the peer has learnt of it. All earlier arrivals have been reported,
    /// and all outstanding operations have failed. Messages that have arrived can still be received.
    Shutdown {
        /// The endpoint.
        endpoint: u64,
        /// Whether the connection has ended in order, or was lost. C programs do not see this: the entry of
        /// an `FI_SHUTDOWN` has no room for it.
        end: ConnectionEnd,
    },
}

/// A request for a connection to a passive endpoint: `FI_CONNREQ`, and the `handle` of its info.
///
/// To accept the request, open an endpoint with
/// [`Domain::endpoint_for_request`](crate::Domain::endpoint_for_request). The passive endpoint may be
/// closed by then. To refuse the request, [reject](Self::reject) it. Clones are handles to the same
/// request. Dropping the last clone rejects the request, unless the application has accepted it.
#[derive(Clone)]
pub struct ConnectionRequest {
    shared: Arc<RequestShared>,
}

struct RequestShared {
    /// The passive endpoint at which the requester waits. `None` once the requester no longer waits.
    listener: Mutex<Option<Arc<Listener>>>,
    listener_info: Arc<ListenerInfo>,
    id: RequestId,
    from: Requester,
    data: Box<[u8]>,
    passive_endpoint: u64,
    decision: Mutex<Decision>,
}

/// The decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Open,
    /// An endpoint is open for it, and may accept it.
    Reserved,
    Accepted,
    Rejected,
}

impl ConnectionRequest {
    pub(crate) fn new(listener: Arc<Listener>, request: Request, passive_endpoint: u64) -> ConnectionRequest {
        let Request { id, from, data } = request;
        let listener_info = listener.listener_info.clone();
        let (listener, decision) = (Mutex::new(Some(listener)), Mutex::new(Decision::Open));
        ConnectionRequest {
            shared: Arc::new(RequestShared {
                listener,
                listener_info,
                id,
                from,
                data,
                passive_endpoint,
                decision,
            }),
        }
    }

    /// Returns the info for the endpoint that accepts. This info is the passive endpoint's, with the
    /// passive endpoint's address as the source and the requester as the destination.
    pub fn info(&self) -> Info {
        if mutated!("fi_eq/connreq-has-info") {
            return Info::default();
        }
        let RequestShared { listener_info, from, .. } = &*self.shared;
        Info {
            addr_format: Some(listener_info.name.format()),
            src_addr: Some(listener_info.name),
            dest_addr: Some(from.address),
            ..listener_info.info.clone()
        }
    }

    /// Returns the data from the requester's application.
    pub fn data(&self) -> &[u8] {
        &self.shared.data
    }

    /// Returns the number that the passive endpoint was [bound](crate::PassiveEndpoint::bind_eq)
    /// with.
    pub fn passive_endpoint(&self) -> u64 {
        self.shared.passive_endpoint
    }

    /// Rejects the request: `fi_reject`. The requester gets an error event, ECONNREFUSED, with `data` as
    /// its `err_data`. If the requester is gone, nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the application has already rejected or accepted the request.
    /// [`Misuse::Invalid`] for more data than [`CONNECTION_DATA_MAX_BYTES`].
    pub fn reject(&self, data: &[u8]) -> Result<(), Error> {
        check_data_len(data)?;
        let mut decision = self.shared.decision.lock();
        if !matches!(*decision, Decision::Open | Decision::Reserved) {
            return Err(DECIDED);
        }
        *decision = Decision::Rejected;
        drop(decision);
        self.shared.reject(data);
        Ok(())
    }

    /// Returns the id of the request in its passive endpoint's engine.
    pub(crate) fn id(&self) -> RequestId {
        self.shared.id
    }

    /// Drops the reference to the passive endpoint when the requester is gone. The caller has the passive
    /// endpoint locked. The caller must hold another reference: dropping the last one would close the
    /// passive endpoint and so lock it again.
    pub(crate) fn drop_listener(&self) {
        drop(self.shared.take_listener());
    }

    /// Returns the requester.
    pub(crate) fn requester(&self) -> Requester {
        self.shared.from
    }

    /// Returns the passive endpoint's data.
    pub(crate) fn listener_info(&self) -> &ListenerInfo {
        &self.shared.listener_info
    }

    /// Reserves the request for an endpoint that is opened for it.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the request was rejected or accepted, or if another endpoint has reserved it.
    pub(crate) fn try_reserve_for_endpoint(&self) -> Result<(), Error> {
        self.change_decision(Decision::Open, Decision::Reserved)
    }

    /// Undoes [`try_reserve_for_endpoint`](Self::try_reserve_for_endpoint): the endpoint closes without
    /// having accepted the request.
    pub(crate) fn end_reservation(&self) {
        let _was_reserved = self.change_decision(Decision::Reserved, Decision::Open);
    }

    /// Accepts the request for the endpoint that was opened for it. The requester waits until the result is
    /// dropped. Drop the result once the acceptor has connected or failed.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the request was accepted or rejected before.
    pub(crate) fn begin_accept(&self) -> Result<PendingAccept, Error> {
        self.change_decision(Decision::Reserved, Decision::Accepted)?;
        // Unlock `listener` before the call locks the pump: a thread that withdraws a request locks the
        // pump first, then `listener`.
        let listener = self.shared.listener.lock().clone();
        let is_requester_waiting =
            listener.is_some_and(|listener| listener.pump.mark_request_being_accepted(self.shared.id));
        Ok(PendingAccept { request: self.clone(), is_requester_waiting })
    }

    fn change_decision(&self, from: Decision, to: Decision) -> Result<(), Error> {
        let mut decision = self.shared.decision.lock();
        if *decision != from {
            return Err(DECIDED);
        }
        *decision = to;
        Ok(())
    }
}

impl RequestShared {
    fn reject(&self, data: &[u8]) {
        if let Some(listener) = self.take_listener() {
            // Ignore errors: the data is not too long, and a requester that is gone needs no answer.
            let _ = listener.pump.reject(self.id, data);
        }
    }

    fn end_request_after_accept(&self) {
        if let Some(listener) = self.take_listener() {
            listener.pump.end_accepted_request(self.id);
        }
    }

    /// Removes and returns the reference to the passive endpoint. The reference may be the last one, so the
    /// caller must hold no lock when dropping the reference.
    fn take_listener(&self) -> Option<Arc<Listener>> {
        self.listener.lock().take()
    }
}

impl Drop for RequestShared {
    fn drop(&mut self) {
        match *self.decision.get_mut() {
            Decision::Open | Decision::Reserved => self.reject(&[]),
            Decision::Accepted => self.end_request_after_accept(),
            Decision::Rejected => {}
        }
    }
}

/// Checks the length of the data that an application sends with a request for a connection, or with the
/// answer.
///
/// # Errors
///
/// [`Misuse::Invalid`] if the data is too long.
pub(crate) fn check_data_len(data: &[u8]) -> Result<(), Error> {
    if data.len() > CONNECTION_DATA_MAX_BYTES {
        return Err(Misuse::Invalid(Argument::ConnectionData { len_bytes: data.len() }).into());
    }
    Ok(())
}

const DECIDED: Error = Error::Misuse(Misuse::State(ObjectState::RequestDecided));

/// A request that an endpoint is accepting. Drop it once the acceptor has connected or failed, with no
/// endpoint locked: this *settles* the accept, that is, the requester stops waiting at the passive
/// endpoint.
pub(crate) struct PendingAccept {
    request: ConnectionRequest,
    is_requester_waiting: bool,
}

impl PendingAccept {
    /// Whether the requester was still waiting when the accept began, as far as the passive endpoint knows.
    pub(crate) fn is_requester_waiting(&self) -> bool {
        self.is_requester_waiting
    }
}

impl Drop for PendingAccept {
    fn drop(&mut self) {
        self.request.shared.end_request_after_accept();
    }
}

/// A passive endpoint that has its address. Requests hold references to the passive endpoint. So requesters
/// continue to wait when the application closes the passive endpoint.
pub(crate) struct Listener {
    pub(crate) pump: Arc<dyn EndpointPump>,
    pub(crate) listener_info: Arc<ListenerInfo>,
    pub(crate) close_linger: Duration,
    /// Whether an active endpoint has taken over the pump. If so, the active endpoint closes the pump.
    pub(crate) is_taken_over: Mutex<bool>,
}

/// What requests need to know of their passive endpoint.
pub(crate) struct ListenerInfo {
    /// The address at which peers reach it.
    pub(crate) name: Address,
    /// The address that it was bound to.
    pub(crate) bind: Address,
    pub(crate) info: Info,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !*self.is_taken_over.get_mut() {
            self.pump.close(self.close_linger);
        }
    }
}

impl PartialEq for ConnectionRequest {
    /// Whether both refer to the same request.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for ConnectionRequest {}

impl fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionRequest")
            .field("from", &self.shared.from.address)
            .field("to", &self.shared.listener_info.name)
            .finish_non_exhaustive()
    }
}
