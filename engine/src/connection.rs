//! Connections: what endpoints do about them, and what becomes of them, `fi_cm(3)`.

use crate::address::Address;
use crate::errno::Errno;
use crate::transport::LinkError;

/// Whom an endpoint talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointRole {
    /// Everybody, without a connection (`FI_EP_RDM`).
    #[default]
    Unconnected,
    /// Nobody: it hears who asks for a connection (a passive endpoint).
    Passive,
    /// The one endpoint that it is connected with (`FI_EP_MSG`).
    Connected,
}

/// Names a request for a connection at the passive endpoint that was asked. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(crate) u64);

/// A request for a connection, as a passive endpoint hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What the passive endpoint calls it.
    pub id: RequestId,
    /// Who asks.
    pub from: Requester,
    /// What the requester's application has to say.
    pub data: Box<[u8]>,
}

/// An endpoint that has asked for a connection: all that accepting it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    /// Where it is.
    pub address: Address,
    /// Tells it from others that may have its address later.
    pub instance: u64,
    /// The number that it has drawn for its request.
    pub number: u64,
}

/// Something that has happened to a connection, or to one that was to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// Somebody asks a passive endpoint for a connection (`FI_CONNREQ`).
    Requested(Request),
    /// Whoever has made this request is gone before anybody began to accept it. It waits no longer, and if the application has
    /// not heard of it, it need not.
    Withdrawn(RequestId),
    /// The endpoint is connected (`FI_CONNECTED`). At the requester, with what the other application has to say. The one who
    /// accepts is told before the requester can be.
    Connected {
        /// The data of [`Engine::accept`](crate::Engine::accept).
        data: Box<[u8]>,
    },
    /// The requester knows that the endpoint has accepted its request, which is [settled](crate::Engine::settle) with that.
    /// Of no concern to the application.
    Confirmed,
    /// The endpoint will not be connected. This settles a request that it has accepted.
    Failed(ConnectionError),
    /// The connection has ended (`FI_SHUTDOWN`): the peer has ended it, or is gone. This settles a request that the endpoint
    /// has accepted.
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
    /// Nobody is there who could accept it, or no longer.
    #[error("nobody listens")]
    NobodyListens,
    /// Whoever has asked for the connection is not there any more.
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
            ConnectionError::Rejected { .. } | ConnectionError::NobodyListens => Errno::ECONNREFUSED,
            ConnectionError::RequesterGone => Errno::ECONNABORTED,
            ConnectionError::Link(error) => error.errno(),
        }
    }
}
