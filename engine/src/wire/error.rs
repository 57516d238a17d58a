//! Why bytes from a peer are refused.

/// Why bytes were refused: each names a way in which a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum WireError {
    /// A hello does not start with homespun's magic number.
    BadMagic,
    /// The peer speaks another version of the protocol.
    UnknownVersion,
    /// A frame is of a kind that does not exist.
    UnknownKind,
    /// A flag is set that does not exist or does not belong to the kind.
    UnknownFlag,
    /// An atomic operation that there is not, or not for such elements.
    UnknownOperation,
    /// Reserved bytes are not zero.
    ReservedNotZero,
    /// A length is larger than any message may be.
    ImpossibleLength,
    /// A check does not agree with what it is the check of: bytes were changed, or they are no header.
    WrongCheck,
    /// A line of a ring is neither the next one nor the one that was there before.
    OutOfSequence,
    /// A hello names an address that is none.
    MalformedAddress,
}

impl WireError {
    /// The reason as a constant text, for [`LinkError::Protocol`](crate::transport::LinkError::Protocol).
    pub fn reason(self) -> &'static str {
        match self {
            WireError::BadMagic => "not a homespun endpoint",
            WireError::UnknownVersion => "unknown protocol version",
            WireError::UnknownKind => "unknown frame kind",
            WireError::UnknownFlag => "unknown flag",
            WireError::UnknownOperation => "unknown atomic operation",
            WireError::ReservedNotZero => "reserved bytes are not zero",
            WireError::ImpossibleLength => "impossible length",
            WireError::WrongCheck => "a header that does not agree with its check",
            WireError::OutOfSequence => "a line out of sequence",
            WireError::MalformedAddress => "malformed address",
        }
    }
}
