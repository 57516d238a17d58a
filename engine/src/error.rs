//! Errors by their cause: a mistake of the caller, the system, or a lack of room. An error becomes
//! an error number only at the C interface.

mod argument;
mod bad_memory;
mod fi_names;
mod in_use;
mod missing;
mod no_domain;
mod no_interface;
mod object_state;
mod system_request;
#[cfg(test)]
mod tests;
mod unmet;
mod unresolved;
mod unsupported;

use std::{fmt, io};

pub use self::argument::Argument;
pub use self::bad_memory::BadMemory;
use self::fi_names::FiCaps;
pub use self::in_use::InUse;
pub use self::missing::Missing;
pub use self::no_domain::{DomainNameSource, NoDomain};
pub use self::no_interface::NoInterface;
pub use self::object_state::ObjectState;
pub use self::system_request::SystemRequest;
pub use self::unmet::Unmet;
pub use self::unresolved::Unresolved;
pub use self::unsupported::Unsupported;
use crate::address::Address;
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::errno::Errno;
use crate::flags::Caps;
use crate::mutated;
use crate::transport::LinkError;
use crate::wire::Refusal;

// Every call that posts returns this type.
const _: () = assert!(size_of::<Result<(), Error>>() <= 32);
// Keep this type small: a sink without room hands failures back by value.
const _: () = assert!(size_of::<OperationError>() <= 24);

/// Why a call failed. A call that returns one of these has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A mistake of the caller, or an unsupported request. Repeating the call does not help.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The system or the transport refused.
    #[error("{request}: {errno}")]
    System {
        /// What the system was asked for.
        request: SystemRequest,
        /// The error number of the system.
        errno: Errno,
    },
    /// The transport could not open an endpoint at this address: the address is taken, forbidden,
    /// or not of this host, or there are too few descriptors or too little memory.
    #[error(
        "cannot open an endpoint at {address}: {errno}{}",
        exhausted.map(|ports| ports.to_string()).unwrap_or_default()
    )]
    Bind {
        /// The address. Port 0 means that the transport was to choose the port. Boxed, to keep
        /// results small.
        address: Box<Address>,
        /// The error number of the system.
        errno: Errno,
        /// The user's range of ports, if all of them are in use.
        exhausted: Option<ExhaustedPorts>,
    },
    /// The call lacked room. Repeat it after reading completions.
    #[error(transparent)]
    Again(#[from] Again),
}

/// The range of `FI_HOMESPUN_PORTS`, of which no port is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "; all {} ports of FI_HOMESPUN_PORTS={low}-{high} are in use: allow more ports, or close endpoints",
    u32::from(*high) - u32::from(*low) + 1
)]
pub struct ExhaustedPorts {
    /// The lowest port.
    pub low: u16,
    /// The highest port.
    pub high: u16,
}

/// A mistake of the caller, or a request for something that homespun does not offer.
///
/// ```
/// # use homespun_engine::error::{Error, InUse, Misuse};
/// fn is_counted_already(error: &Error) -> bool {
///     matches!(error, Error::Misuse(Misuse::Busy(InUse::CounterBound)))
/// }
/// # assert!(is_counted_already(&Misuse::Busy(InUse::CounterBound).into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A fabric address that is not in the address vector, or was removed from it.
    #[error("fabric address {0:#x} is not in the address vector")]
    UnknownAddress(u64),
    /// More bytes than the operation may have.
    #[error("{len_bytes} bytes are more than the {max_bytes} that this operation may have")]
    TooLong {
        /// The requested length.
        len_bytes: u64,
        /// The largest possible length.
        max_bytes: u64,
    },
    /// More segments than `iov_limit`.
    #[error("{count} segments are more than the {max} that one operation may have")]
    TooManySegments {
        /// The requested number of segments.
        count: usize,
        /// The largest possible number.
        max: usize,
    },
    /// A flag that this call does not have, or that this object does not support.
    #[error("flags {0:#x} are not supported here")]
    Flags(u64),
    /// The object's state does not permit this call.
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
    /// The endpoint is not connected yet, or its connection has ended.
    #[error("the endpoint is not connected")]
    NotConnected,
    /// The endpoint was opened without the capability that the call needs.
    #[error("the endpoint lacks {}", FiCaps(*.0))]
    NoCapability(Caps),
    /// An atomic operation that this set of calls does not offer for this datatype.
    #[error("{op} of {datatype} is not offered as a {kind} atomic operation")]
    NoAtomic {
        /// The set of calls.
        kind: AtomicKind,
        /// The operation on each element.
        op: AtomicOp,
        /// The type of the elements.
        datatype: Datatype,
    },
    /// The call combines objects of two domains.
    #[error("the object belongs to another domain")]
    OtherDomain,
    /// Another object still uses this one.
    #[error("still in use: {0}")]
    Busy(InUse),
    /// Nothing that homespun offers meets the requirement.
    #[error("nothing offers this: {0}")]
    Unmet(Unmet),
    /// A name has no address. Boxed, so that results stay small.
    #[error(transparent)]
    Unresolved(Box<Unresolved>),
    /// The user allows no interface of this host.
    #[error(transparent)]
    NoInterface(Box<NoInterface>),
    /// A domain that does not exist. Boxed, as above.
    #[error("{0}")]
    NoDomain(Box<NoDomain>),
    /// homespun does not have this feature.
    #[error("not supported: {0}")]
    NotSupported(Unsupported),
    /// The call names something that does not exist, such as an operation to cancel.
    #[error("not found: {0}")]
    NotFound(Missing),
    /// Another memory region has this key.
    #[error("the key {0:#x} belongs to another memory region")]
    KeyInUse(u64),
    /// The requested key of a memory region exceeds the key size of the domain.
    #[error("the key {key:#x} has more than the {max_bytes} bytes of the domain's keys")]
    KeyTooLong {
        /// The requested key.
        key: u64,
        /// The key size of the domain.
        max_bytes: usize,
    },
    /// A value outside its range, or an object that does not fit another object.
    #[error("invalid argument: {0}")]
    Invalid(Argument),
    /// Memory that cannot be used as the caller describes it.
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

/// What must become free before the call can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Again {
    /// The endpoint has as many outstanding operations as its depth allows. An operation stays
    /// outstanding while its completion waits for room in a queue.
    ///
    /// For an injected write also: an earlier one waits for room on the link, or many operations are
    /// queued for the peer.
    #[error("the endpoint's queue is full")]
    QueueFull,
}

impl Error {
    /// Returns the positive error number that a C caller gets.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Misuse(misuse) => misuse.errno(),
            Error::System { errno, .. } | Error::Bind { errno, .. } => *errno,
            Error::Again(_) => Errno::EAGAIN,
        }
    }
}

/// Lets `?` pass errors on in functions that return [`io::Error`].
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::Error::from(error.errno()).kind(), error)
    }
}

impl Misuse {
    /// Returns the positive error number that a C caller gets.
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
            Misuse::Unmet(_) | Misuse::Unresolved(_) | Misuse::NoInterface(_) => Errno::ENODATA,
            Misuse::NoDomain(missing) => match missing.source {
                DomainNameSource::Hints | DomainNameSource::Environment => Errno::ENODATA,
                DomainNameSource::Info => Errno::ENOENT,
            },
            Misuse::NotSupported(_) => Errno::ENOSYS,
            Misuse::NotFound(_) => Errno::ENOENT,
            Misuse::KeyInUse(_) => Errno::ENOKEY,
            Misuse::KeyTooLong { .. } => Errno::EKEYREJECTED,
        }
    }
}

/// Why an accepted operation failed: the `err` of a completion error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The message was longer than the receive buffer. The bytes that did not fit are lost.
    #[error("the message was {overflow_bytes} bytes longer than the buffer")]
    Truncated {
        /// How many bytes did not fit (`olen`).
        overflow_bytes: u64,
    },
    /// The application cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// Another operation of the connection has failed, and the connection [ends with the first
    /// failure](crate::Engine::end_connection_on_failure). It is not known whether the peer has carried out
    /// this operation.
    #[error("flushed: another operation of the connection has failed first")]
    Flushed,
    /// A receive of the peer was too short for its message, and the peer's connection [ends with the first
    /// failure](crate::Engine::end_connection_on_failure). For a send, its message may be the one; it is not
    /// known whether the peer has carried out another operation.
    #[error("a receive of the peer was too short for its message, and the peer has ended the connection")]
    PeerReceive,
    /// No message has arrived that the peek could find.
    #[error("no such message has arrived")]
    NoMessage,
    /// A peer failed to read the payload of a message or a write from the sender's memory. If a
    /// receive has matched the message, the receive ends with this error too.
    #[error("the sender's memory could not be read")]
    Fault,
    /// The target has refused the access. Normally nothing was read or written. If the region was
    /// closed during the access, part of the data may have been read or written.
    #[error("refused by the target: {0}")]
    Refused(Refusal),
    /// The target has written the data but could not make it durable, so a loss of power may lose
    /// the data. Or earlier writes had to be durable first, because of a fence, and the target
    /// could not make them durable. Then the target has not written the data.
    #[error("the peer could not make it durable, and may not have written it")]
    NotDurable,
    /// The engine refused the deferred operation when it was due. A direct call would have returned
    /// this error.
    #[error("refused when it was due: {0}")]
    Deferred(Box<Misuse>),
    /// The link to the peer ended, or could not be made.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The receive has succeeded, but the sender is not in the address vector, and the application
    /// asked for the addresses of such senders (`FI_SOURCE_ERR`). The [peer of the
    /// failure](crate::completion::FailedOperation::peer) is the sender. The endpoint reports this
    /// error, not the engine.
    #[error("the sender is not in the address vector")]
    UnknownSource,
}

impl OperationError {
    /// Returns the positive `err` of the completion error.
    pub fn errno(&self) -> Errno {
        match self {
            OperationError::Truncated { .. } if mutated!("fi_cq/errno-values") => Errno::EMSGSIZE,
            OperationError::Truncated { .. } | OperationError::PeerReceive => Errno::ETRUNC,
            OperationError::Cancelled | OperationError::Flushed => Errno::ECANCELED,
            OperationError::NoMessage => Errno::ENOMSG,
            OperationError::Fault => Errno::EFAULT,
            OperationError::Refused(Refusal::Key) => Errno::EKEYREJECTED,
            OperationError::Refused(Refusal::Access) => Errno::EACCES,
            OperationError::Refused(Refusal::Range) => Errno::EINVAL,
            OperationError::Refused(Refusal::Volatile) => Errno::EOPNOTSUPP,
            OperationError::NotDurable => Errno::EIO,
            OperationError::Deferred(misuse) => misuse.errno(),
            OperationError::Link(error) => error.errno(),
            OperationError::UnknownSource if mutated!("fi_cq/source-err-errno") => Errno::ENOENT,
            OperationError::UnknownSource => Errno::EADDRNOTAVAIL,
        }
    }
}
