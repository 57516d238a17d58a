//! A region that the receiver may map: [`Header::MappableRegion`](crate::wire::Header::MappableRegion).

use crate::limits::REMOTE_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{self, Fields, Rule};

/// A region of the sender that the receiver may map: see [`SharedMemory`](crate::transport::SharedMemory).
/// The payload is a [`RemotePayload`](crate::transport::RemotePayload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappableRegion {
    /// The key of the region.
    pub key: u64,
    /// The address of its first byte, as peers know it.
    pub address: u64,
    /// The length of the region.
    pub len_bytes: u64,
    /// The receiver's access rights: the bits of [`MrAccess`](crate::flags::MrAccess).
    pub access: u64,
    /// The length of the payload of this frame, at most [`REMOTE_MAX_BYTES`].
    pub remote_bytes: u8,
}

/// Words: access, key, address, length. The payload describes the memory.
pub(in crate::wire) const RULE: Rule =
    Rule::of_kind(17).add_words(4).allow_payload_up_to(REMOTE_MAX_BYTES as u64);

#[inline(always)]
pub(in crate::wire) fn encode_words(shown: MappableRegion, put: &mut impl FnMut(u64)) -> Fields {
    put(shown.access);
    put(shown.key);
    put(shown.address);
    put(shown.len_bytes);
    Fields::new(&RULE, 0, u64::from(shown.remote_bytes))
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<MappableRegion, WireError> {
    let [access, key, address] = [word(), word(), word()];
    let len_bytes = rule::check_len_bytes(word())?;
    Ok(MappableRegion { key, address, len_bytes, access, remote_bytes: fields.payload_len_bytes as u8 })
}
