//! A short write that is answered by count: [`Header::CountedWrite`](crate::wire::Header::CountedWrite).

use crate::limits::COUNTED_WRITE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// A write to a region of the receiver that has no number of its own. The target answers it with a
/// count of such writes ([`Header::Written`](crate::wire::Header::Written)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedWrite {
    /// The key of the region.
    pub key: u64,
    /// The [address](crate::region::Region) of the first byte, as peers know it.
    pub address: u64,
    /// The number of bytes to write: the length of the payload.
    pub len_bytes: u64,
    /// Completion data for the target.
    pub data: Option<u64>,
}

/// Completion data is among the words.
const DATA: u8 = 1 << 0;

/// Words: key, address, data. The payload is the bytes to write.
pub(in crate::wire) const RULE: Rule = Rule::of_kind(19)
    .allow_flags(DATA)
    .add_words(2)
    .add_word_per_flag(DATA)
    .allow_payload_up_to(COUNTED_WRITE_MAX_BYTES as u64);

#[inline(always)]
pub(in crate::wire) fn encode_words(write: CountedWrite, put: &mut impl FnMut(u64)) -> Fields {
    put(write.key);
    put(write.address);
    if let Some(data) = write.data {
        put(data);
    }
    Fields::new(&RULE, if write.data.is_some() { DATA } else { 0 }, write.len_bytes)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<CountedWrite, WireError> {
    let [key, address] = [word(), word()];
    let data = fields.has_flags(DATA).then(word);
    Ok(CountedWrite { key, address, len_bytes: fields.payload_len_bytes, data })
}
