//! The contents of messages. A number determines all bytes of a message. So a test finds each misplaced
//! byte.

use homespun::{Buffer, Bytes, BytesMut};

/// The period of a message's content. The period has a large prime factor. So a misplaced byte differs from
/// the expected byte, even if it is misplaced by a small multiple of the size of a buffer, a page or a ring.
const PERIOD_BYTES: usize = 8 * 1009;

/// Returns the first `len_bytes` bytes of an endless text. The text begins with `identity`, and is different
/// for each `identity`.
pub fn payload(identity: u64, len_bytes: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(len_bytes + PERIOD_BYTES);
    bytes.extend_from_slice(&identity.to_le_bytes());
    let mut word = identity ^ 0x9e37_79b9_7f4a_7c15;
    while bytes.len() < len_bytes.min(PERIOD_BYTES) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(word ^ word >> 29).to_le_bytes());
    }
    while bytes.len() < len_bytes {
        bytes.extend_from_within(..bytes.len().min(len_bytes - bytes.len()));
    }
    bytes.truncate(len_bytes);
    Bytes::from(bytes)
}

/// Splits a message into `count` pieces of uneven length, the shortest first.
pub fn split_unevenly(message: &Bytes, count: usize) -> Vec<Bytes> {
    let mut rest = message.clone();
    let mut pieces = Vec::new();
    for left in (1..=count).rev() {
        let len_bytes = if left == 1 { rest.len() } else { rest.len() / (left + 1) };
        pieces.push(rest.split_to(len_bytes));
    }
    pieces
}

/// Returns a buffer of `len_bytes` bytes with a certain value. By this value tests recognise memory that
/// nothing was written to.
pub fn marked_buffer(len_bytes: usize) -> BytesMut {
    let mut room = BytesMut::zeroed(len_bytes);
    room.fill(0xee);
    room
}

/// Returns `count` buffers of uneven lengths, which have `len_bytes` bytes in all.
pub fn marked_buffers(len_bytes: usize, count: usize) -> Vec<BytesMut> {
    let lens = split_unevenly(&Bytes::from(vec![0; len_bytes]), count);
    lens.iter().rev().map(|piece| marked_buffer(piece.len())).collect()
}

/// Returns the received or fetched bytes of a completion's buffer.
pub fn received_bytes(buffer: &Buffer) -> Vec<u8> {
    match buffer {
        Buffer::Received(bytes) => bytes.to_vec(),
        Buffer::ReceivedVector(buffers) => buffers.concat(),
        Buffer::ReceivedLast(last) => last.message.to_vec(),
        Buffer::Fetched(fetched) => received_bytes(&fetched.result),
        other => panic!("not the buffer of a receive: {other:?}"),
    }
}
