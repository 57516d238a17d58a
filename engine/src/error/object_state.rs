//! The states in which objects refuse a call.

/// Why the state of an object does not permit the call: FI_EOPBADSTATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectState {
    /// The endpoint must be enabled first.
    #[error("the endpoint is not enabled")]
    EndpointNotEnabled,
    /// The call must come before the endpoint is enabled.
    #[error("the endpoint is enabled already")]
    EndpointEnabled,
    /// The endpoint is in use, so it cannot become a connected endpoint.
    #[error("the endpoint is in use")]
    EndpointInUse,
    /// The endpoint has its address already. The call must come before that.
    #[error("the endpoint has its address already")]
    AddressAssigned,
    /// The endpoint uses a shared receive context, but none is bound.
    #[error("no shared receive context is bound")]
    NoReceiveContext,
    /// The endpoint uses a shared transmit context, but none is bound.
    #[error("no shared transmit context is bound")]
    NoTransmitContext,
    /// The endpoint has already asked for a connection, or accepted one.
    #[error("the endpoint has asked for a connection, or accepted one, already")]
    ConnectionBegun,
    /// The endpoint was opened to accept a request, so it cannot ask for a connection.
    #[error("the endpoint was opened to accept a request")]
    OpenedForRequest,
    /// The endpoint was not opened for a request, so there is no request to accept.
    #[error("the endpoint was not opened for a request")]
    NotOpenedForRequest,
    /// Only a passive endpoint receives requests.
    #[error("the endpoint is not a passive endpoint")]
    NotPassive,
    /// The call must come before the passive endpoint listens.
    #[error("the passive endpoint listens already")]
    Listening,
    /// An endpoint was opened at the address of the passive endpoint.
    #[error("an endpoint has taken over from the passive one")]
    TakenOver,
    /// The request was accepted or rejected already, or an endpoint was opened to accept it.
    #[error("the request for a connection was decided already")]
    RequestDecided,
    /// The event queue was opened without `FI_WRITE`.
    #[error("the event queue was not opened for writing")]
    EventQueueNotWritable,
    /// The call must come before the memory region is enabled.
    #[error("the memory region is enabled already")]
    RegionEnabled,
}
