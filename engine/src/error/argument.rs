//! The arguments that calls refuse, except memory.

use super::Unmet;
use super::fi_names::FiFormat;
use crate::address::AddressFormat;
use crate::limits::CONNECTION_DATA_MAX_BYTES;

/// An argument that a call refuses: EINVAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Argument {
    /// An info or attributes that ask for a feature that the domain lacks.
    #[error("an info that asks for {0}")]
    NotOffered(Unmet),
    /// An address of another format than that of the domain or the object.
    #[error("an address of another format than {}", FiFormat(*accepted))]
    AddressFormat {
        /// The format that is accepted.
        accepted: AddressFormat,
    },
    /// A wildcard address (`0.0.0.0` or `::`) as the address of a peer.
    #[error("a wildcard address, which names no peer")]
    WildcardPeer,
    /// An address with port 0 as the address of a peer.
    #[error("an address without a port, which names no peer")]
    PeerWithoutPort,
    /// A range of nodes or services that runs past the last possible node or service.
    #[error("a range of nodes or services beyond what can be counted to")]
    AddressRange,
    /// `FI_SOURCE` in a call that names neither node nor service.
    #[error("FI_SOURCE without a node or a service")]
    UnnamedSource,
    /// Too much data with a connection request, or with the answer to a request.
    #[error("{len_bytes} bytes of data with a connection, which may have {CONNECTION_DATA_MAX_BYTES}")]
    ConnectionData {
        /// The length of the data.
        len_bytes: usize,
    },
    /// An endpoint type without connections, although the call needs `FI_EP_MSG`.
    #[error("an endpoint type other than FI_EP_MSG, which alone has connections")]
    Unconnected,
    /// An info of connected endpoints (`FI_EP_MSG`), in a call that opens and enables an endpoint at once. A
    /// connected endpoint needs a peer before it is enabled.
    #[error("an info of connected endpoints (FI_EP_MSG), which need a peer before they are enabled")]
    PeerNeeded,
    /// An info of another domain than that in which the object is opened.
    #[error("an info of another domain")]
    InfoOfOtherDomain,
    /// A request to a passive endpoint of another domain.
    #[error("a request for a connection in another domain")]
    RequestOfOtherDomain,
    /// A passive endpoint of another domain, or of another address format.
    #[error("a passive endpoint of another domain or address format")]
    PassiveOfOtherDomain,
    /// A backlog of 0: the passive endpoint could keep no request waiting.
    #[error("a backlog of 0 requests")]
    EmptyBacklog,
    /// A connected endpoint in a domain without locks. Its event queue belongs to no domain, so
    /// other threads may use the endpoint.
    #[error("endpoints for connections in a domain without locks")]
    UnlockedConnections,
    /// A domain without locks whose threading level lets several threads use it.
    #[error("a domain without locks for another threading level than FI_THREAD_DOMAIN")]
    UnlockedThreading,
    /// A domain without locks with automatic progress, which another thread makes.
    #[error("a domain without locks with automatic progress")]
    UnlockedProgress,
    /// A shared receive context for an endpoint that was not opened with `FI_SHARED_CONTEXT`.
    #[error("a shared receive context for an endpoint that was opened with its own")]
    OwnReceiveContext,
    /// An address vector that the other endpoints of the receive context do not use.
    #[error("another address vector than that of the other endpoints of the receive context")]
    OtherAddressVector,
    /// A completion queue with more entries than the limit.
    #[error("a completion queue of more than {max_entries} entries")]
    QueueDepth {
        /// The largest number of entries.
        max_entries: usize,
    },
    /// A wait on a queue or a counter that was opened with `FI_WAIT_NONE`.
    #[error("a wait on an object that was opened without a wait object")]
    NoWaitObject,
    /// A queue or a counter with `FI_WAIT_SET`, but without a wait set.
    #[error("FI_WAIT_SET without the wait set")]
    NoWaitSet,
    /// A wait object that a wait set cannot have: `FI_WAIT_NONE` or `FI_WAIT_SET`.
    #[error("a wait set with FI_WAIT_NONE or FI_WAIT_SET as its wait object")]
    WaitSetObject,
    /// The poll set already has this member.
    #[error("a queue or a counter that the poll set has already")]
    PollSetMember,
    /// A claim with the context of a message that is already claimed.
    #[error("a context with which a message is claimed already")]
    ClaimedContext,
    /// `FI_DISCARD` with both a peek and a claim. It allows only one of them.
    #[error("FI_DISCARD with both FI_PEEK and FI_CLAIM")]
    DiscardedClaim,
    /// A completion counter for a deferred change of a counter. A change of a counter has no
    /// completion.
    #[error("a completion counter for a deferred change of a counter")]
    CountedChange,
}
