//! A flush of a range of a region: [`RmaKind::Flush`].

use super::rma::{DURABLE, Durable, Rma, RmaKind};
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: operation, key, address, length.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(21).allow_flags(DURABLE).add_words(4);

#[inline(always)]
pub(in crate::wire) fn encode_words(rma: Rma, put: &mut impl FnMut(u64)) -> Fields {
    debug_assert!(rma.durable != Durable::Everything, "a flush makes only its range durable");
    rma.encode_words_and_length(put);
    Fields::new(&RULE, rma.writing_flags(), 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Rma, WireError> {
    Rma::decode_words_and_length(fields, word, |_| RmaKind::Flush)
}
