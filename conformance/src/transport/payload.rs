//! The frames that the tests send.

use fastrand::Rng;
use homespun_engine::wire::{Header, Message};

/// Payload sizes in bytes, around likely limits of headers, inline frames and small buffers.
pub const SIZES: [usize; 20] =
    [0, 1, 2, 11, 12, 13, 27, 28, 29, 100, 255, 256, 257, 1000, 4095, 4096, 4097, 20_000, 70_000, 200_000];

/// Returns payload without repeated sequences. It differs for each length and each `salt`.
pub fn pseudo_random_payload(len_bytes: usize, salt: u64) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    Rng::with_seed(salt << 32 ^ len_bytes as u64).fill(&mut bytes);
    bytes
}

/// Returns the header of a message of this length. The length also decides whether the message has a tag and
/// whether it has remote data.
pub fn message_header(len_bytes: usize) -> Header {
    let len_bytes = len_bytes as u64;
    let tag = len_bytes.is_multiple_of(3).then_some(!len_bytes);
    Header::Message(Message { tag, data: (len_bytes % 5 == 1).then_some(9), ..Message::of_len(len_bytes) })
}
