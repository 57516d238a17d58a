//! homespun's own error numbers and their texts: `prov_errno`, `fi_cq_strerror(3)`.
//!
//! libfabric's error number names only the kind of an error. If homespun knows more, `prov_errno` is a
//! number of homespun's own. Otherwise `prov_errno` is libfabric's error number.

use homespun_engine::errno::Errno;
use homespun_engine::error::OperationError;
use homespun_engine::transport::{Denial, LinkError};
use homespun_engine::wire::Refusal;

use crate::mutated;

/// The first of homespun's own numbers. All of libfabric's numbers are lower.
const FIRST: i32 = 400;

const TRUNCATED: i32 = FIRST;
const CANCELLED: i32 = FIRST + 1;
const NO_MESSAGE: i32 = FIRST + 2;
const FAULT: i32 = FIRST + 3;
const UNKNOWN_SOURCE: i32 = FIRST + 4;
const CLOSED: i32 = FIRST + 5;
const DENIED: i32 = FIRST + 6;
const PROTOCOL: i32 = FIRST + 7;
const NO_KEY: i32 = FIRST + 8;
const NO_RIGHT: i32 = FIRST + 9;
const OUT_OF_RANGE: i32 = FIRST + 10;
const VOLATILE: i32 = FIRST + 11;
const NOT_DURABLE: i32 = FIRST + 12;
const REFUSED_WHEN_DUE: i32 = FIRST + 13;
const FLUSHED: i32 = FIRST + 14;
const PEER_RECEIVE: i32 = FIRST + 15;
const OTHER_VERSION: i32 = FIRST + 16;
const NO_ENDPOINT: i32 = FIRST + 17;
const LOOPBACK_ONLY: i32 = FIRST + 18;
const NO_DESCRIPTORS: i32 = FIRST + 19;
const NO_MEMORY_FILES: i32 = FIRST + 20;

/// Returns homespun's number of an error.
pub(crate) fn prov_errno(error: &OperationError) -> i32 {
    match error {
        OperationError::Truncated { .. } => TRUNCATED,
        OperationError::Cancelled => CANCELLED,
        OperationError::Flushed => FLUSHED,
        OperationError::PeerReceive => PEER_RECEIVE,
        OperationError::NoMessage => NO_MESSAGE,
        OperationError::Fault => FAULT,
        OperationError::UnknownSource => UNKNOWN_SOURCE,
        OperationError::Refused(Refusal::Key) => NO_KEY,
        OperationError::Refused(Refusal::Access) => NO_RIGHT,
        OperationError::Refused(Refusal::Range) => OUT_OF_RANGE,
        OperationError::Refused(Refusal::Volatile) => VOLATILE,
        OperationError::NotDurable => NOT_DURABLE,
        OperationError::Deferred(_) => REFUSED_WHEN_DUE,
        OperationError::Link(LinkError::Closed) => CLOSED,
        OperationError::Link(LinkError::Denied(Denial::NoDescriptors)) => NO_DESCRIPTORS,
        OperationError::Link(LinkError::Denied(Denial::NoMemoryFiles)) => NO_MEMORY_FILES,
        OperationError::Link(LinkError::Denied(
            Denial::OtherUser | Denial::ForkedChild | Denial::ForeignAddress,
        )) => DENIED,
        OperationError::Link(LinkError::Protocol(_)) => PROTOCOL,
        OperationError::Link(LinkError::OtherVersion { .. }) => OTHER_VERSION,
        OperationError::Link(LinkError::NoEndpoint { .. }) => NO_ENDPOINT,
        OperationError::Link(LinkError::LoopbackOnly { .. }) => LOOPBACK_ONLY,
        OperationError::Link(LinkError::System(errno)) => errno.raw(),
    }
}

/// Returns the text for a `prov_errno`. For an unknown number, the text is "Unknown error".
pub fn strerror(prov_errno: i32) -> &'static str {
    match prov_errno {
        _ if mutated!("fi_cq/strerror-text") => "Unknown error",
        TRUNCATED => "the message was longer than the buffer of its receive, and what did not fit is lost",
        CANCELLED => "the application has cancelled the operation",
        NO_MESSAGE => "no message that the peek or claim asked for has arrived",
        FAULT => "the memory that the message was to be fetched from could not be read",
        UNKNOWN_SOURCE => {
            "the operation has succeeded, but its source is not in the address vector: the error data is its \
             address"
        }
        CLOSED => "the peer has closed its endpoint",
        DENIED => "the endpoint at the peer's address is not one that this process may talk to",
        PROTOCOL => "the peer does not speak the protocol: it is no homespun endpoint",
        OTHER_VERSION => {
            "the peer speaks another version of homespun's protocol: run one version of homespun on both \
             sides (FI_LOG_LEVEL=warn names the versions)"
        }
        NO_ENDPOINT => {
            "Connection refused: the peer has not started, or uses another domain of homespun \
             (FI_HOMESPUN_DOMAIN)"
        }
        LOOPBACK_ONLY => {
            "the endpoint is at a loopback address, from which no other host can be reached: open it at \
             another address"
        }
        NO_KEY => "no memory region of the target has this key, or no longer",
        NO_RIGHT => "the target's memory region or endpoint is not to be accessed in this way",
        OUT_OF_RANGE => "the access goes beyond the target's memory region",
        VOLATILE => "what was to be durable was for a memory region of the target that is not persistent",
        NOT_DURABLE => "it was written, but the target's system could not make it durable",
        REFUSED_WHEN_DUE => "the operation waited for a counter, and was refused when it was due",
        FLUSHED => "another operation of the connection has failed first, and has ended the connection",
        PEER_RECEIVE => {
            "a receive of the peer was too short for its message, and the peer has ended the connection"
        }
        NO_DESCRIPTORS => "the peer has too few descriptors for a link: raise its RLIMIT_NOFILE",
        NO_MEMORY_FILES => {
            "the peer may not create memory to share (RLIMIT_FSIZE, seccomp): use the domain auto or tcp"
        }
        errno => Errno::new(errno).description(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homespun_engine::address::Address;
    use homespun_engine::error::Misuse;
    use std::collections::BTreeSet;

    /// Shows fi_cq/err-is-general-reason, fi_cq/strerror-text, fi_cq/prov-errno-field.
    #[test]
    fn each_error_has_its_own_number_and_text() {
        let address: Address = "127.0.0.1:1".parse().unwrap();
        let errors = [
            OperationError::Truncated { overflow_bytes: 1 },
            OperationError::Cancelled,
            OperationError::Flushed,
            OperationError::PeerReceive,
            OperationError::NoMessage,
            OperationError::Fault,
            OperationError::UnknownSource,
            OperationError::Refused(Refusal::Key),
            OperationError::Refused(Refusal::Access),
            OperationError::Refused(Refusal::Range),
            OperationError::Refused(Refusal::Volatile),
            OperationError::NotDurable,
            OperationError::Deferred(Box::new(Misuse::NotConnected)),
            OperationError::Link(LinkError::Closed),
            OperationError::Link(LinkError::Denied(Denial::OtherUser)),
            OperationError::Link(LinkError::Denied(Denial::NoDescriptors)),
            OperationError::Link(LinkError::Denied(Denial::NoMemoryFiles)),
            OperationError::Link(LinkError::Protocol("why")),
            OperationError::Link(LinkError::OtherVersion { theirs: 1 }),
            OperationError::Link(LinkError::NoEndpoint { medium: "TCP" }),
            OperationError::Link(LinkError::LoopbackOnly { own: Box::new(address), peer: Box::new(address) }),
            OperationError::Link(LinkError::System(Errno::ECONNREFUSED)),
            OperationError::Link(LinkError::System(Errno::ECONNRESET)),
        ];
        let unknown = strerror(-1);
        let texts: BTreeSet<&str> = errors.iter().map(|error| strerror(prov_errno(error))).collect();
        assert_eq!(texts.len(), errors.len());
        assert!(!texts.contains(unknown));
    }

    /// Shows fi_cq/prov-errno-field.
    #[test]
    fn own_error_numbers_are_not_fabric_errnos() {
        for own in TRUNCATED..=NO_MEMORY_FILES {
            assert_eq!(Errno::new(own).name(), None, "{own}");
        }
    }

    #[test]
    fn system_errno_has_its_standard_description() {
        assert_eq!(strerror(Errno::ECONNREFUSED.raw()), Errno::ECONNREFUSED.description());
        for unknown in [i32::MIN, -1, 0, FIRST - 1, NO_MEMORY_FILES + 1, i32::MAX] {
            assert_eq!(strerror(unknown), "Unknown error", "{unknown}");
        }
    }
}
