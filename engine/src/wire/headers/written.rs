//! The answer to counted writes: [`Header::Written`](crate::wire::Header::Written).

use super::answer::Outcome;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: the count. The flags are the outcome's number.
pub(in crate::wire) const RULE: Rule =
    Rule::of_kind(20).allow_number_up_to(Outcome::ALL.len() as u8 - 1).add_words(1);

#[inline(always)]
pub(in crate::wire) fn encode_words((count, outcome): (u64, Outcome), put: &mut impl FnMut(u64)) -> Fields {
    put(count);
    Fields::new(&RULE, outcome.number(), 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(u64, Outcome), WireError> {
    let outcome = Outcome::from_number(fields.form.flags()).ok_or(WireError::UnknownFlag)?;
    Ok((word(), outcome))
}
