//! Reports events of an endpoint to its event queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use homespun_engine::address::Address;
use homespun_engine::connection as engine;
use homespun_engine::connection::{ConnectionEnd, ConnectionError};
use homespun_engine::errno::Errno;
use homespun_engine::error::OperationError;
use parking_lot::Mutex;

use super::{EqShared, Event, EventError, EventOrigin, EventQueue};
use crate::connection::{ConnectionEvent, ConnectionRequest, Listener, PendingAccept};
use crate::cq::prov_errno;
use crate::mutated;
use crate::wait::Waiter;

/// Reports the events of the connections of one endpoint.
pub(crate) struct Reporter {
    eq: Arc<EqShared>,
    origin: EventOrigin,
    /// The number by which the application names the endpoint.
    object: u64,
    subject: ReportedEndpoint,
    /// The peer of the connection, or of the attempt to connect.
    peer: Mutex<Option<Address>>,
    /// The accept that is not [settled](PendingAccept) yet. The accept is settled when the requester has
    /// confirmed the connection, or when the connection has failed or ended.
    unsettled: Mutex<Option<PendingAccept>>,
}

/// The endpoint that the events are about.
pub(crate) enum ReportedEndpoint {
    Endpoint,
    /// The reference is weak, since the passive endpoint refers to its reporter.
    PassiveEndpoint(Weak<Listener>),
}

impl EventOrigin {
    fn allocate() -> EventOrigin {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        EventOrigin(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Reporter {
    pub(crate) fn new(eq: &EventQueue, object: u64, subject: ReportedEndpoint) -> Reporter {
        Reporter {
            eq: eq.shared().clone(),
            origin: EventOrigin::allocate(),
            object,
            subject,
            peer: Mutex::default(),
            unsettled: Mutex::default(),
        }
    }

    /// Records the peer of an attempt to connect that begins.
    pub(crate) fn set_peer(&self, peer: Address) {
        *self.peer.lock() = Some(peer);
    }

    /// Keeps the accept, to [settle](PendingAccept) it when the requester has confirmed the connection or
    /// when the accept has failed.
    pub(crate) fn keep_accept_until_confirmed(&self, pending_accept: PendingAccept) {
        *self.unsettled.lock() = Some(pending_accept);
    }

    /// Takes the accept that is not settled yet, if any.
    pub(crate) fn take_unsettled_accept(&self) -> Option<PendingAccept> {
        self.unsettled.lock().take()
    }

    /// Drops all entries that the endpoint has reported, and [settles](PendingAccept) the accepts that wait
    /// for a reader. Call this only once the endpoint is closed, so that it reports nothing more.
    pub(crate) fn drop_entries(&self) {
        self.eq.drop_entries_of_endpoint_and_settle_accepts(self.origin);
    }

    pub(crate) fn eq(&self) -> &EqShared {
        &self.eq
    }

    pub(crate) fn waiter(&self) -> Option<&Waiter> {
        self.eq.waiter()
    }

    /// Reports an event. The caller has the endpoint locked. So this function drops nothing whose
    /// destructor takes a lock.
    pub(crate) fn report(&self, event: engine::ConnectionReport) {
        let endpoint = if mutated!("fi_eq/fid-of-event") { 0 } else { self.object };
        let (outcome, pending_accept) = match event {
            engine::ConnectionReport::Requested(request) => {
                let ReportedEndpoint::PassiveEndpoint(listener) = &self.subject else { return };
                // A passive endpoint exists as long as it listens.
                let Some(listener) = listener.upgrade() else { return };
                let request = ConnectionRequest::new(listener, request, endpoint);
                (Ok(ConnectionEvent::Request(request)), None)
            }
            // The application gets no event when a requester is gone. If the application has read the
            // request and accepts the request, the application gets an error.
            engine::ConnectionReport::Withdrawn(request) => {
                return self.eq.withdraw_request(self.origin, request);
            }
            engine::ConnectionReport::Connected { .. } if mutated!("fi_eq/connection-events") => {
                (Ok(ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed }), None)
            }
            engine::ConnectionReport::Connected { data } => {
                let is_unnamed = mutated!("fi_cm/connected-names-accepting-endpoint");
                let endpoint = if is_unnamed { 0 } else { endpoint };
                (Ok(ConnectionEvent::Connected { endpoint, data }), None)
            }
            engine::ConnectionReport::Confirmed => {
                return self.eq.defer_settling_accept(self.take_unsettled_accept());
            }
            engine::ConnectionReport::Failed(error) => {
                (Err(self.to_event_error(error)), self.take_unsettled_accept())
            }
            engine::ConnectionReport::Shutdown(end) => {
                (Ok(ConnectionEvent::Shutdown { endpoint, end }), self.take_unsettled_accept())
            }
        };
        self.eq.report(outcome.map(Event::Connection), self.origin, pending_accept);
    }

    fn to_event_error(&self, error: ConnectionError) -> EventError {
        let is_other = mutated!("fi_cm/rejected-request-is-error");
        let errno = if is_other { Errno::EOTHER } else { error.errno() };
        let (prov_errno, err_data) = match error {
            ConnectionError::Rejected { .. } if mutated!("fi_eq/eq-err-data") => (errno.raw(), Vec::new()),
            ConnectionError::Rejected { data } => (errno.raw(), data.into_vec()),
            ConnectionError::Link(error) => (prov_errno(&OperationError::Link(error)), Vec::new()),
            _ => (errno.raw(), Vec::new()),
        };
        let (object, peer) = (self.object, *self.peer.lock());
        EventError { object, context: 0, data: 0, errno, prov_errno, err_data, peer }
    }
}
