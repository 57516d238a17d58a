//! Connections of endpoints: `fi_cm(3)`.

use std::sync::Arc;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::error::{Error, Misuse, ObjectState, Unsupported};

use super::{Endpoint, EndpointShared};
use crate::av::check_peer_address;
use crate::connection::{ConnectionRequest, Listener, check_data_len};
use crate::endpoint_pump::EndpointPump;
use crate::eq::{EventQueue, ReportedEndpoint, Reporter};
use crate::mutated;
use crate::random;

/// How an endpoint was opened.
pub(crate) enum EndpointOrigin {
    /// Opened from an info alone: the endpoint has an address of its own, and can ask for a connection.
    Alone,
    /// Opened for a request, which the endpoint can accept.
    Request(ConnectionRequest),
    /// Opened from a passive endpoint: the endpoint has taken over the passive endpoint's address.
    TakenOver(Arc<Listener>),
}

impl Endpoint {
    /// Asks the passive endpoint at `to` for a connection: `fi_connect`. Enables the endpoint if necessary.
    /// The event queue reports the result ([`ConnectionEvent`](crate::ConnectionEvent)). An endpoint can
    /// ask only once.
    ///
    /// The application may post receives before this call, but sends only once the endpoint is connected.
    ///
    /// If the request is not answered within the [`connect_timeout`](Self::connect_timeout), the attempt
    /// fails.
    ///
    /// # Errors
    ///
    /// - [`Misuse::NotSupported`] for an endpoint of another type than
    ///   [`Msg`](crate::info::EndpointType::Msg).
    /// - [`Misuse::State`] if the endpoint has asked before, or was opened to accept a request.
    /// - [`Misuse::Invalid`] for an address of another format, a wildcard, an address without a port, or
    ///   more data than [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
    /// - The errors of [`enable`](Self::enable).
    pub fn connect(&self, to: Address, data: &[u8]) -> Result<(), Error> {
        self.shared.check_connection_oriented()?;
        if let EndpointOrigin::Request(_) = self.shared.origin {
            return Err(Misuse::State(ObjectState::OpenedForRequest).into());
        }
        check_peer_address(to, self.shared.domain.format())?;
        let number = random::draw_u64(self.shared.domain.clock())?;
        if !mutated!("fi_endpoint/connect-enables") {
            self.enable()?;
        }
        let timeout = self.connect_timeout();
        self.shared.begin_connection(to, |pump| pump.connect(to, number, data, timeout))
    }

    /// Returns how long a [`connect`](Self::connect) waits, at most, until its request is accepted or
    /// rejected. `None`, if there is no limit. The default is that of the parameter
    /// [`CONNECT_TIMEOUT_MS`](crate::params::CONNECT_TIMEOUT_MS), normally no limit: a request waits as long
    /// as the application that was asked keeps it.
    pub fn connect_timeout(&self) -> Option<Duration> {
        *self.shared.connect_timeout.lock()
    }

    /// Sets the [`connect_timeout`](Self::connect_timeout), in whole milliseconds. The limit of a `connect`
    /// that was called before does not change.
    ///
    /// When the time is over, the attempt fails with ETIMEDOUT, also if the peer has not answered at all.
    /// The failure may come 0.1 s late ([`TIMEOUT_GRACE_MS`](crate::limits::TIMEOUT_GRACE_MS)), so that an
    /// application that makes calls rarely can read an answer that has arrived in time. As all events of
    /// connections, it needs a thread that reads a queue, or automatic progress; a thread that sleeps on a
    /// queue wakes for it. The request leaves the passive endpoint: an application that has not read it does
    /// not see it any more, and one that accepts it gets ECONNABORTED. An acceptor whose answer was on its
    /// way may connect, and its connection is lost at once.
    pub fn set_connect_timeout(&self, timeout: Option<Duration>) {
        *self.shared.connect_timeout.lock() = timeout;
    }

    /// Accepts the request for which the endpoint was opened: `fi_accept`. Enables the endpoint if
    /// necessary. The event queue reports that the endpoint is connected, or that the requester is gone.
    /// The requester's own event carries `data`.
    ///
    /// # Errors
    ///
    /// - [`Misuse::NotSupported`] for an endpoint of another type than
    ///   [`Msg`](crate::info::EndpointType::Msg).
    /// - [`Misuse::State`] if the endpoint was not opened for a request, or if the request was accepted or
    ///   rejected before.
    /// - [`Misuse::Invalid`] for more data than
    ///   [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
    /// - The errors of [`enable`](Self::enable).
    pub fn accept(&self, data: &[u8]) -> Result<(), Error> {
        self.shared.check_connection_oriented()?;
        let EndpointOrigin::Request(request) = &self.shared.origin else {
            if mutated!("fi_cm/accept-needs-handle") {
                return Ok(());
            }
            return Err(Misuse::State(ObjectState::NotOpenedForRequest).into());
        };
        check_data_len(data)?;
        self.enable()?;
        let reporter = self.shared.reporter.get().ok_or(Misuse::NoEventQueue)?;
        let accept = request.begin_accept()?;
        let is_requester_waiting = accept.is_requester_waiting();
        reporter.keep_accept_until_confirmed(accept);
        self.shared.begin_connection(request.requester().address, |pump| match is_requester_waiting {
            true => pump.accept(request.requester(), data),
            false => pump.accept_withdrawn(),
        })
    }

    /// Ends the connection: `fi_shutdown`. Outstanding operations are cancelled, and their ends are
    /// reported before the call returns. Messages that have completed still reach the peer. Then the peer
    /// gets [`ConnectionEvent::Shutdown`](crate::ConnectionEvent::Shutdown). This endpoint gets the same
    /// event once the peer has learnt of the end, or if the peer ends the connection at the same time. If
    /// the connection has ended already, the call has no effect.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if the endpoint has not been connected yet. [`Misuse::NotSupported`] for an
    /// endpoint of another type than [`Msg`](crate::info::EndpointType::Msg).
    pub fn shutdown(&self) -> Result<(), Error> {
        self.shared.check_connection_oriented()?;
        match self.shared.enabled_pump() {
            Ok((pump, _)) => {
                pump.shut_down()?;
                if mutated!("fi_cm/shutdown-keeps-completions") {
                    self.shared.setup.lock().bound_cqs().for_each(|cq| while let Ok(Some(_)) = cq.read() {});
                }
                Ok(())
            }
            Err(_) => Err(Misuse::NotConnected.into()),
        }
    }

    /// Returns the address of the other end: `fi_getpeer`. If this endpoint has asked for the connection,
    /// the address is that of the passive endpoint. If this endpoint has accepted a request, the address is
    /// the requester's.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if the endpoint has neither asked for a connection nor accepted one.
    pub fn peer(&self) -> Result<Address, Error> {
        let peer = self.shared.peer.lock().filter(|_| !mutated!("fi_cm/getpeer-after-connected"));
        peer.ok_or_else(|| Misuse::NotConnected.into())
    }
}

impl EndpointShared {
    /// Whether this is an endpoint for connections.
    pub(super) fn is_connection_oriented(&self) -> bool {
        self.info.endpoint_type().is_connected()
    }

    pub(super) fn check_connection_oriented(&self) -> Result<(), Error> {
        if self.is_connection_oriented() {
            Ok(())
        } else {
            Err(Misuse::NotSupported(Unsupported::Connections).into())
        }
    }

    /// Calls `connect`, which asks `peer` for a connection or accepts the request of `peer`. If `connect`
    /// succeeds, [`Endpoint::peer`] returns the address of `peer` from now on, even before the connection
    /// is made.
    fn begin_connection(
        &self,
        peer: Address,
        connect: impl FnOnce(&dyn EndpointPump) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (pump, _) = self.enabled_pump()?;
        // Attempts of several threads come one after another.
        let _attempt = self.connecting.lock();
        if self.peer.lock().is_some() {
            // The attempt fails. Meanwhile another thread may report an event of the earlier attempt, and
            // that event names the earlier peer.
            return connect(pump);
        }
        *self.peer.lock() = Some(peer);
        self.reporter.get().into_iter().for_each(|reporter| reporter.set_peer(peer));
        connect(pump).inspect_err(|_| *self.peer.lock() = None)
    }

    /// Returns the [`Reporter`] of the endpoint's events, or `None` for an unconnected endpoint. The first
    /// call creates the reporter.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoEventQueue`] if a connected endpoint has no event queue.
    pub(super) fn init_reporter_if_connection_oriented(
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
            request.end_reservation();
        }
    }
}

#[cfg(test)]
mod tests;
