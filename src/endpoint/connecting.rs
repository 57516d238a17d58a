//! Connections of endpoints: `fi_cm(3)`.

use std::sync::Arc;

use homespun_engine::address::Address;
use homespun_engine::connection::EndpointRole;
use homespun_engine::error::{Error, Misuse, ObjectState, Unsupported};

use super::{Endpoint, EndpointShared};
use crate::av::check_peer;
use crate::connection::{ConnectionRequest, Listener, check_data_len};
use crate::endpoint_pump::EndpointPump;
use crate::eq::{EventQueue, ReportedEndpoint, Reporter};
use crate::info::EndpointType;
use crate::random;

/// How an endpoint for connections was opened.
pub(crate) enum EndpointOrigin {
    /// From an info alone: it asks for a connection, from an address of its own.
    Alone,
    /// For a request, which it may accept.
    Request(ConnectionRequest),
    /// From a passive endpoint, whose address it has taken over.
    TakenOver(Arc<Listener>),
}

impl Endpoint {
    /// Asks the passive endpoint at `to` for a connection: `fi_connect`. Enables the endpoint if
    /// need be. Its event queue reports the result ([`ConnectionEvent`](crate::ConnectionEvent)).
    /// An endpoint can ask only once.
    ///
    /// Receives may be posted before; sends only when the endpoint is connected.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] for an endpoint of another type than [`EndpointType::Msg`];
    /// [`Misuse::State`] if it has asked before, or was opened to accept a request;
    /// [`Misuse::Invalid`] for an address of another format, a wildcard, one without a port, or
    /// more data than [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES); and
    /// as [`enable`](Self::enable).
    pub fn connect(&self, to: Address, data: &[u8]) -> Result<(), Error> {
        self.shared.check_connection_oriented()?;
        if let EndpointOrigin::Request(_) = self.shared.origin {
            return Err(Misuse::State(ObjectState::OpenedForRequest).into());
        }
        check_peer(to, self.shared.domain.format())?;
        let number = random::draw_u64()?;
        self.enable()?;
        self.shared.begin_connection(to, |pump| pump.connect(to, number, data))
    }

    /// Accepts the request that the endpoint was opened for: `fi_accept`. Enables the endpoint if
    /// need be. Its event queue tells when it is connected, or that the requester is gone; the
    /// other side gets the data with its own event.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] for an endpoint of another type than [`EndpointType::Msg`];
    /// [`Misuse::State`] if it was not opened for a request, or has accepted it;
    /// [`Misuse::Invalid`] for more data than
    /// [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES); and as
    /// [`enable`](Self::enable).
    pub fn accept(&self, data: &[u8]) -> Result<(), Error> {
        self.shared.check_connection_oriented()?;
        let EndpointOrigin::Request(request) = &self.shared.origin else {
            return Err(Misuse::State(ObjectState::NotOpenedForRequest).into());
        };
        check_data_len(data)?;
        self.enable()?;
        let reporter = self.shared.reporter.get().ok_or(Misuse::NoEventQueue)?;
        reporter.settle_later(request.begin_accept()?);
        self.shared.begin_connection(request.from().address, |pump| pump.accept(request.from(), data))
    }

    /// Ends the connection: `fi_shutdown`. Completed messages still reach the peer, which then gets
    /// [`ConnectionEvent::Shutdown`](crate::ConnectionEvent::Shutdown); operations that have not ended are
    /// cancelled, and are reported when this returns. This side gets the same event when the peer knows, or
    /// has ended the connection too. Has no effect if the connection has ended already.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there was no connection yet.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.shared.check_connection_oriented()?;
        match self.shared.enabled_pump() {
            Ok((pump, _)) => pump.shut_down(),
            Err(_) => Err(Misuse::NotConnected.into()),
        }
    }

    /// The address of the other end: `fi_getpeer`. That of the passive endpoint that was asked, or
    /// of the endpoint that has asked.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if no connection was asked for or accepted.
    pub fn peer(&self) -> Result<Address, Error> {
        (*self.shared.peer.lock()).ok_or_else(|| Misuse::NotConnected.into())
    }
}

impl EndpointShared {
    /// Whether it is an endpoint for connections.
    pub(super) fn is_connection_oriented(&self) -> bool {
        self.info.ep.ep_type == Some(EndpointType::Msg)
    }

    pub(super) fn role(&self) -> EndpointRole {
        if self.is_connection_oriented() { EndpointRole::Connected } else { EndpointRole::Unconnected }
    }

    fn check_connection_oriented(&self) -> Result<(), Error> {
        if self.is_connection_oriented() {
            Ok(())
        } else {
            Err(Misuse::NotSupported(Unsupported::Connections).into())
        }
    }

    /// Makes or accepts a connection to this peer, whose address the application can look up before
    /// the connection's event.
    fn begin_connection(
        &self,
        peer: Address,
        connect: impl FnOnce(&dyn EndpointPump) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (pump, _) = self.enabled_pump()?;
        if let Some(reporter) = self.reporter.get() {
            reporter.set_peer(peer);
        }
        let before = self.peer.lock().replace(peer);
        connect(pump).inspect_err(|_| *self.peer.lock() = before)
    }

    /// The reporter of events, if the endpoint has any to report.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoEventQueue`] if there is, and no queue is bound.
    pub(super) fn new_reporter(
        &self,
        eq: Option<&(EventQueue, u64)>,
    ) -> Result<Option<Arc<Reporter>>, Error> {
        if !self.is_connection_oriented() {
            return Ok(None);
        }
        let (eq, object) = eq.ok_or(Misuse::NoEventQueue)?;
        let reporter = || Arc::new(Reporter::new(eq, *object, ReportedEndpoint::Endpoint));
        Ok(Some(self.reporter.get_or_init(reporter).clone()))
    }
}

impl Drop for EndpointOrigin {
    fn drop(&mut self) {
        if let EndpointOrigin::Request(request) = self {
            request.unmark_taken();
        }
    }
}
