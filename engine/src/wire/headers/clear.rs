//! The header by which a receiver asks for offered payload:
//! [`Header::Clear`](crate::wire::Header::Clear).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// The receiver has tried to pull and cannot.
const CANNOT_PULL: u8 = 1 << 0;

/// Words: operation.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(4).allow_flags(CANNOT_PULL).add_words(1);

#[inline(always)]
pub(in crate::wire) fn encode_words((op, cannot_pull): (u64, bool), put: &mut impl FnMut(u64)) -> Fields {
    put(op);
    Fields::new(&RULE, if cannot_pull { CANNOT_PULL } else { 0 }, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(u64, bool), WireError> {
    Ok((word(), fields.has_flags(CANNOT_PULL)))
}
