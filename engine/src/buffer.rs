//! The memory of operations: the source of a send, and the destination of a receive.
//!
//! There are two tiers, which the engine handles alike. The owned tier holds the application's
//! [`Bytes`] or [`BytesMut`] until the operation ends, and hands them back with the completion. The
//! raw tier holds addresses, for C callers and for callers that keep their memory. Creating a raw
//! buffer is `unsafe`; using a raw buffer is not. A [`SendBuffer`] is owned memory that peers can
//! map. Of the engine's modules, only this module and
//! [`region`](crate::region) turn addresses of the application's memory into slices.

mod destination;
mod reusable;
mod segment;
mod send_buffer;
mod source;

use bytes::{Bytes, BytesMut};

pub use self::destination::Destination;
pub use self::reusable::ReusableBuffer;
pub use self::segment::{Segment, SegmentMut};
pub use self::send_buffer::SendBuffer;
pub use self::source::Source;

/// The application's memory, which a completion hands back.
///
/// ```
/// use bytes::BytesMut;
/// # use homespun_engine::buffer::Buffer;
///
/// /// What was received, in one piece.
/// fn message(buffer: Buffer) -> Option<BytesMut> {
///     match buffer {
///         Buffer::ReceivedVector(pieces) => Some(pieces.into_iter().flatten().collect()),
///         other => other.into_received(),
///     }
/// }
/// let pieces = vec![BytesMut::from("hel"), BytesMut::from("lo")];
/// assert_eq!(message(Buffer::ReceivedVector(pieces)).as_deref(), Some(&b"hello"[..]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Buffer {
    /// Nothing: the operation was posted through the raw tier, or has no memory.
    #[default]
    None,
    /// The payload of a send.
    Sent(Bytes),
    /// The payload of a vectored send.
    SentVector(Vec<Bytes>),
    /// The payload of a receive, cut to the length of the message.
    Received(BytesMut),
    /// The payload of a receive into a buffer that can be posted again as it is.
    Reusable(ReusableBuffer),
    /// The payload of a vectored receive. The message fills the buffers in order. Each buffer is
    /// cut to the bytes that it received.
    ReceivedVector(Vec<BytesMut>),
    /// The bytes of a message in a multi-receive buffer that was posted through the raw tier.
    Within(SegmentMut),
    /// The unused memory of a multi-receive buffer whose release comes without a message.
    Unused(BytesMut),
    /// The last message of a multi-receive buffer, with the unused memory of the buffer.
    ReceivedLast(Box<ReceivedLast>),
    /// The result of a fetching atomic operation, with the buffers that it was posted with.
    Fetched(Box<Fetched>),
}

/// The last message of a multi-receive buffer that was posted through the owned tier, `fi_msg(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedLast {
    /// The message.
    pub message: BytesMut,
    /// The unused end of the buffer, after the message that was placed last. Messages may complete
    /// in another order than they were placed, so that message may differ from `message`.
    pub unused: BytesMut,
}

/// The buffers of a fetching atomic operation, `fi_atomic(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The former elements: [`Buffer::Received`], or [`Buffer::ReceivedVector`] if the application
    /// posted several buffers for the result. Empty if the operation has failed.
    pub result: Buffer,
    /// The operands: [`Buffer::Sent`] or [`Buffer::SentVector`].
    pub operand: Buffer,
    /// The compare operands, in the same form as the operands; [`Buffer::None`] if the operation
    /// has none.
    pub compare: Buffer,
}

impl Buffer {
    /// Returns the result of a fetching atomic operation, with the buffers that it was posted with.
    pub fn into_fetched(self) -> Option<Fetched> {
        if let Buffer::Fetched(fetched) = self { Some(*fetched) } else { None }
    }

    /// Returns the payload of a send, if it was posted in one owned buffer.
    pub fn into_sent(self) -> Option<Bytes> {
        if let Buffer::Sent(bytes) = self { Some(bytes) } else { None }
    }

    /// Returns the payload of a send, if it was posted in several owned buffers.
    pub fn into_sent_vector(self) -> Option<Vec<Bytes>> {
        if let Buffer::SentVector(buffers) = self { Some(buffers) } else { None }
    }

    /// Returns the received or fetched data, if one owned buffer was posted for it.
    ///
    /// ```
    /// use bytes::BytesMut;
    /// # use homespun_engine::buffer::Buffer;
    ///
    /// let received = Buffer::Received(BytesMut::from("hello"));
    /// assert_eq!(received.into_received().as_deref(), Some(&b"hello"[..]));
    /// ```
    pub fn into_received(self) -> Option<BytesMut> {
        match self {
            Buffer::Received(buffer) => Some(buffer),
            Buffer::Reusable(buffer) => Some(buffer.into_message()),
            Buffer::ReceivedLast(last) => Some(last.message),
            Buffer::Fetched(fetched) => fetched.result.into_received(),
            _ => None,
        }
    }

    /// Returns the reusable buffer that holds the received message, if the receive was posted with
    /// one.
    pub fn into_reusable(self) -> Option<ReusableBuffer> {
        if let Buffer::Reusable(buffer) = self { Some(buffer) } else { None }
    }

    /// Returns the received or fetched data, if several owned buffers were posted for it.
    pub fn into_received_vector(self) -> Option<Vec<BytesMut>> {
        match self {
            Buffer::ReceivedVector(buffers) => Some(buffers),
            Buffer::Fetched(fetched) => fetched.result.into_received_vector(),
            _ => None,
        }
    }
}
