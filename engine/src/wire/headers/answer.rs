//! The answer to an access to a region: [`Header::Answer`](crate::wire::Header::Answer).

use super::outcome::{Outcome, answer_rule, decode_answer, encode_answer};
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: operation.
pub(in crate::wire) const RULE: Rule = answer_rule(15);

#[inline(always)]
pub(in crate::wire) fn encode_words(answer: (u64, Outcome), put: &mut impl FnMut(u64)) -> Fields {
    encode_answer(&RULE, answer, put)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(u64, Outcome), WireError> {
    decode_answer(fields, word)
}
