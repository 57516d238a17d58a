//! Mistakes that a Rust program cannot make, because Rust's types rule them out.

use homespun::Errno;

/// A mistake of the C program, or a request for something that the plugin lacks. The program gets
/// the error number. The text goes to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CMisuse {
    #[error("a fabric without a name")]
    NamelessFabric,
    #[error("the handle is of neither a passive endpoint nor a request for a connection")]
    UnknownHandle,
    #[error("the handle is not of a request that this passive endpoint received and that is undecided")]
    NoRequest,
    #[error("the flags have both or neither of FI_TRANSMIT and FI_RECV")]
    NotOneDirection,
    #[error("a receive context has no other direction than FI_RECV")]
    NotReceiving,
    #[error("the remote memory and the local memory differ in length")]
    RemoteLength,
    #[error("other objects depend on the object")]
    InUse,
    #[error("counters count completions; other events are not supported")]
    CounterEvents,
    #[error("deferred work of this kind is not supported")]
    DeferredWork,
    #[error("authorization keys of memory regions are not supported")]
    RegionAuthorization,
    #[error("triggers other than thresholds of counters are not supported")]
    Trigger,
    #[error("the hints of a layer exclude homespun")]
    LayerHints,
    #[error("a name that is not UTF-8")]
    NotUtf8,
    #[error("the hints name a fabric that is not open")]
    FabricNotOpen,
    #[error("the hints do not fit the open fabric that they name")]
    NotOfFabric,
    #[error("the hints name a domain that is not open")]
    DomainNotOpen,
    #[error("the hints do not fit the open domain that they name")]
    NotOfDomain,
    #[error("the hints do not fit the passive endpoint that they name")]
    NotOfPassive,
    #[error("authorization keys in the address vector")]
    VectorAuthorization,
}

impl CMisuse {
    /// Returns the error number for the program, positive.
    pub(crate) fn errno(self) -> Errno {
        match self {
            CMisuse::NamelessFabric
            | CMisuse::UnknownHandle
            | CMisuse::NoRequest
            | CMisuse::NotOneDirection
            | CMisuse::NotReceiving
            | CMisuse::RemoteLength => Errno::EINVAL,
            CMisuse::InUse => Errno::EBUSY,
            CMisuse::CounterEvents
            | CMisuse::DeferredWork
            | CMisuse::RegionAuthorization
            | CMisuse::Trigger => Errno::ENOSYS,
            CMisuse::LayerHints
            | CMisuse::NotUtf8
            | CMisuse::FabricNotOpen
            | CMisuse::NotOfFabric
            | CMisuse::DomainNotOpen
            | CMisuse::NotOfDomain
            | CMisuse::NotOfPassive
            | CMisuse::VectorAuthorization => Errno::ENODATA,
        }
    }
}
