//! The requirements of an application that no domain meets.

use super::fi_names::{FiCaps, FiFormat};
use crate::address::AddressFormat;
use crate::flags::Caps;
use crate::limits::{DEPTH_MAX_OPS, IOV_LIMIT};

/// A requirement that no domain meets: ENODATA. The error text reads "it needs" and then this text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unmet {
    /// Capabilities that no domain has.
    #[error("{}", FiCaps(*.0))]
    Caps(Caps),
    /// Capabilities that concern sources (`FI_SOURCE` and others), over a connection. A connected
    /// endpoint has only one source.
    #[error("FI_SOURCE, FI_SOURCE_ERR or FI_DIRECTED_RECV over a connection")]
    ConnectionSource,
    /// Reports of unknown sources, without completions that name their sources.
    #[error("FI_SOURCE_ERR without FI_SOURCE")]
    SourceErrAlone,
    /// `FI_RX_CQ_DATA`, without untagged receives for the remote data to take.
    #[error("FI_RX_CQ_DATA without receiving messages (FI_MSG and FI_RECV)")]
    RxCqDataAlone,
    /// Events of peers' accesses, at an endpoint that is no target of accesses.
    #[error("FI_RMA_EVENT without being the target of accesses")]
    RmaEventAlone,
    /// `FI_COMMIT_COMPLETE` without the capability to write to persistent memory.
    #[error("FI_COMMIT_COMPLETE without FI_RMA_PMEM")]
    CommitAlone,
    /// Transmit attributes with more capabilities than the endpoint.
    #[error("transmit capabilities beyond those of the endpoint")]
    TransmitCaps,
    /// Receive attributes with more capabilities than the endpoint.
    #[error("receive capabilities beyond those of the endpoint")]
    ReceiveCaps,
    /// Domain attributes with capabilities that the domain lacks.
    #[error("domain capabilities beyond those of the domain")]
    DomainCaps,
    /// Flags that transmit operations cannot have by default.
    #[error("these default flags of transmit operations")]
    TransmitFlags,
    /// Flags that receives cannot have by default.
    #[error("these default flags of receives")]
    ReceiveFlags,
    /// A message order that libfabric does not define.
    #[error("a message order that is not known")]
    MessageOrder,
    /// An order of transmit completions other than the order of posting.
    #[error("an order of transmit completions other than FI_ORDER_STRICT")]
    TransmitCompletionOrder,
    /// Ordered receive completions. In homespun, receives complete in the order in which they end.
    #[error("ordered receive completions")]
    ReceiveCompletionOrder,
    /// An inject size above the limit.
    #[error("an inject size above {max_bytes} bytes")]
    InjectSize {
        /// The largest inject size.
        max_bytes: usize,
    },
    /// Messages longer than the limit.
    #[error("messages longer than {max_bytes} bytes")]
    MessageSize {
        /// The largest message.
        max_bytes: usize,
    },
    /// More remote completion data than a message can carry.
    #[error("more than {max_bytes} bytes of remote completion data")]
    CompletionDataSize {
        /// The most bytes of remote completion data that a message carries.
        max_bytes: usize,
    },
    /// More error data than the limit.
    #[error("more than {max_bytes} bytes of error data")]
    ErrorDataSize {
        /// The longest error data.
        max_bytes: usize,
    },
    /// A transmit queue deeper than the limit.
    #[error("a transmit queue of more than {DEPTH_MAX_OPS} operations")]
    TransmitDepth,
    /// A receive queue deeper than the limit.
    #[error("a receive queue of more than {DEPTH_MAX_OPS} operations")]
    ReceiveDepth,
    /// Transmit operations with too many segments.
    #[error("more than {IOV_LIMIT} segments in a transmit operation")]
    TransmitSegments,
    /// Receives with too many segments.
    #[error("more than {IOV_LIMIT} segments in a receive")]
    ReceiveSegments,
    /// Accesses to several places of a peer's memory.
    #[error("several remote segments in an operation")]
    RemoteSegments,
    /// Memory regions with too many segments.
    #[error("memory regions of more than {IOV_LIMIT} segments")]
    RegionSegments,
    /// Several transmit or receive contexts in one endpoint (scalable endpoints).
    #[error("several contexts in one endpoint")]
    SeveralContexts,
    /// Datagram endpoints.
    #[error("endpoints of type FI_EP_DGRAM")]
    Datagrams,
    /// Another protocol than homespun's.
    #[error("another protocol")]
    Protocol,
    /// A later version of the protocol than the current one.
    #[error("a later version of the protocol")]
    ProtocolVersion,
    /// Authorization keys of endpoints and domains.
    #[error("authorization keys")]
    AuthorizationKeys,
    /// `FI_PROGRESS_CONTROL_UNIFIED` as the progress model of data. Only control operations can
    /// have this model.
    #[error("FI_PROGRESS_CONTROL_UNIFIED as data progress")]
    UnifiedDataProgress,
    /// Another fabric than `homespun`.
    #[error("a fabric of that name")]
    FabricName,
    /// Another provider than `homespun`.
    #[error("a provider of that name")]
    ProviderName,
    /// A domain with the name of an interface that this host does not have. Only programs that take homespun
    /// for another provider name interfaces.
    #[error("a domain of that name")]
    DomainName,
    /// A source or destination whose address format the domain has.
    #[error("an address format that the domain has")]
    DomainAddressFormat,
    /// A source or destination of this address format.
    #[error("an address of the format {}", FiFormat(*.0))]
    AddressFormat(AddressFormat),
    /// An interface that the user allows in `FI_HOMESPUN_IFACE`, with an address of this format.
    #[error("an address of the format {} at an interface that FI_HOMESPUN_IFACE allows", FiFormat(*.0))]
    AllowedInterface(AddressFormat),
    /// A source and a destination of the same address format.
    #[error("a source and a destination of one address format")]
    OneAddressFormat,
    /// A destination on this host, since the domain reaches no other.
    #[error("a destination on this host")]
    LocalDestination,
    /// A source that is an address of this host.
    #[error("a source that is an address of this host")]
    LocalSource,
    /// A destination to which the host has a route.
    #[error("a destination that there is a route to")]
    Route,
    /// An address format that homespun does not know.
    #[error("an address format other than FI_SOCKADDR_IN and FI_SOCKADDR_IN6")]
    UnknownAddressFormat,
    /// A number that is no endpoint type.
    #[error("an endpoint type that is not known")]
    UnknownEndpointType,
    /// A number that is no threading level.
    #[error("a threading level that is not known")]
    UnknownThreading,
    /// A number that is no progress model.
    #[error("a progress model that is not known")]
    UnknownProgress,
    /// A number that is no kind of resource management.
    #[error("a kind of resource management that is not known")]
    UnknownResourceManagement,
    /// A number that is no address vector type.
    #[error("an address vector type that is not known")]
    UnknownAvType,
}
