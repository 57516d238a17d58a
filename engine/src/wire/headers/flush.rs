//! A flush of a range of a region: [`RmaKind::Flush`].

use super::rma::{DURABLE, Durable, Rma, RmaKind};
use crate::wire::error::WireError;
use crate::wire::rule::{self, Fields, Rule};

/// Words: operation, key, address, length.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(21).allow_flags(DURABLE).add_words(4);

#[inline(always)]
pub(in crate::wire) fn encode_words(rma: Rma, put: &mut impl FnMut(u64)) -> Fields {
    debug_assert!(rma.durable != Durable::Everything, "a flush makes only its range durable");
    debug_assert!(rule::check_len_bytes(rma.len_bytes).is_ok(), "a range too long to be sent");
    rma.encode_words(put);
    put(rma.len_bytes);
    Fields::new(&RULE, rma.writing_flags(), 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Rma, WireError> {
    let rma = Rma::decode_words(fields, word);
    let len_bytes = rule::check_len_bytes(word())?;
    Ok(Rma { len_bytes, kind: RmaKind::Flush, ..rma })
}
