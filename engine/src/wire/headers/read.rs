//! An access that reads a region: [`RmaKind::Read`].

use super::rma::{Durable, Rma, RmaKind};
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: operation, key, address, length.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(11).add_words(4);

#[inline(always)]
pub(in crate::wire) fn encode_words(rma: Rma, put: &mut impl FnMut(u64)) -> Fields {
    debug_assert!(rma.durable == Durable::Nothing, "a read makes nothing durable");
    rma.encode_words_and_length(put);
    Fields::new(&RULE, 0, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Rma, WireError> {
    Rma::decode_words_and_length(fields, word, |_| RmaKind::Read)
}
