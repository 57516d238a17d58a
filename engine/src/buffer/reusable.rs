//! Memory for receives that is used again and again.

use std::fmt;
use std::ops::Deref;

use bytes::BytesMut;

/// Memory for one receive after another, which is initialised once.
///
/// A [`BytesMut`] comes back cut to the message. To post it again at its full length, an application has to
/// `resize` it, which writes to all that the message has not filled: for a message of 64 bytes, to nearly all
/// of 1 MiB. This buffer keeps its length. It comes back in [`Buffer::Reusable`](super::Buffer::Reusable),
/// shows the message alone, and is posted again as it is.
///
/// All of the memory is initialised, because a transport gets it as a slice. The system zeroes large memory
/// of [`zeroed`](Self::zeroed) when it is first touched. Behind the message is what earlier messages have
/// left there, which is never shown.
///
/// It takes its room and 48 bytes.
///
/// ```
/// use bytes::BytesMut;
/// use homespun_engine::buffer::ReusableBuffer;
///
/// let buffer = ReusableBuffer::zeroed(1 << 20);
/// assert_eq!((buffer.room_bytes(), &buffer[..]), (1 << 20, &b""[..]));
///
/// // Memory that is there already is room as far as it is initialised.
/// let buffer = ReusableBuffer::from(BytesMut::from("what is overwritten"));
/// assert_eq!((buffer.room_bytes(), buffer.len()), (19, 0));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ReusableBuffer(Box<ReusableMemory>);

// In a box, so that a completion does not get longer by it.
#[derive(Clone)]
struct ReusableMemory {
    /// All of the room.
    bytes: BytesMut,
    /// How many bytes of it, from the front, are the message.
    message_bytes: usize,
}

impl ReusableMemory {
    #[inline]
    fn message(&self) -> &[u8] {
        &self.bytes[..self.message_bytes]
    }
}

impl ReusableBuffer {
    /// Room for messages of up to this length.
    pub fn zeroed(room_bytes: usize) -> ReusableBuffer {
        BytesMut::zeroed(room_bytes).into()
    }

    /// The length of the longest message that fits.
    #[inline]
    pub fn room_bytes(&self) -> usize {
        self.0.bytes.len()
    }

    /// Forgets the message. A buffer that is posted forgets it, too.
    pub fn clear(&mut self) {
        self.0.message_bytes = 0;
    }

    /// The message, in the same memory. What is behind it remains as capacity.
    pub fn into_message(self) -> BytesMut {
        let ReusableMemory { mut bytes, message_bytes } = *self.0;
        bytes.truncate(message_bytes);
        bytes
    }

    /// All of the room, to be written to.
    #[inline]
    pub(super) fn room_mut(&mut self) -> &mut [u8] {
        &mut self.0.bytes
    }

    /// Shows so many bytes as the message.
    #[inline]
    pub(super) fn set_message(&mut self, message_bytes: usize) {
        self.0.message_bytes = message_bytes.min(self.0.bytes.len());
    }
}

/// Its bytes are the room, and there is no message yet.
impl From<BytesMut> for ReusableBuffer {
    fn from(bytes: BytesMut) -> ReusableBuffer {
        ReusableBuffer(Box::new(ReusableMemory { bytes, message_bytes: 0 }))
    }
}

/// The message.
impl Deref for ReusableBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.message()
    }
}

/// No room.
impl Default for ReusableBuffer {
    fn default() -> ReusableBuffer {
        ReusableBuffer::from(BytesMut::new())
    }
}

/// Room of the same length with the same message: what is behind that is not looked at.
impl PartialEq for ReusableMemory {
    fn eq(&self, other: &ReusableMemory) -> bool {
        self.bytes.len() == other.bytes.len() && self.message() == other.message()
    }
}

impl Eq for ReusableMemory {}

impl fmt::Debug for ReusableBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReusableBuffer")
            .field("room_bytes", &self.room_bytes())
            .field("message", &&self[..])
            .finish()
    }
}
