//! The payload of an offered message or write, after `Header::Clear` asked for it:
//! [`Header::Data`](crate::wire::Header::Data).

use crate::limits::MESSAGE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: operation. The payload is the message, or the bytes to write.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(5).add_words(1).allow_payload_up_to(MESSAGE_MAX_BYTES);

#[inline(always)]
pub(in crate::wire) fn encode_words((op, len_bytes): (u64, u64), put: &mut impl FnMut(u64)) -> Fields {
    put(op);
    Fields::new(&RULE, 0, len_bytes)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(u64, u64), WireError> {
    Ok((word(), fields.payload_len_bytes))
}
