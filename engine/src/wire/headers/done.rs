//! The end of a request: [`Header::Done`](crate::wire::Header::Done).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// The exposed memory was unreadable.
const FAULT: u8 = 1 << 0;

/// Words: operation.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(6).allow_flags(FAULT).add_words(1);

#[inline(always)]
pub(in crate::wire) fn encode_words((op, fault): (u64, bool), put: &mut impl FnMut(u64)) -> Fields {
    put(op);
    Fields::new(&RULE, if fault { FAULT } else { 0 }, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(u64, bool), WireError> {
    Ok((word(), fields.has_flags(FAULT)))
}
