//! Errors by who is to blame, and librpma's numbers for them.

use homespun::signals::Interrupted;
use homespun::{Again, Errno, Misuse, mutated};

/// Why a call failed. A call that returns one of these has changed nothing, except that
/// [`ConnectionRequest::connect`](crate::ConnectionRequest::connect) and
/// [`Endpoint::next_connection_request`](crate::Endpoint::next_connection_request) reject the request.
///
/// ```
/// use homespun_rpma::{Error, ErrorCode};
///
/// assert_eq!(Error::NoCompletion.code(), ErrorCode::NoCompletion);
/// assert_eq!(ErrorCode::NoCompletion.number(), -100_005);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mistake of the caller (`RPMA_E_INVAL`).
    #[error("invalid argument: {0}")]
    Invalid(#[from] Invalid),
    /// The peer, or its memory, does not support the request (`RPMA_E_NOSUPP`).
    #[error("not supported: {0}")]
    NotSupported(#[from] Unsupported),
    /// The completion queue is empty (`RPMA_E_NO_COMPLETION`).
    #[error("no completion is available")]
    NoCompletion,
    /// There is no event, and the call does not wait for one (`RPMA_E_NO_EVENT`): the application has set
    /// `O_NONBLOCK` on the descriptor, or the connection has ended and reports no more events.
    #[error("no event is available")]
    NoEvent,
    /// A signal has ended the wait: its handler has run in this thread, and was installed without
    /// `SA_RESTART`. In librpma the number depends on the call: `RPMA_E_NO_COMPLETION` from a wait for
    /// completions, `RPMA_E_PROVIDER` from a wait for an event or a request.
    #[error("a signal has ended the wait")]
    Interrupted,
    /// The queue shares its completion channel with another queue, so [`Connection::wait`] waits for both
    /// (`RPMA_E_SHARED_CHANNEL`).
    ///
    /// [`Connection::wait`]: crate::Connection::wait
    #[error("the completion channel is shared")]
    SharedChannel,
    /// The queues of the connection have a completion channel each, so [`CompletionQueue::wait`] waits for
    /// one of them (`RPMA_E_NOT_SHARED_CHNL`).
    ///
    /// [`CompletionQueue::wait`]: crate::CompletionQueue::wait
    #[error("the completion channel is not shared")]
    NotSharedChannel,
    /// As many operations are outstanding as the [configuration](crate::ConnectionConfig) allows
    /// (`RPMA_E_PROVIDER`). Read completions, then repeat the call.
    #[error("as many operations are outstanding as the queue holds")]
    QueueFull,
    /// The connection is not established yet, or has ended (`RPMA_E_PROVIDER`).
    #[error("the connection is not established")]
    NotConnected,
    /// The native interface refused (`RPMA_E_PROVIDER`, or `RPMA_E_NOMEM` if the system has too little
    /// memory): an address that does not exist or is in use, or too few descriptors.
    #[error(transparent)]
    Fabric(homespun::Error),
}

/// The argument that a call refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A memory region of no bytes.
    #[error("a memory region of 0 bytes")]
    EmptyRegion,
    /// A memory region without an address.
    #[error("a memory region at the null address")]
    NullRegion,
    /// A memory region without a usage.
    #[error("a memory region without a usage")]
    NoUsage,
    /// A range that does not lie within the local memory region.
    #[error("{len_bytes} bytes from offset {offset_bytes} exceed a memory region of {region_bytes} bytes")]
    LocalRange {
        /// The start of the range.
        offset_bytes: usize,
        /// The length of the range.
        len_bytes: usize,
        /// The length of the region.
        region_bytes: usize,
    },
    /// A local memory region whose [usage](crate::Usage) does not allow the operation.
    #[error("the usage of the local memory region does not allow this operation: {needed:?} is missing")]
    LocalUsage {
        /// The usage that the operation needs.
        needed: crate::Usage,
    },
    /// An access that names memory on one side only.
    #[error("an access with memory on one side only")]
    MissingMemory,
    /// More bytes than an operation may have.
    #[error("{len_bytes} bytes are more than the {max_bytes} that an operation may have")]
    TooLong {
        /// The requested length.
        len_bytes: u64,
        /// The largest possible length.
        max_bytes: u64,
    },
    /// The target of an atomic write is not a multiple of 8.
    #[error("an atomic write to an address that is not a multiple of 8")]
    Misaligned,
    /// A descriptor that is too short.
    #[error("a descriptor of {len_bytes} bytes, which has at least {min_bytes}")]
    ShortDescriptor {
        /// The length of the bytes.
        len_bytes: usize,
        /// The length of a descriptor.
        min_bytes: usize,
    },
    /// A descriptor of a memory region that has no usage.
    #[error("a descriptor without a usage")]
    DescriptorUsage,
    /// More private data than a connection carries.
    #[error("{len_bytes} bytes of private data, which has at most {max_bytes}")]
    PrivateData {
        /// The length of the data.
        len_bytes: usize,
        /// The largest length.
        max_bytes: usize,
    },
    /// A shared completion channel, for a connection whose shared receive queue has a completion queue of
    /// its own.
    #[error("a shared completion channel beside a shared receive queue that has a completion queue")]
    SharedChannel,
    /// A receive on a connection that takes its receives from a shared receive queue.
    #[error("a receive on a connection with a shared receive queue")]
    SharedReceives,
    /// Objects of different peers.
    #[error("objects of different peers")]
    OtherPeer,
}

/// The request that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// A persistent flush to a peer that has not said that writes reach its persistent memory directly:
    /// see [`PeerConfig`](crate::PeerConfig).
    #[error("the peer does not support direct writes to persistent memory")]
    DirectWrite,
    /// A flush of a kind that the [usage](crate::Usage) of the remote memory region does not have.
    #[error("the remote memory region does not support this kind of flush")]
    FlushType,
}

/// The number of an error in C: `librpma.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorCode {
    /// `RPMA_E_UNKNOWN`. This crate returns no error of this kind.
    Unknown = -100_000,
    /// `RPMA_E_NOSUPP`.
    NotSupported = -100_001,
    /// `RPMA_E_PROVIDER`.
    Provider = -100_002,
    /// `RPMA_E_NOMEM`.
    NoMemory = -100_003,
    /// `RPMA_E_INVAL`.
    Invalid = -100_004,
    /// `RPMA_E_NO_COMPLETION`.
    NoCompletion = -100_005,
    /// `RPMA_E_NO_EVENT`.
    NoEvent = -100_006,
    /// `RPMA_E_AGAIN`. This crate returns no error of this kind.
    Again = -100_007,
    /// `RPMA_E_SHARED_CHANNEL`.
    SharedChannel = -100_008,
    /// `RPMA_E_NOT_SHARED_CHNL`.
    NotSharedChannel = -100_009,
}

impl ErrorCode {
    /// Returns the number that a C caller gets.
    pub fn number(self) -> i32 {
        match self {
            ErrorCode::NoCompletion if mutated!("rpma_cq_get_completion/failure-returns-code") => 0,
            code => code as i32,
        }
    }
}

impl Error {
    /// Returns the code that a C caller gets.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Invalid(_) => ErrorCode::Invalid,
            Error::NotSupported(_) => ErrorCode::NotSupported,
            Error::NoCompletion => ErrorCode::NoCompletion,
            Error::NoEvent => ErrorCode::NoEvent,
            Error::SharedChannel => ErrorCode::SharedChannel,
            Error::NotSharedChannel => ErrorCode::NotSharedChannel,
            Error::Fabric(error) if error.errno() == Errno::ENOMEM => ErrorCode::NoMemory,
            Error::Interrupted | Error::QueueFull | Error::NotConnected | Error::Fabric(_) => {
                ErrorCode::Provider
            }
        }
    }
}

impl From<Interrupted> for Error {
    fn from(Interrupted: Interrupted) -> Error {
        Error::Interrupted
    }
}

impl From<homespun::Error> for Error {
    fn from(error: homespun::Error) -> Error {
        match error {
            homespun::Error::Again(Again::QueueFull) => Error::QueueFull,
            homespun::Error::Misuse(Misuse::NotConnected) => Error::NotConnected,
            homespun::Error::Misuse(Misuse::TooLong { len_bytes, max_bytes }) => {
                Invalid::TooLong { len_bytes, max_bytes }.into()
            }
            homespun::Error::Misuse(Misuse::OtherDomain) => Invalid::OtherPeer.into(),
            error => Error::Fabric(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows rpma_cq_get_completion/failure-returns-code, rpma_cq_get_completion/no-completion.
    #[test]
    fn codes_have_the_numbers_of_librpma() {
        let codes = [
            ErrorCode::Unknown,
            ErrorCode::NotSupported,
            ErrorCode::Provider,
            ErrorCode::NoMemory,
            ErrorCode::Invalid,
            ErrorCode::NoCompletion,
            ErrorCode::NoEvent,
            ErrorCode::Again,
            ErrorCode::SharedChannel,
            ErrorCode::NotSharedChannel,
        ];
        for (code, number) in codes.into_iter().zip((-100_009..=-100_000).rev()) {
            assert_eq!(code.number(), number);
        }
    }

    #[test]
    fn native_errors_become_the_errors_that_say_who_is_to_blame() {
        assert_eq!(Error::from(homespun::Error::from(Again::QueueFull)), Error::QueueFull);
        assert_eq!(Error::from(homespun::Error::from(Misuse::NotConnected)), Error::NotConnected);
        let no_memory = homespun::error::SystemRequest::Thread;
        let refused = |errno| Error::from(homespun::Error::System { request: no_memory, errno });
        assert_eq!(refused(Errno::ENOMEM).code(), ErrorCode::NoMemory);
        assert_eq!(refused(Errno::EMFILE).code(), ErrorCode::Provider);
    }
}
