//! Connections: roles, requests and events, `fi_cm(3)`.

use crate::address::Address;
use crate::errno::Errno;
use crate::transport::LinkError;

/// Which peers an endpoint talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointRole {
    /// Any peer, without a connection (`FI_EP_RDM`).
    #[default]
    Unconnected,
    /// None: it only receives requests for connections (a passive endpoint).
    Passive,
    /// The one endpoint that it is connected with (`FI_EP_MSG`).
    Connected,
}

/// Names a request for a connection at the passive endpoint that was asked. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(crate) u64);

/// A request for a connection, as a passive endpoint receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What the passive endpoint calls it.
    pub id: RequestId,
    /// The endpoint that asks.
    pub from: Requester,
    /// What the requester's application has to say.
    pub data: Box<[u8]>,
}

/// An endpoint that has asked for a connection: all that accepting it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    /// Where it is.
    pub address: Address,
    /// Distinguishes it from later endpoints at its address.
    pub instance: u64,
    /// The number that it has drawn for its request.
    pub number: u64,
}

/// An event of a connection, or of an attempt to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionReport {
    /// A requester asks a passive endpoint for a connection (`FI_CONNREQ`).
    Requested(Request),
    /// The requester is gone before the application began to accept the request. If the application
    /// has not read the request yet, it never will.
    Withdrawn(RequestId),
    /// The endpoint is connected (`FI_CONNECTED`). The requester's event carries the acceptor's
    /// data. The acceptor's event always comes first.
    Connected {
        /// The data of [`Engine::accept`](crate::Engine::accept).
        data: Box<[u8]>,
    },
    /// The requester knows that the endpoint has accepted its request, which is
    /// [settled](crate::Engine::settle_request) with that. Of no concern to the application.
    Confirmed,
    /// The endpoint will not be connected. This settles a request that it has accepted.
    Failed(ConnectionError),
    /// The connection has ended (`FI_SHUTDOWN`): the peer has ended it, or is gone. This settles a
    /// request that the endpoint has accepted.
    Shutdown,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The peer's application, or the peer, does not want it.
    #[error("the connection was rejected")]
    Rejected {
        /// What the application has to say.
        data: Box<[u8]>,
    },
    /// No passive endpoint listens at the address, or no longer.
    #[error("no endpoint listens")]
    NotListening,
    /// The requester is gone.
    #[error("the requester is gone")]
    RequesterGone,
    /// The peer cannot be reached, or was lost before the connection was made.
    #[error("{0}")]
    Link(#[from] LinkError),
}

impl ConnectionError {
    /// The positive `err` of the error event.
    pub fn errno(&self) -> Errno {
        match self {
            ConnectionError::Rejected { .. } | ConnectionError::NotListening => Errno::ECONNREFUSED,
            ConnectionError::RequesterGone => Errno::ECONNABORTED,
            ConnectionError::Link(error) => error.errno(),
        }
    }
}
