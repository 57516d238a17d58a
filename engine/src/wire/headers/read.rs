//! An access that reads a region: [`RmaKind::Read`].

use super::rma::{Durable, Rma, RmaKind};
use crate::wire::error::WireError;
use crate::wire::rule::{self, Fields, Rule};

/// Words: operation, key, address, length.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(11).add_words(4);

#[inline(always)]
pub(in crate::wire) fn encode_words(rma: Rma, put: &mut impl FnMut(u64)) -> Fields {
    debug_assert!(rma.durable == Durable::Nothing, "a read makes nothing durable");
    debug_assert!(rule::check_len_bytes(rma.len_bytes).is_ok(), "an access too long to be sent");
    rma.encode_words(put);
    put(rma.len_bytes);
    Fields::new(&RULE, 0, 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Rma, WireError> {
    let rma = Rma::decode_words(fields, word);
    let len_bytes = rule::check_len_bytes(word())?;
    Ok(Rma { len_bytes, kind: RmaKind::Read, ..rma })
}
