//! The contents of messages: reproducible from a number, so that a misplaced byte is found.

use homespun::{Buffer, Bytes, BytesMut};

/// The period of a message's content. It has a large prime factor, so that bytes misplaced by the size of a
/// buffer, a page or a ring, or a few of them, are found.
const PERIOD_BYTES: usize = 8 * 1009;

/// The first `len_bytes` bytes of an endless text, distinct for each `identity`. It starts with the identity
/// itself.
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

/// The message in `count` pieces of uneven length, the shortest first.
pub fn split_unevenly(message: &Bytes, count: usize) -> Vec<Bytes> {
    let mut rest = message.clone();
    let mut pieces = Vec::new();
    for left in (1..=count).rev() {
        let len_bytes = if left == 1 { rest.len() } else { rest.len() / (left + 1) };
        pieces.push(rest.split_to(len_bytes));
    }
    pieces
}

/// A buffer of `len_bytes` bytes, filled with a byte that no test sends.
pub fn marked_buffer(len_bytes: usize) -> BytesMut {
    let mut room = BytesMut::zeroed(len_bytes);
    room.fill(0xee);
    room
}

/// A buffer of `len_bytes` bytes in `count` pieces of uneven length.
pub fn marked_buffers(len_bytes: usize, count: usize) -> Vec<BytesMut> {
    let lens = split_unevenly(&Bytes::from(vec![0; len_bytes]), count);
    lens.iter().rev().map(|piece| marked_buffer(piece.len())).collect()
}

/// The received bytes, from any kind of buffer.
pub fn received_bytes(buffer: &Buffer) -> Vec<u8> {
    match buffer {
        Buffer::Received(bytes) => bytes.to_vec(),
        Buffer::ReceivedVector(buffers) => buffers.concat(),
        Buffer::ReceivedLast(last) => last.message.to_vec(),
        Buffer::Fetched(fetched) => received_bytes(&fetched.result),
        other => panic!("not the buffer of a receive: {other:?}"),
    }
}
