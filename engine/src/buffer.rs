//! The memory of operations: what a send gathers from and a receive scatters to.
//!
//! There are two tiers over one path. The owned tier holds the application's [`Bytes`] or
//! [`BytesMut`] until the operation ends and hands it back with the completion. The raw tier holds
//! addresses, for C callers and for callers that want no copy and no ownership; making one is
//! `unsafe`, using it is not. Of the engine's modules only these and [`region`](crate::region) turn
//! addresses of the application's memory into slices.

mod destination;
mod reusable;
mod segment;
mod source;

use bytes::{Bytes, BytesMut};

pub use self::destination::Destination;
pub use self::reusable::ReusableBuffer;
pub use self::segment::{Segment, SegmentMut};
pub use self::source::Source;

/// The application's memory on its way back, in a completion.
///
/// ```
/// use bytes::BytesMut;
/// use homespun_engine::buffer::Buffer;
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
    /// The operation was posted through the raw tier: there is nothing to hand back.
    #[default]
    None,
    /// What was sent.
    Sent(Bytes),
    /// What was sent by a vectored operation.
    SentVector(Vec<Bytes>),
    /// What was received, cut to the length of the message.
    Received(BytesMut),
    /// What was received into a buffer that can be posted again as it is.
    Reusable(ReusableBuffer),
    /// What was received by a vectored operation; the message fills the buffers in order, each is
    /// cut to what it holds.
    ReceivedVector(Vec<BytesMut>),
    /// Where a message lies in a multi-receive buffer that was posted through the raw tier, as far
    /// as it was placed.
    Within(SegmentMut),
    /// What a multi-receive buffer has not used, if it is released without a message.
    Unused(BytesMut),
    /// The last message of a multi-receive buffer, together with what it has not used.
    ReceivedLast(Box<ReceivedLast>),
    /// What an atomic operation has fetched, together with what it was posted with.
    Fetched(Box<Fetched>),
}

/// The last message of a multi-receive buffer that was posted through the owned tier, `fi_msg(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedLast {
    /// The message.
    pub message: BytesMut,
    /// The end of the buffer, which no message has used. It lies behind the last one to be placed,
    /// which need not be this one: messages may complete in another order.
    pub unused: BytesMut,
}

/// The buffers of an atomic operation that fetches, `fi_atomic(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// What the elements were before: [`Buffer::Received`], or [`Buffer::ReceivedVector`] where
    /// there were several buffers for it. Empty if the operation has failed.
    pub result: Buffer,
    /// The operands: [`Buffer::Sent`] or [`Buffer::SentVector`].
    pub operand: Buffer,
    /// What the elements were compared with, in the same way; [`Buffer::None`] if they were not.
    pub compare: Buffer,
}

impl Buffer {
    /// What an atomic operation has fetched, together with what it was posted with.
    pub fn into_fetched(self) -> Option<Fetched> {
        if let Buffer::Fetched(fetched) = self { Some(*fetched) } else { None }
    }

    /// What was sent, if it was posted in one owned piece.
    pub fn into_sent(self) -> Option<Bytes> {
        if let Buffer::Sent(bytes) = self { Some(bytes) } else { None }
    }

    /// What was sent, if it was posted in several owned pieces.
    pub fn into_sent_vector(self) -> Option<Vec<Bytes>> {
        if let Buffer::SentVector(buffers) = self { Some(buffers) } else { None }
    }

    /// What was received or fetched, if one owned buffer was posted for it.
    ///
    /// ```
    /// use bytes::BytesMut;
    /// use homespun_engine::buffer::Buffer;
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

    /// The buffer that was posted, with what was received, if it is one that can be posted again.
    pub fn into_reusable(self) -> Option<ReusableBuffer> {
        if let Buffer::Reusable(buffer) = self { Some(buffer) } else { None }
    }

    /// What was received or fetched, if several owned buffers were posted for it.
    pub fn into_received_vector(self) -> Option<Vec<BytesMut>> {
        match self {
            Buffer::ReceivedVector(buffers) => Some(buffers),
            Buffer::Fetched(fetched) => fetched.result.into_received_vector(),
            _ => None,
        }
    }
}
