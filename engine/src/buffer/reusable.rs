//! Buffers that receive one message after another.

use std::fmt;
use std::ops::Deref;

use bytes::BytesMut;

/// A buffer that takes one receive after another, and is initialised only once.
///
/// A [`BytesMut`] comes back cut to the message. To post the `BytesMut` again at full length, the
/// application must `resize` it, and `resize` writes every byte behind the message. A reusable
/// buffer keeps its room, and can be posted again without a write. A completion hands it back as
/// [`Buffer::Reusable`](super::Buffer::Reusable). It dereferences to the message.
///
/// All of the memory is initialised, because a transport gets it as a slice. The memory behind the
/// message may hold bytes of earlier messages, but no method shows them.
///
/// The buffer takes 32 bytes besides its room.
///
/// ```
/// use bytes::BytesMut;
/// # use homespun_engine::buffer::ReusableBuffer;
///
/// let buffer = ReusableBuffer::zeroed(1 << 20);
/// assert_eq!((buffer.room_bytes(), &buffer[..]), (1 << 20, &b""[..]));
///
/// // Existing memory becomes room as far as it is initialised.
/// let buffer = ReusableBuffer::from(BytesMut::from("what is overwritten"));
/// assert_eq!((buffer.room_bytes(), buffer.len()), (19, 0));
/// ```
// The `BytesMut` is the message. All of its capacity is initialised. A second field would make
// receives and completions larger.
#[derive(Default)]
pub struct ReusableBuffer(BytesMut);

impl ReusableBuffer {
    /// Creates room for messages of up to this length.
    pub fn zeroed(room_bytes: usize) -> ReusableBuffer {
        BytesMut::zeroed(room_bytes).into()
    }

    /// Returns the length of the longest message that fits.
    #[inline]
    pub fn room_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Forgets the message. Posting the buffer also forgets the message.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the message in the same memory. The rest of the room becomes spare capacity.
    pub fn into_message(self) -> BytesMut {
        self.0
    }

    /// Returns all of the room, to be written to.
    #[inline]
    pub(super) fn into_room(mut self) -> BytesMut {
        let room_bytes = self.0.capacity();
        // SAFETY: all of the capacity is initialised. The buffer was made from a `BytesMut` whose
        // capacity did not exceed its length, and since then only the length has changed.
        unsafe { self.0.set_len(room_bytes) };
        self.0
    }

    /// Returns a buffer with the room that [`into_room`](Self::into_room) returned, and a message
    /// of this length.
    #[inline]
    pub(super) fn from_room(mut room: BytesMut, message_bytes: usize) -> ReusableBuffer {
        debug_assert_eq!(room.len(), room.capacity());
        room.truncate(message_bytes);
        ReusableBuffer(room)
    }
}

/// Makes an empty buffer whose room is these bytes, without the spare capacity of the `BytesMut`.
impl From<BytesMut> for ReusableBuffer {
    fn from(mut bytes: BytesMut) -> ReusableBuffer {
        if bytes.capacity() > bytes.len() {
            drop(bytes.split_off(bytes.len()));
        }
        ReusableBuffer::from_room(bytes, 0)
    }
}

/// Dereferences to the message.
impl Deref for ReusableBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Copies the message into new room of the same length.
impl Clone for ReusableBuffer {
    fn clone(&self) -> ReusableBuffer {
        let mut room = ReusableBuffer::zeroed(self.room_bytes()).into_room();
        room[..self.len()].copy_from_slice(self);
        ReusableBuffer::from_room(room, self.len())
    }
}

/// Compares the rooms' lengths and the messages, but not the bytes behind the messages.
impl PartialEq for ReusableBuffer {
    fn eq(&self, other: &ReusableBuffer) -> bool {
        self.room_bytes() == other.room_bytes() && self[..] == other[..]
    }
}

impl Eq for ReusableBuffer {}

impl fmt::Debug for ReusableBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReusableBuffer")
            .field("room_bytes", &self.room_bytes())
            .field("message", &&self[..])
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes buffers with equal room from each kind of memory that a `BytesMut` can have.
    fn make_buffers_of_every_kind() -> Vec<ReusableBuffer> {
        let spacious = |len_bytes| {
            let mut bytes = BytesMut::with_capacity(100);
            bytes.resize(len_bytes, 1);
            bytes
        };
        let (mut front, mut back) = (spacious(80), spacious(80));
        drop(front.split_off(64));
        let back = back.split_off(16);
        let made_of = [BytesMut::zeroed(64), BytesMut::from(&[2; 64][..]), spacious(64), front, back];
        made_of.map(ReusableBuffer::from).into()
    }

    #[test]
    fn reusable_buffer_keeps_its_length_from_message_to_message() {
        for mut buffer in make_buffers_of_every_kind() {
            for (mark, len_bytes) in (3u8..).zip([64, 0, 7, 63, 64]) {
                let mut room = buffer.into_room();
                assert_eq!(room.len(), 64);
                room[..len_bytes].fill(mark);
                buffer = ReusableBuffer::from_room(room, len_bytes);
                assert_eq!((buffer.room_bytes(), &buffer[..]), (64, &[mark; 64][..len_bytes]));
                assert_eq!(buffer.clone(), buffer);
            }
            buffer.clear();
            assert_eq!((buffer.room_bytes(), buffer.len()), (64, 0));
        }
    }

    #[test]
    fn reusable_buffer_made_of_a_message_keeps_its_length() {
        for buffer in make_buffers_of_every_kind() {
            let message = ReusableBuffer::from_room(buffer.into_room(), 5).into_message();
            assert_eq!(message.len(), 5);
            assert_eq!(ReusableBuffer::from(message).room_bytes(), 5, "more is not known to be initialised");
        }
        assert_eq!(ReusableBuffer::default().room_bytes(), 0);
    }
}
