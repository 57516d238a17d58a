//! The reasons why an object is busy.

/// Why an object cannot be closed, or cannot be bound to another object: EBUSY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum InUse {
    /// The endpoint has a completion queue for this direction.
    #[error("a completion queue is bound already")]
    CompletionQueueBound,
    /// This event of the endpoint or the memory region has a counter.
    #[error("a counter is bound already")]
    CounterBound,
    /// The endpoint has an address vector.
    #[error("an address vector is bound already")]
    AddressVectorBound,
    /// The endpoint has an event queue.
    #[error("an event queue is bound already")]
    EventQueueBound,
    /// The endpoint has a shared receive context.
    #[error("a receive context is bound already")]
    ReceiveContextBound,
    /// The endpoint has a shared transmit context.
    #[error("a transmit context is bound already")]
    TransmitContextBound,
    /// The completion queue must be closed after the objects that it is bound to.
    #[error("endpoints or poll sets are bound to the completion queue")]
    CompletionQueue,
    /// The counter must be closed after the objects that use it.
    #[error("endpoints, regions, poll sets or works use the counter")]
    Counter,
    /// The address vector must be closed after its endpoints.
    #[error("endpoints are bound to the address vector")]
    AddressVector,
    /// The event queue must be closed after the objects that report to it.
    #[error("objects are bound to the event queue")]
    EventQueue,
    /// The receive context must be closed after its endpoints.
    #[error("endpoints are bound to the receive context")]
    ReceiveContext,
    /// The transmit context must be closed after its endpoints.
    #[error("endpoints are bound to the transmit context")]
    TransmitContext,
    /// The poll set must have no members when it is closed.
    #[error("queues or counters are in the poll set")]
    PollSet,
    /// The wait set must be closed after its members.
    #[error("queues or counters are members of the wait set")]
    WaitSet,
}
