//! The features of libfabric that homespun does not have.

/// A feature that homespun lacks: ENOSYS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Address vectors that have a name, by which processes share them.
    #[error("address vectors shared by processes")]
    NamedAddressVector,
    /// Address vectors that report insertions as events (`FI_EVENT`).
    #[error("asynchronous insertion into address vectors")]
    AsynchronousInsertion,
    /// Connections of an endpoint of another type than `FI_EP_MSG`.
    #[error("connections of endpoints of another type than FI_EP_MSG")]
    Connections,
    /// Receives posted to an endpoint with a shared receive context. Post them to the context
    /// instead.
    #[error("receives of an endpoint with a shared receive context; post them to the context")]
    SharedContextReceive,
    /// Sends and accesses through a shared receive context.
    #[error("sends and accesses through a shared receive context")]
    SharedContextTransmit,
    /// `FI_WAIT_POLLFD`.
    #[error("the wait object FI_WAIT_POLLFD; FI_WAIT_FD and FI_WAIT_MUTEX_COND are supported")]
    PollFd,
    /// `FI_WAIT_FD` and `FI_WAIT_MUTEX_COND` in a simulation: no descriptor tells of simulated time.
    #[error(
        "the wait objects FI_WAIT_FD and FI_WAIT_MUTEX_COND in a simulation; blocking reads are supported"
    )]
    SleepInSimulation,
}
