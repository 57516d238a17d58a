//! The count of eager messages that have arrived: [`Header::Ack`](crate::wire::Header::Ack).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: the count.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(2).add_words(1);

#[inline(always)]
pub(in crate::wire) fn encode_words(received: u64, put: &mut impl FnMut(u64)) -> Fields {
    put(received);
    Fields::new(&RULE, 0, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(_: Fields, word: &mut impl FnMut() -> u64) -> Result<u64, WireError> {
    Ok(word())
}
