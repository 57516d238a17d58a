//! Requests for connections, of this side and of peers.

use homespun::limits::CONNECTION_DATA_MAX_BYTES;
use homespun::{Address, mutated};

use crate::connection::Connection;
use crate::connection_config::ConnectionConfig;
use crate::error::{Error, Invalid};
use crate::memory_region::LocalSlice;
use crate::peer::Peer;
use crate::queue_pair::QueuePair;

/// The longest private data of a connection, in bytes.
pub const PRIVATE_DATA_MAX_BYTES: usize = CONNECTION_DATA_MAX_BYTES;

/// A request for a connection: of this side (`rpma_conn_req_new(3)`), or of a peer
/// ([`Endpoint::next_connection_request`](crate::Endpoint::next_connection_request)).
///
/// Receives can be posted before the connection is made, so that none of the peer's messages waits. Dropping
/// the request of a peer rejects it (`rpma_conn_req_delete(3)`).
#[derive(Debug)]
pub struct ConnectionRequest {
    queue_pair: QueuePair,
    origin: Origin,
    /// The private data of the peer, if it has asked. The connection takes it over, so it stays at its
    /// address.
    private_data: Option<Box<[u8]>>,
}

#[derive(Debug)]
enum Origin {
    /// This side asks the listener at this address.
    Outgoing(Address),
    /// A peer asks this side. Dropping the request rejects it.
    Incoming { _request: homespun::ConnectionRequest },
}

impl ConnectionRequest {
    /// Prepares a request to the endpoint that listens at an address, a numeric one or a name, and a port, a
    /// number or the name of a service. Nothing is sent before [`connect`](Self::connect). Without a
    /// configuration, the default one applies.
    ///
    /// # Errors
    ///
    /// - [`Invalid::SharedChannel`] for a configuration that contradicts itself.
    /// - [`Error::Fabric`] for an unknown name or service, for queues of more than a million operations, and
    ///   if the system has too few descriptors or too little memory.
    pub fn new(
        peer: &Peer,
        address: &str,
        port: impl ToString,
        config: Option<&ConnectionConfig>,
    ) -> Result<ConnectionRequest, Error> {
        let info = peer.fabric().info(&peer.hints().node(address).service(port))?;
        let to = info.dest_addr.expect("an info for a node has its address");
        let queue_pair =
            QueuePair::open(peer, config.unwrap_or(&ConnectionConfig::default()), |configured| {
                peer.domain().endpoint(&configured(info))
            })?;
        Ok(ConnectionRequest { queue_pair, origin: Origin::Outgoing(to), private_data: None })
    }

    /// Returns the request of a peer.
    pub(crate) fn incoming(
        peer: &Peer,
        request: homespun::ConnectionRequest,
        config: Option<&ConnectionConfig>,
    ) -> Result<ConnectionRequest, Error> {
        let queue_pair =
            QueuePair::open(peer, config.unwrap_or(&ConnectionConfig::default()), |configured| {
                peer.domain().endpoint_for_request(&configured(request.info()), &request)
            })?;
        let private_data = Some(request.data().into());
        Ok(ConnectionRequest { queue_pair, origin: Origin::Incoming { _request: request }, private_data })
    }

    /// Returns the private data that the peer has sent with its request:
    /// `rpma_conn_req_get_private_data(3)`. Empty for a request of this side.
    pub fn private_data(&self) -> &[u8] {
        self.private_data.as_deref().unwrap_or_default()
    }

    /// Posts a receive into `dst`, as [`Connection::recv`] does: `rpma_conn_req_recv(3)`.
    ///
    /// # Errors
    ///
    /// As [`Connection::recv`]. Also [`Error::Fabric`] if the system has too few descriptors or too little
    /// memory.
    pub fn recv(&self, dst: LocalSlice<'_>, op_context: u64) -> Result<(), Error> {
        self.queue_pair.enable()?;
        let op_context =
            if mutated!("rpma_cq_get_completion/context-of-early-receive") { 0 } else { op_context };
        self.queue_pair.recv(dst, op_context)
    }

    /// Asks for the connection, or accepts it: `rpma_conn_req_connect(3)`. The peer gets `private_data` with
    /// its request, or with [`ConnectionEvent::Established`](crate::ConnectionEvent::Established). The result
    /// is the first event of the connection.
    ///
    /// The first connection of a peer starts its thread.
    ///
    /// # Errors
    ///
    /// The request is gone after an error; that of a peer is rejected.
    ///
    /// - [`Invalid::PrivateData`] for more than [`PRIVATE_DATA_MAX_BYTES`].
    /// - [`Error::Fabric`] if the system has too few descriptors or too little memory.
    pub fn connect(self, private_data: &[u8]) -> Result<Connection, Error> {
        let (len_bytes, max_bytes) = (private_data.len(), PRIVATE_DATA_MAX_BYTES);
        if len_bytes > max_bytes {
            return Err(Invalid::PrivateData { len_bytes, max_bytes }.into());
        }
        self.queue_pair.enable()?;
        let endpoint = self.queue_pair.endpoint();
        match self.origin {
            Origin::Outgoing(to) => endpoint.connect(to, private_data)?,
            // The endpoint keeps the request until it has been accepted.
            Origin::Incoming { .. } => endpoint.accept(private_data)?,
        }
        Ok(Connection::new(self.queue_pair, self.private_data))
    }
}
