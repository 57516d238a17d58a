//! The errors in bytes from a peer.

/// Why bytes were refused: how the peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum WireError {
    /// A hello does not start with homespun's magic number.
    BadMagic,
    /// The peer speaks another version of the protocol.
    OtherVersion {
        /// The peer's version.
        theirs: u16,
    },
    /// No frame has this kind.
    UnknownKind,
    /// The kind does not have this flag.
    UnknownFlag,
    /// There is no such atomic operation, or not for this datatype.
    UnknownOperation,
    /// Reserved bytes are not zero.
    ReservedNotZero,
    /// A length exceeds its limit, or contradicts the header.
    ImpossibleLength,
    /// A check does not match its bytes: they were corrupted, or are no header.
    WrongCheck,
    /// A line of a shared-memory ring has a sequence number that is neither of this lap nor of the previous
    /// lap.
    OutOfSequence,
    /// A hello carries an address that is invalid.
    MalformedAddress,
    /// A record that does not exist, or that the peer must not send now.
    OutOfTurn,
}

impl WireError {
    /// Returns the reason as text for
    /// [`LinkError::Protocol`](crate::transport::LinkError::Protocol).
    pub fn reason(self) -> &'static str {
        match self {
            WireError::BadMagic => "not a homespun endpoint",
            WireError::OtherVersion { .. } => "another version of the protocol",
            WireError::UnknownKind => "unknown frame kind",
            WireError::UnknownFlag => "unknown flag",
            WireError::UnknownOperation => "unknown atomic operation",
            WireError::ReservedNotZero => "reserved bytes are not zero",
            WireError::ImpossibleLength => "impossible length",
            WireError::WrongCheck => "a header that does not agree with its check",
            WireError::OutOfSequence => "a line out of sequence",
            WireError::MalformedAddress => "malformed address",
            WireError::OutOfTurn => "a record that is not expected here",
        }
    }
}
