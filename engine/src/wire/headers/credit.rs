//! The limit for the cost of messages: [`Header::Credit`](crate::wire::Header::Credit).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: the limit in bytes.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(8).add_words(1);

#[inline(always)]
pub(in crate::wire) fn encode_words(granted_bytes: u64, put: &mut impl FnMut(u64)) -> Fields {
    put(granted_bytes);
    Fields::new(&RULE, 0, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(_: Fields, word: &mut impl FnMut() -> u64) -> Result<u64, WireError> {
    Ok(word())
}
