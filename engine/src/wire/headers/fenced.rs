//! The answer to a fence: [`Header::Fenced`](crate::wire::Header::Fenced).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

pub(in crate::wire) const RULE: Rule = Rule::of_kind(10);

#[inline(always)]
pub(in crate::wire) fn encode_words((): (), _: &mut impl FnMut(u64)) -> Fields {
    Fields::new(&RULE, 0, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(_: Fields, _: &mut impl FnMut() -> u64) -> Result<(), WireError> {
    Ok(())
}
