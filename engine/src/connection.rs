//! Connections: roles, requests and events, `fi_cm(3)`.

use std::fmt;

use crate::address::Address;
use crate::errno::Errno;
use crate::transport::LinkError;

/// Which peers an endpoint talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndpointRole {
    /// Any peer, without a connection (`FI_EP_RDM`).
    #[default]
    Unconnected,
    /// No peer: the endpoint only receives requests for connections. Such an endpoint is called
    /// passive.
    Passive,
    /// One peer, with which the endpoint is connected (`FI_EP_MSG`).
    Connected,
}

/// The id of a connection request at the passive endpoint that received it. Ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(crate) u64);

/// A request for a connection, as a passive endpoint receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The id of the request at the passive endpoint.
    pub id: RequestId,
    /// The endpoint that asks for a connection.
    pub from: Requester,
    /// The data of the requester's application.
    pub data: Box<[u8]>,
}

/// An endpoint that has asked for a connection: what [`Engine::accept`](crate::Engine::accept) needs to know
/// of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    /// The requester's address.
    pub address: Address,
    /// The requester's instance number, by which it differs from later endpoints at its address.
    pub instance: u64,
    /// The random number that the requester has chosen for its request.
    pub number: u64,
}

/// An event of a connection, or of an attempt to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionReport {
    /// A requester asks a passive endpoint for a connection (`FI_CONNREQ`).
    Requested(Request),
    /// The requester was lost before the application began to accept the request. The application
    /// cannot read the request any more.
    Withdrawn(RequestId),
    /// The endpoint is connected (`FI_CONNECTED`). The acceptor gets this event before the
    /// requester does.
    Connected {
        /// The data that the acceptor passed to [`Engine::accept`](crate::Engine::accept). Empty at
        /// the acceptor.
        data: Box<[u8]>,
    },
    /// The requester has confirmed the connection. The acceptor's endpoint now
    /// [ends](crate::Engine::end_accepted_request) the request. The application does not see this
    /// event.
    Confirmed,
    /// The attempt to connect has failed. If this endpoint was accepting a request, the engine's
    /// caller now [ends](crate::Engine::end_accepted_request) the request.
    Failed(ConnectionError),
    /// The connection has ended (`FI_SHUTDOWN`): one side has shut it down, or the peer was lost.
    /// If this endpoint had accepted a request, the engine's caller now
    /// [ends](crate::Engine::end_accepted_request) the request.
    Shutdown(ConnectionEnd),
}

/// How a connection has ended.
///
/// Over every transport the end is [`Closed`](Self::Closed) only if one side has said so. The death of the
/// peer's process is [`Lost`](Self::Lost), although the peer's kernel then closes its sockets as if in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// In order. The peer has shut the connection down, or has closed its endpoint; every message whose send
    /// had completed has arrived. Sends that the shutdown cancelled may be missing. Or this side has shut the
    /// connection down, and the link has ended since.
    Closed,
    /// The link ended without a shutdown from the peer. Messages that the peer has sent may be missing. The
    /// peer's process was killed or has exited without closing its endpoint, the link broke, or the peer has
    /// violated the protocol. The peer's shutdown is also missing if it has cut off a long payload in the
    /// middle: after a part of a frame the peer can send no shutdown.
    Lost(
        /// How the link has ended. The same cause may end a link in several ways. For example, the death of
        /// a process over TCP is [`LinkError::Closed`], or ECONNRESET if the process left something unread.
        LinkError,
    ),
    /// This side ended the connection. An operation of this endpoint has failed, and the endpoint's
    /// connection [ends](crate::Engine::end_connection_on_failure) with the first failure. The peer's
    /// connection is [`Lost`](Self::Lost).
    OperationFailed,
}

impl ConnectionEnd {
    /// Whether the connection has ended in order.
    pub fn is_closed(&self) -> bool {
        matches!(self, ConnectionEnd::Closed)
    }
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionEnd::Closed => f.write_str("the connection was closed"),
            ConnectionEnd::Lost(error) => write!(f, "the connection was lost: {error}"),
            ConnectionEnd::OperationFailed => f.write_str("the connection ended with a failed operation"),
        }
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The peer, or its application, has rejected the connection.
    #[error("the connection was rejected")]
    Rejected {
        /// The data of the peer's application.
        data: Box<[u8]>,
    },
    /// The link to the address ended without an answer. The passive endpoint has closed, or another program
    /// at the address has ended the link.
    #[error("no endpoint listens")]
    NotListening,
    /// The requester was lost, or has given up, before its request was accepted.
    #[error("the requester is gone")]
    RequesterGone,
    /// The request was neither accepted nor rejected in the time that the requester allows. The peer may not
    /// have answered at all.
    #[error("the request was not answered in time")]
    TimedOut,
    /// The peer cannot be reached, or was lost before the connection was made.
    #[error("{0}")]
    Link(#[from] LinkError),
}

impl ConnectionError {
    /// Returns the positive `err` of the error event.
    pub fn errno(&self) -> Errno {
        match self {
            ConnectionError::Rejected { .. } | ConnectionError::NotListening => Errno::ECONNREFUSED,
            ConnectionError::RequesterGone => Errno::ECONNABORTED,
            ConnectionError::TimedOut => Errno::ETIMEDOUT,
            ConnectionError::Link(error) => error.errno(),
        }
    }
}
