//! The question whether all earlier messages have arrived:
//! [`Header::Fence`](crate::wire::Header::Fence).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Messages before the fence must also have been matched or discarded.
const MATCHED: u8 = 1 << 0;

pub(in crate::wire) const RULE: Rule = Rule::of_kind(9).allow_flags(MATCHED);

#[inline(always)]
pub(in crate::wire) fn encode_words(matched: bool, _: &mut impl FnMut(u64)) -> Fields {
    Fields::new(&RULE, if matched { MATCHED } else { 0 }, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(fields: Fields, _: &mut impl FnMut() -> u64) -> Result<bool, WireError> {
    Ok(fields.has_flags(MATCHED))
}
