//! The requirements that no domain meets.

use super::fi_names::{FiCaps, FiFormat};
use crate::address::AddressFormat;
use crate::flags::Caps;
use crate::limits::{DEPTH_MAX_OPS, IOV_LIMIT};

/// A requirement that nothing meets: ENODATA. The text continues "it needs ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unmet {
    /// Capabilities that no domain has.
    #[error("{}", FiCaps(*.0))]
    Caps(Caps),
    /// A connected endpoint has one source only.
    #[error("FI_SOURCE, FI_SOURCE_ERR or FI_DIRECTED_RECV over a connection")]
    ConnectionSource,
    /// Only completions that name their sources report unknown ones.
    #[error("FI_SOURCE_ERR without FI_SOURCE")]
    SourceErrAlone,
    /// Only untagged receives have multi-receive buffers.
    #[error("FI_MULTI_RECV without receiving messages (FI_MSG and FI_RECV)")]
    MultiReceiveAlone,
    /// Only targets have events of accesses.
    #[error("FI_RMA_EVENT without being the target of accesses")]
    RmaEventAlone,
    /// Only writes to persistent memory are committed.
    #[error("FI_COMMIT_COMPLETE without FI_RMA_PMEM")]
    CommitAlone,
    /// The transmit attributes ask for more than the endpoint's capabilities.
    #[error("transmit capabilities beyond those of the endpoint")]
    TransmitCaps,
    /// The receive attributes ask for more than the endpoint's capabilities.
    #[error("receive capabilities beyond those of the endpoint")]
    ReceiveCaps,
    /// The domain attributes ask for capabilities beyond the domain's reach.
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
    /// An order of completions other than that of posting.
    #[error("an order of transmit completions other than FI_ORDER_STRICT")]
    TransmitCompletionOrder,
    /// Ordered receive completions: receives complete as they end.
    #[error("ordered receive completions")]
    ReceiveCompletionOrder,
    /// An inject size beyond the largest.
    #[error("an inject size above {max_bytes} bytes")]
    InjectSize {
        /// The largest inject size.
        max_bytes: usize,
    },
    /// Messages beyond the largest.
    #[error("messages longer than {max_bytes} bytes")]
    MessageSize {
        /// The largest message.
        max_bytes: usize,
    },
    /// Remote completion data beyond the largest.
    #[error("more than {max_bytes} bytes of remote completion data")]
    CompletionDataSize {
        /// The length of the remote completion data.
        max_bytes: usize,
    },
    /// Error data beyond the largest.
    #[error("more than {max_bytes} bytes of error data")]
    ErrorDataSize {
        /// The longest error data.
        max_bytes: usize,
    },
    /// A transmit queue beyond the deepest.
    #[error("a transmit queue of more than {DEPTH_MAX_OPS} operations")]
    TransmitDepth,
    /// A receive queue beyond the deepest.
    #[error("a receive queue of more than {DEPTH_MAX_OPS} operations")]
    ReceiveDepth,
    /// Transmit operations of too many segments.
    #[error("more than {IOV_LIMIT} segments in a transmit operation")]
    TransmitSegments,
    /// Receives of too many segments.
    #[error("more than {IOV_LIMIT} segments in a receive")]
    ReceiveSegments,
    /// Accesses to several places of a peer's memory.
    #[error("several remote segments in an operation")]
    RemoteSegments,
    /// Memory regions of too many segments.
    #[error("memory regions of more than {IOV_LIMIT} segments")]
    RegionSegments,
    /// Scalable endpoints.
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
    /// A progress model that only control operations have.
    #[error("FI_PROGRESS_CONTROL_UNIFIED as data progress")]
    UnifiedDataProgress,
    /// The fabric's name is `homespun`.
    #[error("a fabric of that name")]
    FabricName,
    /// The provider's name is `homespun`.
    #[error("a provider of that name")]
    ProviderName,
    /// A name that no domain has.
    #[error("a domain of that name")]
    DomainName,
    /// The user's parameter names no domain.
    #[error("a domain of the name that FI_HOMESPUN_DOMAIN gives")]
    PreferredDomain,
    /// The user's parameter names another domain than the application.
    #[error("a domain other than the one that FI_HOMESPUN_DOMAIN names")]
    NotPreferredDomain,
    /// No source or destination has a format that the domain has.
    #[error("an address format that the domain has")]
    DomainAddressFormat,
    /// No address has this format.
    #[error("an address of the format {}", FiFormat(*.0))]
    AddressFormat(AddressFormat),
    /// All sources are of one address format, and all destinations of another.
    #[error("a source and a destination of one address format")]
    OneAddressFormat,
    /// The domain reaches this host only.
    #[error("a destination on this host")]
    LocalDestination,
    /// The source is no address of this host.
    #[error("a source that is an address of this host")]
    LocalSource,
    /// The host has no route to the destination.
    #[error("a destination that there is a route to")]
    Route,
    /// The service is neither a number nor a name of a port.
    #[error("a service that is a port")]
    Port,
    /// The resolver knows no address of the node and service.
    #[error("a node and service that resolve")]
    Resolvable,
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
