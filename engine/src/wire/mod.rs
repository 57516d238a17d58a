//! What travels between endpoints.
//!
//! [`Header`] says what a frame means; it is what transports and engine exchange. How it is laid out on a
//! byte stream is the business of [`frame`], what the two sides of a stream say first of [`hello`], and
//! taking a stream apart again of [`stream`].

pub mod frame;
pub mod hello;
pub mod stream;
#[cfg(test)]
mod testing;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A message, tagged or not, followed by its payload.
    Message(Message),
    /// "This many messages have arrived in whole on this link": the acknowledgement travels against the
    /// messages that it counts, on the same link, so a count never outlives what it counts. Has no payload.
    Ack {
        /// The cumulative count since the link came up.
        received: u64,
    },
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Payload length in bytes.
    pub len_bytes: u64,
    /// The tag, if it is a tagged message.
    pub tag: Option<u64>,
    /// Completion data for the receiver (`FI_REMOTE_CQ_DATA`).
    pub data: Option<u64>,
    /// Whether the sender waits for an acknowledgement that includes this message.
    pub wants_ack: bool,
}

impl Header {
    /// How many bytes of payload follow this header.
    pub fn payload_len_bytes(&self) -> u64 {
        match self {
            Header::Message(message) => message.len_bytes,
            Header::Ack { .. } => 0,
        }
    }
}

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
    /// Reserved bytes are not zero.
    ReservedNotZero,
    /// A length is larger than any message may be.
    ImpossibleLength,
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
            WireError::ReservedNotZero => "reserved bytes are not zero",
            WireError::ImpossibleLength => "impossible length",
            WireError::MalformedAddress => "malformed address",
        }
    }
}
