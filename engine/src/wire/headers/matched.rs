//! The report that the application has matched an eager message:
//! [`Header::Matched`](crate::wire::Header::Matched).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: the message's number.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(7).add_words(1);

#[inline(always)]
pub(in crate::wire) fn encode_words(number: u64, put: &mut impl FnMut(u64)) -> Fields {
    put(number);
    Fields::new(&RULE, 0, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(_: Fields, word: &mut impl FnMut() -> u64) -> Result<u64, WireError> {
    Ok(word())
}
