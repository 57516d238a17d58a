//! The reasons why an object is busy.

/// Why an object cannot be closed, or cannot be bound to another object: EBUSY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum InUse {
    /// The endpoint already has a completion queue for this direction.
    #[error("a completion queue is bound already")]
    CompletionQueueBound,
    /// This event of the endpoint or the memory region already has a counter.
    #[error("a counter is bound already")]
    CounterBound,
    /// The endpoint already has an address vector.
    #[error("an address vector is bound already")]
    AddressVectorBound,
    /// The endpoint already has an event queue.
    #[error("an event queue is bound already")]
    EventQueueBound,
    /// The endpoint already has a shared receive context.
    #[error("a receive context is bound already")]
    ReceiveContextBound,
    /// The endpoint already has a shared transmit context.
    #[error("a transmit context is bound already")]
    TransmitContextBound,
    /// Objects that use the completion queue must be closed before it.
    #[error("endpoints or poll sets are bound to the completion queue")]
    CompletionQueue,
    /// Objects that use the counter must be closed before it.
    #[error("endpoints, regions, poll sets or works use the counter")]
    Counter,
    /// Endpoints that use the address vector must be closed before it.
    #[error("endpoints are bound to the address vector")]
    AddressVector,
    /// Objects that report to the event queue must be closed before it.
    #[error("objects are bound to the event queue")]
    EventQueue,
    /// Endpoints that use the receive context must be closed before it.
    #[error("endpoints are bound to the receive context")]
    ReceiveContext,
    /// The members of the poll set must be removed before it is closed.
    #[error("queues or counters are in the poll set")]
    PollSet,
    /// The members of the wait set must be closed before it.
    #[error("queues or counters are members of the wait set")]
    WaitSet,
}
