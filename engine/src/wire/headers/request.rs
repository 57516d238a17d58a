//! A message that the receiver fetches: [`Header::Request`](crate::wire::Header::Request).

use super::message::Message;
use crate::limits::REMOTE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{self, Fields, Rule};

/// Words: operation, the words of a [message](super::message), the message's length. The payload
/// describes exposed memory.
pub(in crate::wire) const RULE: Rule =
    Message::rule_for_kind(3).add_words(2).allow_payload_up_to(REMOTE_MAX_BYTES as u64);

// The length of a description fits into one byte.
const _: () = assert!(REMOTE_MAX_BYTES <= u8::MAX as usize);

#[inline(always)]
pub(in crate::wire) fn encode_words(
    (message, op, remote_bytes): (Message, u64, u8),
    put: &mut impl FnMut(u64),
) -> Fields {
    debug_assert!(rule::check_len_bytes(message.len_bytes).is_ok(), "a message too long to be sent");
    put(op);
    message.encode_words(put);
    put(message.len_bytes);
    Fields::new(&RULE, message.wire_flags(), u64::from(remote_bytes))
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(Message, u64, u8), WireError> {
    let op = word();
    let message = Message::decode_words(fields, word);
    let len_bytes = rule::check_len_bytes(word())?;
    Ok((Message { len_bytes, ..message }, op, fields.payload_len_bytes as u8))
}
