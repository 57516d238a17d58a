//! Errors by their cause: the caller, the system, or a lack of room. They become an error number
//! only at the C edge.

mod argument;
mod bad_memory;
mod fi_names;
mod in_use;
mod missing;
mod object_state;
#[cfg(test)]
mod tests;
mod unmet;
mod unsupported;

use std::fmt;

pub use self::argument::Argument;
pub use self::bad_memory::BadMemory;
use self::fi_names::FiCaps;
pub use self::in_use::InUse;
pub use self::missing::Missing;
pub use self::object_state::ObjectState;
pub use self::unmet::Unmet;
pub use self::unsupported::Unsupported;
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::errno::Errno;
use crate::flags::Caps;
use crate::transport::LinkError;
use crate::wire::Refusal;

// Every call that posts returns one.
const _: () = assert!(size_of::<Result<(), Error>>() <= 32);
// Each failure has one, and a sink without room hands failures back by value.
const _: () = assert!(size_of::<OperationError>() <= 24);

/// Why a call failed. Nothing was changed by a call that returns one of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller asked for something that cannot be; repeating the call will not help.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The system or the transport beneath refused.
    #[error("{call}: {errno}")]
    System {
        /// What was attempted.
        call: &'static str,
        /// What the system answered.
        errno: Errno,
    },
    /// Try again after reading completions.
    #[error(transparent)]
    Again(#[from] Again),
}

/// What the caller did wrong, or asked for that homespun does not offer.
///
/// ```
/// use homespun_engine::error::{Error, InUse, Misuse};
///
/// fn is_counted_already(error: &Error) -> bool {
///     matches!(error, Error::Misuse(Misuse::Busy(InUse::CounterBound)))
/// }
/// # assert!(is_counted_already(&Misuse::Busy(InUse::CounterBound).into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A fabric address that is not, or no longer, in the address vector.
    #[error("fabric address {0:#x} is not in the address vector")]
    UnknownAddress(u64),
    /// More bytes than the operation may have.
    #[error("{len_bytes} bytes are more than the {max_bytes} that this operation may have")]
    TooLong {
        /// What was asked for.
        len_bytes: u64,
        /// What is possible.
        max_bytes: u64,
    },
    /// More segments than `iov_limit`.
    #[error("{count} segments are more than the {max} that one operation may have")]
    TooManySegments {
        /// What was asked for.
        count: usize,
        /// What is possible.
        max: usize,
    },
    /// A flag that this call does not know or this object does not support.
    #[error("flags {0:#x} are not supported here")]
    Flags(u64),
    /// The object must be enabled, or must not be, for this call.
    #[error("not permitted in this state: {0}")]
    State(ObjectState),
    /// An endpoint was enabled without a completion queue that it needs.
    #[error("no completion queue is bound for {0}")]
    NoCompletionQueue(Direction),
    /// An endpoint was enabled without an address vector.
    #[error("no address vector is bound")]
    NoAddressVector,
    /// An endpoint was enabled without an event queue that it needs.
    #[error("no event queue is bound")]
    NoEventQueue,
    /// The endpoint has no connection, or no longer.
    #[error("the endpoint is not connected")]
    NotConnected,
    /// The endpoint was opened without the capability that the call needs.
    #[error("the endpoint lacks {}", FiCaps(*.0))]
    NoCapability(Caps),
    /// An atomic operation that is not offered for such elements, or not by such a call.
    #[error("{op} of {datatype} is not offered as a {kind} atomic operation")]
    NoAtomic {
        /// Which of the sets of calls.
        kind: AtomicKind,
        /// What was to be done with each element.
        op: AtomicOp,
        /// What the elements are.
        datatype: Datatype,
    },
    /// Objects of two domains were to be used together.
    #[error("the object belongs to another domain")]
    OtherDomain,
    /// The object is still used by another.
    #[error("still in use: {0}")]
    Busy(InUse),
    /// Nothing of what is offered meets the request.
    #[error("nothing offers this: {0}")]
    NoData(Unmet),
    /// homespun does not have this.
    #[error("not supported: {0}")]
    NotSupported(Unsupported),
    /// No such thing exists (an operation to cancel, a domain by that name).
    #[error("not found: {0}")]
    NotFound(Missing),
    /// Another memory region has this key.
    #[error("the key {0:#x} belongs to another memory region")]
    KeyInUse(u64),
    /// A value outside its range, or an object that does not go with another.
    #[error("invalid argument: {0}")]
    Invalid(Argument),
    /// Memory that cannot be used as it is described.
    #[error("invalid memory: {0}")]
    Memory(BadMemory),
}

/// One of the two directions of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Sends, and accesses to peers' memory (`FI_TRANSMIT`).
    Transmit,
    /// Receives (`FI_RECV`).
    Receive,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Transmit => "transmit operations",
            Direction::Receive => "receives",
        })
    }
}

/// What has to get free first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Again {
    /// As many operations are outstanding as the endpoint's depth allows; those count whose
    /// completions wait for room in a queue.
    #[error("the endpoint's queue is full")]
    QueueFull,
}

impl Error {
    /// The error number that a C caller gets, positive.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Misuse(misuse) => misuse.errno(),
            Error::System { errno, .. } => *errno,
            Error::Again(_) => Errno::EAGAIN,
        }
    }
}

impl Misuse {
    /// The error number that a C caller gets, positive.
    pub fn errno(&self) -> Errno {
        match self {
            Misuse::UnknownAddress(_)
            | Misuse::Invalid(_)
            | Misuse::Memory(_)
            | Misuse::TooManySegments { .. } => Errno::EINVAL,
            Misuse::TooLong { .. } => Errno::EMSGSIZE,
            Misuse::Flags(_) => Errno::EBADFLAGS,
            Misuse::State(_) => Errno::EOPBADSTATE,
            Misuse::NoCompletionQueue(_) => Errno::ENOCQ,
            Misuse::NoAddressVector => Errno::ENOAV,
            Misuse::NoEventQueue => Errno::ENOEQ,
            Misuse::NotConnected => Errno::ENOTCONN,
            Misuse::NoCapability(_) | Misuse::NoAtomic { .. } => Errno::EOPNOTSUPP,
            Misuse::OtherDomain => Errno::EDOMAIN,
            Misuse::Busy(_) => Errno::EBUSY,
            Misuse::NoData(_) => Errno::ENODATA,
            Misuse::NotSupported(_) => Errno::ENOSYS,
            Misuse::NotFound(_) => Errno::ENOENT,
            Misuse::KeyInUse(_) => Errno::ENOKEY,
        }
    }
}

/// Why an operation that was accepted ended without success: the `err` of a completion error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The message was longer than the receive buffer; what did not fit is lost.
    #[error("the message was {overflow_bytes} bytes longer than the buffer")]
    Truncated {
        /// How many bytes did not fit (`olen`).
        overflow_bytes: u64,
    },
    /// The application cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// No message that a peek asked for has arrived.
    #[error("no such message has arrived")]
    NoMessage,
    /// The sender's memory, where the message was to be fetched from, could not be read. Both sides
    /// get this error.
    #[error("the memory of the message could not be read")]
    Fault,
    /// The target refused access to its memory. It did not happen, or only in part if the region
    /// was closed meanwhile.
    #[error("refused by the target: {0}")]
    Refused(Refusal),
    /// It was written, but the target could not make it durable, so a loss of power may lose it.
    #[error("written, but not made durable")]
    NotDurable,
    /// The operation was deferred, and refused when it was due: the reason is what a call would have got.
    #[error("refused when it was due: {0}")]
    Deferred(Box<Misuse>),
    /// The link to the peer ended, or could not be made.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The receive has succeeded, but the sender is not in the address vector, and the application
    /// asked for such senders' addresses (`FI_SOURCE_ERR`). The endpoint reports it, not the
    /// engine, which knows no address vector. The address is that of the failure's peer.
    #[error("the sender is not in the address vector")]
    UnknownSource,
}

impl OperationError {
    /// The positive `err` of the completion error.
    pub fn errno(&self) -> Errno {
        match self {
            OperationError::Truncated { .. } => Errno::ETRUNC,
            OperationError::Cancelled => Errno::ECANCELED,
            OperationError::NoMessage => Errno::ENOMSG,
            OperationError::Fault => Errno::EFAULT,
            OperationError::Refused(Refusal::Key) => Errno::EKEYREJECTED,
            OperationError::Refused(Refusal::Access) => Errno::EACCES,
            OperationError::Refused(Refusal::Range) => Errno::EINVAL,
            OperationError::Refused(Refusal::Volatile) => Errno::EOPNOTSUPP,
            OperationError::NotDurable => Errno::EIO,
            OperationError::Deferred(misuse) => misuse.errno(),
            OperationError::Link(error) => error.errno(),
            OperationError::UnknownSource => Errno::EADDRNOTAVAIL,
        }
    }
}
