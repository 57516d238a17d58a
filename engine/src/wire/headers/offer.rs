//! A write that the target fetches: [`RmaKind::Offer`].

use super::rma::{Rma, RmaKind};
use crate::limits::REMOTE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: operation, key, address, data, length. The payload describes exposed memory.
pub(in crate::wire) const RULE: Rule =
    Rma::writing_rule(13).add_words(1).allow_payload_up_to(REMOTE_MAX_BYTES as u64);

#[inline(always)]
pub(in crate::wire) fn encode_words((rma, remote_bytes): (Rma, u8), put: &mut impl FnMut(u64)) -> Fields {
    rma.encode_words_and_length(put);
    Fields::new(&RULE, rma.writing_flags(), u64::from(remote_bytes))
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Rma, WireError> {
    let remote_bytes = fields.payload_len_bytes as u8;
    Rma::decode_words_and_length(fields, word, |data| RmaKind::Offer { data, remote_bytes })
}
