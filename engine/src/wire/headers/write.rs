//! An access that writes its payload to a region: [`RmaKind::Write`](super::rma::RmaKind::Write).

use super::rma::Rma;
use crate::limits::MESSAGE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// Words: operation, key, address, data. The payload is the bytes to write.
pub(in crate::wire) const RULE: Rule = Rma::writing_rule(12).allow_payload_up_to(MESSAGE_MAX_BYTES);

#[inline(always)]
pub(in crate::wire) fn encode_words(rma: Rma, put: &mut impl FnMut(u64)) -> Fields {
    rma.encode_words(put);
    Fields::new(&RULE, rma.writing_flags(), rma.len_bytes)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Rma, WireError> {
    Ok(Rma::decode_words(fields, word))
}
