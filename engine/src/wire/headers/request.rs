//! A message that the receiver fetches: [`Header::Request`](crate::wire::Header::Request).

use super::message::Message;
use crate::limits::REMOTE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{self, Fields, Rule};

/// Words: operation, then those of a [message](super::message), then its length. The payload describes
/// exposed memory.
pub(in crate::wire) const RULE: Rule = Message::rule(3).words(2).payload_max_bytes(REMOTE_MAX_BYTES as u64);

// A description's length is known as one byte.
const _: () = assert!(REMOTE_MAX_BYTES <= u8::MAX as usize);

#[inline(always)]
pub(in crate::wire) fn lower(
    (message, op, remote_bytes): (Message, u64, u8),
    put: &mut impl FnMut(u64),
) -> Fields {
    debug_assert!(rule::length(message.len_bytes).is_ok(), "a message too long to be sent");
    put(op);
    message.lower(put);
    put(message.len_bytes);
    Fields::new(&RULE, message.flags(), u64::from(remote_bytes))
}

#[inline(always)]
pub(in crate::wire) fn raise(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(Message, u64, u8), WireError> {
    let op = word();
    let message = Message::raise(fields, word);
    let len_bytes = rule::length(word())?;
    Ok((Message { len_bytes, ..message }, op, fields.payload_len_bytes as u8))
}
