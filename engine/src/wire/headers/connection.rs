//! A step in the life of a connection: [`Header::Connection`](crate::wire::Header::Connection).

use crate::limits::CONNECTION_DATA_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// A step in the life of a connection: `fi_cm(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeHeader {
    /// The step.
    pub step: HandshakeStep,
    /// The number that the requester has drawn at random. No endpoint learns it, except the passive
    /// endpoint and the acceptor.
    pub number: u64,
    /// The length of the application's data, at most [`CONNECTION_DATA_MAX_BYTES`]. Only a request
    /// and its answer have data.
    pub data_bytes: u16,
}

/// The steps in the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Asks a passive endpoint for a connection.
    Request,
    /// Accepts the request. The link that carries this step is the connection from now on.
    Accept,
    /// Rejects the request, over the link that it came by. On a connection, rejects a message that was too
    /// long for its receive: the sender of this step ends the connection.
    Reject,
    /// Confirms the accept: the requester's first step on the connection.
    Confirm,
    /// Ends the connection. The sender of this step sends nothing more, and ignores all frames but the
    /// peer's own `Shutdown`. The side that receives this step ends the link.
    Shutdown,
}

impl HandshakeStep {
    /// All steps, in the order of their numbers on the wire.
    pub const ALL: [HandshakeStep; 5] = [
        HandshakeStep::Request,
        HandshakeStep::Accept,
        HandshakeStep::Reject,
        HandshakeStep::Confirm,
        HandshakeStep::Shutdown,
    ];

    /// Returns the step's number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the step that has this number on the wire.
    pub fn from_number(number: u8) -> Option<HandshakeStep> {
        HandshakeStep::ALL.get(usize::from(number)).copied()
    }

    /// Returns the most bytes of the application's data that the step may carry.
    pub fn data_max_bytes(self) -> usize {
        match self {
            HandshakeStep::Request | HandshakeStep::Accept | HandshakeStep::Reject => {
                CONNECTION_DATA_MAX_BYTES
            }
            HandshakeStep::Confirm | HandshakeStep::Shutdown => 0,
        }
    }
}

/// Words: the connection's number. The flags are the number of the step. The payload is the
/// application's data.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(18)
    .allow_number_up_to(HandshakeStep::ALL.len() as u8 - 1)
    .add_words(1)
    .allow_payload_up_to(CONNECTION_DATA_MAX_BYTES as u64);

const _: () = assert!(CONNECTION_DATA_MAX_BYTES <= u16::MAX as usize);

#[inline(always)]
pub(in crate::wire) fn encode_words(handshake: HandshakeHeader, put: &mut impl FnMut(u64)) -> Fields {
    let HandshakeHeader { step, number, data_bytes } = handshake;
    debug_assert!(usize::from(data_bytes) <= step.data_max_bytes(), "more data than a peer takes");
    put(number);
    Fields::new(&RULE, step.number(), u64::from(data_bytes))
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<HandshakeHeader, WireError> {
    let step = HandshakeStep::from_number(fields.form.flags()).ok_or(WireError::UnknownFlag)?;
    if fields.payload_len_bytes > step.data_max_bytes() as u64 {
        return Err(WireError::ImpossibleLength);
    }
    Ok(HandshakeHeader { step, number: word(), data_bytes: fields.payload_len_bytes as u16 })
}
