//! The records by which endpoints over TCP check what a hello claims. A record precedes the frames of a
//! link, or travels on a connection that carries no frames.
//!
//! A hello claims that it comes from the endpoint at an address. The acceptor gives the link a *token*, a
//! random number. Only the endpoint that has made the link learns the token. To check the claim, the
//! acceptor connects to the claimed address, and asks the endpoint there about the token and the address at
//! which the link has reached the acceptor. A claim is *contested* while the acceptor has another live link
//! to the address.
//!
//! ```text
//!  connector                          acceptor
//!    hello, frames  --------------->
//!                   <--------------  hello, Welcome(token), frames    if the claim is not contested
//!
//!    hello          --------------->
//!                   <--------------  hello, Refused(why)              if the acceptor cannot take the link
//!
//!    hello, frames  --------------->  reads the hello only
//!                   <--------------  hello, Held(token)               if the claim is contested
//!                   <--------------  Admitted(token), frames          once proven or no longer contested
//!                                    or Refused(why)
//!
//!  claimed address                    acceptor, on a connection of its own
//!                   <--------------  Question(token), one or more
//!    Confirmed(token), Denied(token) or Unclear(token)  --->          for each question, in order
//! ```
//!
//! A [`Question`](super::hello::Question) has the layout of a hello. All other records have the following
//! layout, with little-endian numbers:
//!
//! ```text
//!  offset  0      1          4       8       16
//!          +------+----------+-------+-------+
//!          |status| reserved | check | token |
//!          +------+----------+-------+-------+
//! ```
//!
//! Reserved bytes are zero. The check is the CRC-32 of all other bytes, in their order.

use std::ops::Range;

use super::error::WireError;
use super::hello::compute_crc32;

/// The size of a record in bytes.
pub const CLAIM_RECORD_BYTES: usize = field::TOKEN.end;

/// The token of a [`Refused`](ClaimStatus::Refused) link whose acceptor has too few descriptors for it.
pub const LACKS_DESCRIPTORS: u64 = 1;

mod field {
    use std::ops::Range;

    pub(super) const STATUS: usize = 0;
    pub(super) const RESERVED: Range<usize> = 1..4;
    pub(super) const CHECK: Range<usize> = 4..8;
    pub(super) const TOKEN: Range<usize> = 8..16;
}

/// A record about the link to which its acceptor has given this token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRecord {
    /// What the record says about the link.
    pub status: ClaimStatus,
    /// The random number of the link.
    pub token: u64,
}

/// What a record says about a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimStatus {
    /// The link is up. Follows the acceptor's hello.
    Welcome,
    /// The acceptor does not read the link yet: it waits until the claim is proven or no longer contested.
    /// This record follows the acceptor's hello.
    Held,
    /// A link that was held is up.
    Admitted,
    /// The acceptor does not take the link. This record follows the acceptor's hello, or
    /// [`Held`](Self::Held). Its token says why: [`LACKS_DESCRIPTORS`], or 0 if the acceptor is being closed.
    Refused,
    /// The endpoint that answers has made the link, to the address that the question names.
    Confirmed,
    /// The endpoint that answers has not made the link.
    Denied,
    /// The answering endpoint cannot tell. Either one of its links has no token yet, or it has made the link
    /// to another address.
    Unclear,
}

impl ClaimStatus {
    /// All statuses. The index of each is one less than its number.
    pub const ALL: [ClaimStatus; 7] = [
        ClaimStatus::Welcome,
        ClaimStatus::Held,
        ClaimStatus::Admitted,
        ClaimStatus::Confirmed,
        ClaimStatus::Denied,
        ClaimStatus::Unclear,
        ClaimStatus::Refused,
    ];

    fn number(self) -> u8 {
        match self {
            ClaimStatus::Welcome => 1,
            ClaimStatus::Held => 2,
            ClaimStatus::Admitted => 3,
            ClaimStatus::Confirmed => 4,
            ClaimStatus::Denied => 5,
            ClaimStatus::Unclear => 6,
            ClaimStatus::Refused => 7,
        }
    }

    fn from_number(number: u8) -> Option<ClaimStatus> {
        ClaimStatus::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl ClaimRecord {
    /// Returns the bytes of the record on the stream.
    pub fn to_bytes(self) -> [u8; CLAIM_RECORD_BYTES] {
        let mut bytes = [0; CLAIM_RECORD_BYTES];
        bytes[field::STATUS] = self.status.number();
        bytes[field::TOKEN].copy_from_slice(&self.token.to_le_bytes());
        let check = compute_check(&bytes);
        bytes[field::CHECK].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// No record has these bytes.
    pub fn parse(bytes: &[u8; CLAIM_RECORD_BYTES]) -> Result<ClaimRecord, WireError> {
        let status = ClaimStatus::from_number(bytes[field::STATUS]).ok_or(WireError::OutOfTurn)?;
        if bytes[field::RESERVED] != [0; 3] {
            return Err(WireError::ReservedNotZero);
        }
        if u32::from_le_bytes(field_array(bytes, field::CHECK)) != compute_check(bytes) {
            return Err(WireError::WrongCheck);
        }
        Ok(ClaimRecord { status, token: u64::from_le_bytes(field_array(bytes, field::TOKEN)) })
    }
}

/// Returns the CRC-32 of all bytes but the check.
fn compute_check(bytes: &[u8; CLAIM_RECORD_BYTES]) -> u32 {
    compute_crc32(&[&bytes[..field::CHECK.start], &bytes[field::CHECK.end..]])
}

/// Returns the bytes of a field. The caller knows the length of the field at compile time.
fn field_array<const N: usize>(bytes: &[u8; CLAIM_RECORD_BYTES], field: Range<usize>) -> [u8; N] {
    debug_assert_eq!(field.len(), N);
    std::array::from_fn(|at| bytes[field.start + at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_record() -> impl Strategy<Value = ClaimRecord> {
        let status = prop::sample::select(ClaimStatus::ALL.to_vec());
        (status, any::<u64>()).prop_map(|(status, token)| ClaimRecord { status, token })
    }

    /// A change here needs a new [`VERSION`](crate::wire::hello::VERSION).
    #[test]
    fn layout_matches_documentation() {
        let bytes = ClaimRecord { status: ClaimStatus::Held, token: 0x0123_4567_89ab_cdef }.to_bytes();
        assert_eq!(bytes[..4], [2, 0, 0, 0]);
        assert_eq!(bytes[8..], [0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01]);
        let numbers = ClaimStatus::ALL.map(|status| ClaimRecord { status, token: 0 }.to_bytes()[0]);
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    }

    proptest! {
        #[test]
        fn record_round_trips(claim in any_record()) {
            prop_assert_eq!(ClaimRecord::parse(&claim.to_bytes()), Ok(claim));
        }

        #[test]
        fn record_with_any_changed_byte_is_refused(
            claim in any_record(),
            at in 0..CLAIM_RECORD_BYTES,
            flips in 1..=u8::MAX,
        ) {
            let mut bytes = claim.to_bytes();
            bytes[at] ^= flips;
            prop_assert!(ClaimRecord::parse(&bytes).is_err());
        }

        #[test]
        fn record_has_one_encoding(mut bytes in any::<[u8; CLAIM_RECORD_BYTES]>(), is_plausible: bool) {
            if is_plausible {
                bytes[field::STATUS] %= 9;
                bytes[field::RESERVED].fill(0);
                let check = compute_check(&bytes);
                bytes[field::CHECK].copy_from_slice(&check.to_le_bytes());
            }
            if let Ok(claim) = ClaimRecord::parse(&bytes) {
                prop_assert_eq!(claim.to_bytes(), bytes);
            }
        }
    }
}
