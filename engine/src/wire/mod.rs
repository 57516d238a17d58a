//! What travels between endpoints.
//!
//! [`Header`] says what a frame means; it is what transports and engine exchange. How it is laid out on a
//! byte stream is the business of [`frame`], what the two sides of a stream say first of [`hello`], and
//! taking a stream apart again of [`stream`].

mod atomic;
pub mod check;
pub mod frame;
pub mod hello;
pub mod stream;
#[cfg(test)]
mod testing;

pub use self::atomic::{Atomic, AtomicForm};
use crate::limits::CONNECTION_DATA_MAX_BYTES;

/// The header of a frame.
///
/// A message travels in one of two ways. An eager one is a [`Message`](Header::Message) with its payload. In a
/// rendezvous the payload stays where it is, and the receiver fetches it or asks for it:
///
/// ```text
///  sender                                   receiver
///    Request(op)  ------------------------>   matches, or has room for it; pulls
///                 <------------------------  Done(op)
///
///    Request(op)  ------------------------>   matches, or has room for it; cannot pull
///                 <------------------------  Clear(op)
///    Data(op) + payload  ----------------->
///                 <------------------------  Done(op), if the sender waits for it
/// ```
///
/// Memory that a peer has registered is written and read without a message. Each of these operations has a number and is
/// answered once, also if it is refused:
///
/// ```text
///  initiator                                target
///    Rma(op, write) + payload  ----------->   puts it into the region
///                 <------------------------  Answer(op)
///
///    Rma(op, offer)  --------------------->   pulls, or says Clear(op) and gets Data(op)
///                 <------------------------  Answer(op)
///
///    Rma(op, read)  ---------------------->
///                 <------------------------  ReadData(op) + a piece, as often as needed
///                 <------------------------  Answer(op)
///
///    Atomic(op) + operands  -------------->   updates elements of the region
///                 <------------------------  Answer(op), or if they are fetched ReadData(op) + results
/// ```
///
/// A region that the initiator can map is shown to it once it has accessed it. From then on there may be no frames at all.
///
/// ```text
///  initiator                                target
///                 <------------------------  Shown(key)
///    writes and reads
/// ```
///
/// Endpoints of `FI_EP_MSG` talk to one peer only, with which they are connected first:
///
/// ```text
///  requester                                passive endpoint
///    Connection(request) + data  --------->
///                 <------------------------  Connection(reject) + data
///
///  requester                                the endpoint that accepts, over a link of its own
///                 <------------------------  Connection(accept) + data
///       ... everything else, in both directions, and soon ...
///    Connection(confirm)  ---------------->
///       ...
///    Connection(shutdown)  --------------->  ends the link
/// ```
///
/// Messages and requests cost the sender [credit](crate::limits::MESSAGE_COST_BYTES), which the receiver gives by
/// [`Credit`](Header::Credit), and so does what writes and brings data for a completion. Nothing else does, so nothing
/// else ever waits for a receive to be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// An eager message; its payload follows.
    Message(Message),
    /// "This many eager messages have arrived in whole on this link": the acknowledgement travels against the
    /// messages that it counts, on the same link, so a count never outlives what it counts. Has no payload.
    Ack {
        /// The cumulative count since the link came up.
        received: u64,
    },
    /// A message whose payload the receiver is to fetch. What follows as payload is a
    /// [`Remote`](crate::transport::Remote), empty if there is nothing to pull and the receiver can only ask.
    Request {
        /// The message.
        message: Message,
        /// The sender's number for the operation, unique on the link while the operation lives.
        op: u64,
        /// How long the description that follows is, at most [`REMOTE_MAX_BYTES`](crate::limits::REMOTE_MAX_BYTES).
        remote_bytes: u8,
    },
    /// "Send it": the receiver has matched the request, or has room for it. Has no payload.
    Clear {
        /// The number in the request.
        op: u64,
        /// Whether the receiver tried to pull and cannot: nothing need be exposed to it any more.
        cannot_pull: bool,
    },
    /// The payload that the receiver has asked for.
    Data {
        /// The number in the request.
        op: u64,
        /// The length of the message, as in the request.
        len_bytes: u64,
    },
    /// "It is in place", or "it could not be read": the sender will hear no more of the operation. Has no payload.
    Done {
        /// The number in the request.
        op: u64,
        /// What was exposed was not readable ([`Pull::Fault`](crate::transport::Pull::Fault)).
        fault: bool,
    },
    /// "The application has matched, or thrown away, this eager message", for one that [awaits](Awaits::Match) it. Has
    /// no payload.
    Matched {
        /// The message's number among the eager messages of the link, as [`Ack`](Header::Ack) counts them: the first is 1.
        number: u64,
    },
    /// "Messages may have cost you this much in all." Has no payload.
    Credit {
        /// The cumulative limit since the link came up, in bytes. It never shrinks, and begins at
        /// [`CREDIT_INITIAL_BYTES`](crate::limits::CREDIT_INITIAL_BYTES).
        granted_bytes: u64,
    },
    /// "Say [`Fenced`](Header::Fenced) when all messages before this have arrived": no other fence follows before that, and
    /// messages only if nobody waits for the answer any more. Has no payload.
    Fence {
        /// Whether they are to be matched or thrown away too.
        matched: bool,
    },
    /// "What was asked for by [`Fence`](Header::Fence) is so." Has no payload.
    Fenced,
    /// Access to a region of the receiver. No more than [`RMA_LINK_MAX_OPS`](crate::limits::RMA_LINK_MAX_OPS) of a link
    /// are unanswered at a time.
    Rma(Rma),
    /// An atomic operation on a region of the receiver. It counts as an access like the others. Those whose results are under
    /// way bring no more than [`ATOMIC_LINK_MAX_BYTES`](crate::limits::ATOMIC_LINK_MAX_BYTES) together.
    Atomic(Atomic),
    /// The next piece of what is read from a region; or all that an atomic operation has fetched, which is answered by it.
    ReadData {
        /// The number in the request.
        op: u64,
        /// The length of this piece.
        len_bytes: u64,
    },
    /// "You may map this region of mine, and access it without my help."
    Shown(Shown),
    /// "It is done", or why it is not: the initiator will hear no more of the operation. Has no payload.
    Answer {
        /// The number in the request.
        op: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// What makes or ends a connection. The application's data follows as payload.
    Connection(Handshake),
}

/// A step in the life of a connection: `fi_cm(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Which step it is.
    pub step: HandshakeStep,
    /// The number that the requester has drawn at random. Whoever knows it was told by the requester, or by the passive
    /// endpoint that it has asked.
    pub number: u64,
    /// How much data of the application's follows, at most
    /// [`CONNECTION_DATA_MAX_BYTES`], and none but with a request and its answer.
    pub data_bytes: u16,
}

/// The steps in the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStep {
    /// "Connect to me", to a passive endpoint.
    Request,
    /// "This is the connection", to the requester, over the link that it is from now on. Anything may follow.
    Accept,
    /// "No", to the requester, over the link that the request came by.
    Reject,
    /// "So it is": the requester waits for nobody else any more. It is the first step that it takes on the connection.
    Confirm,
    /// "I send nothing more, and read nothing more." The other side ends the link.
    Shutdown,
}

impl HandshakeStep {
    /// All of them, by the number that they travel as.
    pub const ALL: [HandshakeStep; 5] = [
        HandshakeStep::Request,
        HandshakeStep::Accept,
        HandshakeStep::Reject,
        HandshakeStep::Confirm,
        HandshakeStep::Shutdown,
    ];

    /// The number that it travels as.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The step that travels as this number.
    pub fn from_number(number: u8) -> Option<HandshakeStep> {
        HandshakeStep::ALL.get(usize::from(number)).copied()
    }

    /// How much data of the application's may go with it.
    pub fn data_max_bytes(self) -> usize {
        match self {
            HandshakeStep::Request | HandshakeStep::Accept | HandshakeStep::Reject => {
                CONNECTION_DATA_MAX_BYTES
            }
            HandshakeStep::Confirm | HandshakeStep::Shutdown => 0,
        }
    }
}

/// Access to a region of the receiver: `fi_rma(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rma {
    /// The initiator's number for the operation, unique on the link while the operation lives.
    pub op: u64,
    /// The key of the region.
    pub key: u64,
    /// Where in the region, as its [address](crate::region::Region) is known to peers.
    pub address: u64,
    /// How much is read or written.
    pub len_bytes: u64,
    /// What is to be done.
    pub kind: RmaKind,
    /// What is to be durable before it is answered. Nothing, for a read.
    pub durable: Durable,
}

/// What an initiator waits for until it is durable: `FI_COMMIT_COMPLETE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durable {
    /// Nothing.
    #[default]
    Nothing,
    /// What the access writes.
    Written,
    /// That, and whatever was written to persistent memory on this link before.
    Everything,
}

/// What is to be done with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RmaKind {
    /// Send it back by [`Header::ReadData`]. Has no payload.
    Read,
    /// Write the payload.
    Write {
        /// Completion data for the target.
        data: Option<u64>,
    },
    /// Fetch what is to be written, as for a [`Header::Request`]. What follows as payload is a
    /// [`Remote`](crate::transport::Remote).
    Offer {
        /// Completion data for the target.
        data: Option<u64>,
        /// How long the description that follows is, at most [`REMOTE_MAX_BYTES`](crate::limits::REMOTE_MAX_BYTES).
        remote_bytes: u8,
    },
}

impl RmaKind {
    /// The completion data that it brings.
    pub fn data(&self) -> Option<u64> {
        match self {
            RmaKind::Read => None,
            RmaKind::Write { data } | RmaKind::Offer { data, .. } => *data,
        }
    }
}

/// A region of the sender that the receiver may map: see [`SharedMemory`](crate::transport::SharedMemory). What follows as
/// payload is a [`Remote`](crate::transport::Remote).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The key of the region.
    pub key: u64,
    /// The address of its first byte, as it is known to peers.
    pub address: u64,
    /// How long it is.
    pub len_bytes: u64,
    /// What the receiver may do with it: the bits of [`MrAccess`](crate::flags::MrAccess).
    pub access: u64,
    /// How long the description that follows is, at most [`REMOTE_MAX_BYTES`](crate::limits::REMOTE_MAX_BYTES).
    pub remote_bytes: u8,
}

/// What became of an access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was written, or sent.
    Done,
    /// It was refused, or ended, by the target.
    Refused(Refusal),
    /// What the initiator had offered was not readable ([`Pull::Fault`](crate::transport::Pull::Fault)).
    Fault,
    /// It was written, and could not be made durable.
    NotDurable,
}

/// Why a target refuses access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No region has this key, or no longer.
    #[error("no memory region has this key")]
    Key,
    /// The region, or the endpoint, is not to be accessed in this way.
    #[error("the memory region may not be accessed in this way")]
    Access,
    /// Not all of it lies in the region.
    #[error("beyond the memory region")]
    Range,
    /// It was to be durable, and the region is not of persistent memory.
    #[error("the memory region is not persistent")]
    Volatile,
}

impl Outcome {
    /// All of them, by the number that they travel as.
    pub(crate) const ALL: [Outcome; 7] = [
        Outcome::Done,
        Outcome::Refused(Refusal::Key),
        Outcome::Refused(Refusal::Access),
        Outcome::Refused(Refusal::Range),
        Outcome::Fault,
        Outcome::Refused(Refusal::Volatile),
        Outcome::NotDurable,
    ];

    /// The number that it travels as.
    pub fn number(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Refused(Refusal::Key) => 1,
            Outcome::Refused(Refusal::Access) => 2,
            Outcome::Refused(Refusal::Range) => 3,
            Outcome::Fault => 4,
            Outcome::Refused(Refusal::Volatile) => 5,
            Outcome::NotDurable => 6,
        }
    }

    /// The outcome that travels as this number.
    pub fn from_number(number: u8) -> Option<Outcome> {
        Outcome::ALL.get(usize::from(number)).copied()
    }
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
    /// What the sender waits to hear of it.
    pub awaits: Awaits,
}

/// What the sender of a message waits to hear of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Awaits {
    /// Nothing.
    #[default]
    Nothing,
    /// That all of it has arrived, in a posted buffer or in one of the endpoint's own. An eager message is
    /// acknowledged by [`Header::Ack`], a requested one by [`Header::Done`].
    Arrival,
    /// That the application has matched it, and it is in its buffer, or has thrown it away. An eager message is
    /// acknowledged by [`Header::Matched`], a requested one by [`Header::Done`].
    Match,
}

impl Header {
    /// How many bytes of payload follow this header.
    pub fn payload_len_bytes(&self) -> u64 {
        match self {
            Header::Message(message) => message.len_bytes,
            Header::Data { len_bytes, .. } | Header::ReadData { len_bytes, .. } => *len_bytes,
            Header::Rma(Rma { kind: RmaKind::Write { .. }, len_bytes, .. }) => *len_bytes,
            Header::Atomic(Atomic { form, .. }) => form.payload_len_bytes() as u64,
            Header::Rma(Rma { kind: RmaKind::Offer { remote_bytes, .. }, .. }) => u64::from(*remote_bytes),
            Header::Request { remote_bytes, .. } | Header::Shown(Shown { remote_bytes, .. }) => {
                u64::from(*remote_bytes)
            }
            Header::Connection(Handshake { data_bytes, .. }) => u64::from(*data_bytes),
            Header::Ack { .. }
            | Header::Clear { .. }
            | Header::Done { .. }
            | Header::Matched { .. }
            | Header::Credit { .. }
            | Header::Fence { .. }
            | Header::Fenced
            | Header::Rma(Rma { kind: RmaKind::Read, .. })
            | Header::Answer { .. } => 0,
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
