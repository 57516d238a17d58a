//! Endpoints that listen for connections.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use homespun::eq::Event;
use homespun::{ConnectionEvent, PassiveEndpoint};
use parking_lot::Mutex;

use crate::connection_config::ConnectionConfig;
use crate::connection_request::ConnectionRequest;
use crate::error::Error;
use crate::events::Events;
use crate::peer::Peer;

/// Listens for connections: `rpma_ep_listen(3)`. Dropping it ends that (`rpma_ep_shutdown(3)`), and rejects
/// the requests that were not read.
///
/// ```
/// use homespun_rpma::{ConnectionEvent, ConnectionRequest, Endpoint, Peer};
///
/// let peer = Peer::new()?;
/// // Port 0 lets the system choose one.
/// let endpoint = Endpoint::listen(&peer, "127.0.0.1", 0)?;
///
/// // A client, here in the same thread.
/// let port = endpoint.address().port();
/// let client = ConnectionRequest::new(&peer, "127.0.0.1", port, None)?.connect(b"may I?")?;
///
/// let request = endpoint.next_connection_request(None)?;
/// assert_eq!(request.private_data(), b"may I?");
/// let server = request.connect(b"you may")?;
/// assert_eq!(server.next_event()?, ConnectionEvent::Established);
/// assert_eq!(client.next_event()?, ConnectionEvent::Established);
/// assert_eq!(client.private_data(), b"you may");
/// # Ok::<(), homespun_rpma::Error>(())
/// ```
#[derive(Debug)]
pub struct Endpoint {
    peer: Peer,
    address: SocketAddr,
    /// Listens until it is dropped, which comes before the queue of its events is closed.
    _passive: PassiveEndpoint,
    events: Events,
    /// Requests that [`poll_requests`](Self::poll_requests) has read.
    arrived: Mutex<VecDeque<homespun::ConnectionRequest>>,
}

impl Endpoint {
    /// Listens at an address of this host, a numeric one or a name, and a port, a number or the name of a
    /// service.
    ///
    /// # Errors
    ///
    /// [`Error::Fabric`] for an unknown name or service, an address of another format than the peer's, one
    /// that is in use or not of this host, and if the system has too few descriptors or too little memory.
    pub fn listen(peer: &Peer, address: &str, port: impl ToString) -> Result<Endpoint, Error> {
        let info = peer.fabric().info(&peer.hints().node(address).service(port).source())?;
        let events = Events::new(peer)?;
        let passive = peer.fabric().passive_endpoint(&info)?;
        passive.bind_eq(events.queue(), 0)?;
        passive.listen()?;
        let address = passive.name()?.socket_addr();
        let arrived = Mutex::default();
        Ok(Endpoint { peer: peer.clone(), address, _passive: passive, events, arrived })
    }

    /// Returns the address to which peers connect, with the port that the system has chosen if 0 was asked
    /// for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next request for a connection: `rpma_ep_next_conn_req(3)`. Waits for one, unless the
    /// application has set `O_NONBLOCK` on the [descriptor](Self::fd). Without a configuration, the default
    /// one applies.
    ///
    /// The requester may have given up since. Then its request is not returned, or the connection reports
    /// [`ConnectionEvent::Lost`](crate::ConnectionEvent::Lost) or
    /// [`Closed`](crate::ConnectionEvent::Closed).
    ///
    /// # Errors
    ///
    /// - [`Error::NoEvent`] if there is no request, and the call does not wait.
    /// - [`Error::Interrupted`] if a signal handler without `SA_RESTART` has run in this thread.
    /// - [`Invalid::SharedChannel`](crate::Invalid::SharedChannel) for a configuration that contradicts
    ///   itself. The request is then rejected.
    /// - [`Error::Fabric`] if the system has too few descriptors or too little memory. The request is then
    ///   rejected.
    pub fn next_connection_request(
        &self,
        config: Option<&ConnectionConfig>,
    ) -> Result<ConnectionRequest, Error> {
        if let Some(request) = self.arrived.lock().pop_front() {
            return ConnectionRequest::incoming(&self.peer, request, config);
        }
        loop {
            // A listener reports nothing but requests.
            if let Ok(Event::Connection(ConnectionEvent::Request(request))) = self.events.next()? {
                return ConnectionRequest::incoming(&self.peer, request, config);
            }
        }
    }

    /// Reads what has come, without waiting. Returns whether there is a request, which
    /// [`next_connection_request`](Self::next_connection_request) then returns. So a thread that watches the
    /// [descriptor](Self::fd) can tell requests from anything else that makes it readable.
    pub fn poll_requests(&self) -> bool {
        let mut arrived = self.arrived.lock();
        while let Some(event) = self.events.poll() {
            if let Ok(Event::Connection(ConnectionEvent::Request(request))) = event {
                arrived.push_back(request);
            }
        }
        !arrived.is_empty()
    }

    /// Returns a descriptor that is readable when there may be a request: `rpma_ep_get_fd(3)`. It fits
    /// `poll(2)` and `epoll(7)`. The application must not read from it. If it sets `O_NONBLOCK` with
    /// `fcntl(2)`, then [`next_connection_request`](Self::next_connection_request) does not wait.
    ///
    /// A stranger that connects and says nothing makes it readable, too. So a thread that must not block sets
    /// `O_NONBLOCK`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.descriptor()
    }
}
