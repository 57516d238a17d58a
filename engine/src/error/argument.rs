//! The arguments that calls refuse, but for memory.

use super::Unmet;
use super::fi_names::FiFormat;
use crate::address::AddressFormat;
use crate::limits::CONNECTION_DATA_MAX_BYTES;

/// An argument that a call refuses: EINVAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Argument {
    /// An info or attributes that ask for what the domain does not have.
    #[error("an info that asks for {0}")]
    NotOffered(Unmet),
    /// An address of another format than the domain or the object is for.
    #[error("an address of another format than {}", FiFormat(*accepted))]
    AddressFormat {
        /// The format that is accepted.
        accepted: AddressFormat,
    },
    /// An address of every interface (`0.0.0.0` or `::`) as that of a peer.
    #[error("a wildcard address, which names no peer")]
    WildcardPeer,
    /// An address with the port 0 as that of a peer.
    #[error("an address without a port, which names no peer")]
    PeerWithoutPort,
    /// The successors of the first node and service go beyond the last one.
    #[error("a range of nodes or services beyond what can be counted to")]
    AddressRange,
    /// `FI_SOURCE` says that a node or service is that of the source, and there is none.
    #[error("FI_SOURCE without a node or a service")]
    UnnamedSource,
    /// More data with a request for a connection, or with its answer, than may travel with it.
    #[error("{len_bytes} bytes of data with a connection, which may have {CONNECTION_DATA_MAX_BYTES}")]
    ConnectionData {
        /// The length of the data.
        len_bytes: usize,
    },
    /// An endpoint type without connections where only `FI_EP_MSG` has them.
    #[error("an endpoint type other than FI_EP_MSG, which alone has connections")]
    Unconnected,
    /// A connected endpoint cannot be enabled before it has a peer.
    #[error("an info of connected endpoints (FI_EP_MSG), which need a peer before they are enabled")]
    PeerNeeded,
    /// An info of another domain than the one that the object is opened in.
    #[error("an info of another domain")]
    InfoOfOtherDomain,
    /// A request to a passive endpoint of another domain.
    #[error("a request for a connection in another domain")]
    RequestOfOtherDomain,
    /// A passive endpoint of another domain, or of another address format.
    #[error("a passive endpoint of another domain or address format")]
    PassiveOfOtherDomain,
    /// A passive endpoint that may keep no request waiting.
    #[error("a backlog of 0 requests")]
    EmptyBacklog,
    /// A connected endpoint in a domain without locks: its event queue belongs to no domain.
    #[error("endpoints for connections in a domain without locks")]
    UnlockedConnections,
    /// A domain without locks that several threads may use.
    #[error("a domain without locks for another threading level than FI_THREAD_DOMAIN")]
    UnlockedThreading,
    /// A domain without locks whose progress another thread makes.
    #[error("a domain without locks with automatic progress")]
    UnlockedProgress,
    /// A shared receive context for an endpoint that was not opened with `FI_SHARED_CONTEXT`.
    #[error("a shared receive context for an endpoint that was opened with its own")]
    OwnReceiveContext,
    /// A shared transmit context for an endpoint that was not opened with `FI_SHARED_CONTEXT`.
    #[error("a shared transmit context for an endpoint that was opened with its own")]
    OwnTransmitContext,
    /// The endpoint has receive capabilities that the shared context lacks.
    #[error("an endpoint with receive capabilities that the receive context lacks")]
    ReceiveContextCaps,
    /// The endpoint has transmit capabilities that the shared context lacks.
    #[error("an endpoint with transmit capabilities that the transmit context lacks")]
    TransmitContextCaps,
    /// All endpoints that share a receive context have one address vector.
    #[error("another address vector than that of the other endpoints of the receive context")]
    OtherAddressVector,
    /// A completion queue with room for more entries than one may have.
    #[error("a completion queue of more than {max_entries} entries")]
    QueueDepth {
        /// How many entries a queue may have.
        max_entries: usize,
    },
    /// A wait on a queue or a counter that was opened with `FI_WAIT_NONE`.
    #[error("a wait on an object that was opened without a wait object")]
    NoWaitObject,
    /// A queue or a counter with `FI_WAIT_SET`, and without the set.
    #[error("FI_WAIT_SET without the wait set")]
    NoWaitSet,
    /// A wait object that a wait set cannot have.
    #[error("a wait set with FI_WAIT_NONE or FI_WAIT_SET as its wait object")]
    WaitSetObject,
    /// The poll set has this member.
    #[error("a queue or a counter that the poll set has already")]
    PollSetMember,
    /// A claim with the context of a message that is claimed.
    #[error("a context with which a message is claimed already")]
    ClaimedContext,
    /// `FI_DISCARD` goes with a peek or with a claim.
    #[error("FI_DISCARD with both FI_PEEK and FI_CLAIM")]
    DiscardedClaim,
    /// A deferred change of a counter is no operation whose completion could be counted.
    #[error("a completion counter for a deferred change of a counter")]
    CountedChange,
}
