//! A write that the target fetches: [`RmaKind::Offer`].

use super::rma::{Rma, RmaKind};
use crate::limits::REMOTE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{self, Fields, Rule};

/// Words: operation, key, address, data, length. The payload describes exposed memory.
pub(in crate::wire) const RULE: Rule =
    Rma::writing_rule(13).add_words(1).allow_payload_up_to(REMOTE_MAX_BYTES as u64);

#[inline(always)]
pub(in crate::wire) fn encode_words((rma, remote_bytes): (Rma, u8), put: &mut impl FnMut(u64)) -> Fields {
    debug_assert!(rule::check_len_bytes(rma.len_bytes).is_ok(), "an access too long to be sent");
    rma.encode_words(put);
    put(rma.len_bytes);
    Fields::new(&RULE, rma.writing_flags(), u64::from(remote_bytes))
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Rma, WireError> {
    let rma = Rma::decode_words(fields, word);
    let len_bytes = rule::check_len_bytes(word())?;
    let kind = RmaKind::Offer { data: rma.kind.data(), remote_bytes: fields.payload_len_bytes as u8 };
    Ok(Rma { len_bytes, kind, ..rma })
}
