//! The common part of the accesses to a region: [`read`](super::read), [`write`](super::write),
//! [`offer`](super::offer) and [`flush`](super::flush).

use crate::wire::error::WireError;
use crate::wire::rule::{self, Fields, Rule};

/// An access to a region of the receiver: `fi_rma(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rma {
    /// The initiator's number for the operation. No two unfinished operations on a link share a
    /// number.
    pub op: u64,
    /// The key of the region.
    pub key: u64,
    /// The [address](crate::region::Region) of the first byte, as peers know it.
    pub address: u64,
    /// The number of bytes to read, write or flush.
    pub len_bytes: u64,
    /// The operation.
    pub kind: RmaKind,
    /// The writes that must be durable before the target answers; none for a read.
    pub durable: Durable,
}

/// The writes that must be durable before an answer: `FI_COMMIT_COMPLETE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durable {
    /// Nothing.
    #[default]
    Nothing,
    /// The bytes that the access writes, or the range that it flushes.
    Written,
    /// The bytes that the access writes, and all earlier writes of this peer to persistent memory.
    Everything,
}

/// The operation on a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RmaKind {
    /// The target sends the bytes in [`Header::ReadData`](crate::wire::Header::ReadData) frames.
    /// This frame has no payload.
    Read,
    /// The target writes the payload.
    Write {
        /// Completion data for the target.
        data: Option<u64>,
    },
    /// The target fetches the bytes to write, as a receiver does after a
    /// [`Header::Request`](crate::wire::Header::Request). The payload is a
    /// [`RemotePayload`](crate::transport::RemotePayload).
    Offer {
        /// Completion data for the target.
        data: Option<u64>,
        /// The length of the payload of this frame, at most
        /// [`REMOTE_MAX_BYTES`](crate::limits::REMOTE_MAX_BYTES).
        remote_bytes: u8,
    },
    /// The target answers when all earlier writes of the sender are visible to its processors, and the
    /// range is durable if this is demanded. This frame has no payload.
    Flush,
}

impl RmaKind {
    /// Returns the completion data for the target.
    pub fn data(&self) -> Option<u64> {
        match self {
            RmaKind::Read | RmaKind::Flush => None,
            RmaKind::Write { data } | RmaKind::Offer { data, .. } => *data,
        }
    }
}

/// Completion data is among the words.
const DATA: u8 = 1 << 0;
/// The written bytes, or the range to flush, must be durable before the answer.
pub(super) const DURABLE: u8 = 1 << 1;
/// The written bytes and all earlier writes must be durable before the answer.
const EVERYTHING: u8 = 1 << 2;

/// Functions for reads, writes, offers and flushes.
impl Rma {
    /// Returns the rule of a write or an offer. Words: operation, key, address, data.
    pub(super) const fn writing_rule(kind: u8) -> Rule {
        Rule::of_kind(kind)
            .allow_flags(DATA | DURABLE | EVERYTHING)
            .at_most_one_of(DURABLE | EVERYTHING)
            .add_words(3)
            .add_word_per_flag(DATA)
    }

    #[inline(always)]
    pub(super) fn writing_flags(&self) -> u8 {
        let durable = match self.durable {
            Durable::Nothing => 0,
            Durable::Written => DURABLE,
            Durable::Everything => EVERYTHING,
        };
        durable | if self.kind.data().is_some() { DATA } else { 0 }
    }

    /// Passes operation, key, address and data to `put`.
    #[inline(always)]
    pub(super) fn encode_words(&self, put: &mut impl FnMut(u64)) {
        put(self.op);
        put(self.key);
        put(self.address);
        if let Some(data) = self.kind.data() {
            put(data);
        }
    }

    /// As [`encode_words`](Self::encode_words), for an access whose frame does not carry its bytes: passes
    /// the length, too.
    #[inline(always)]
    pub(super) fn encode_words_and_length(&self, put: &mut impl FnMut(u64)) {
        debug_assert!(rule::check_len_bytes(self.len_bytes).is_ok(), "an access too long to be sent");
        self.encode_words(put);
        put(self.len_bytes);
    }

    /// Reads what [`encode_words_and_length`](Self::encode_words_and_length) has passed, and returns the
    /// access with this kind. `kind` gets the completion data.
    ///
    /// # Errors
    ///
    /// [`WireError::ImpossibleLength`] if the access is too long.
    #[inline(always)]
    pub(super) fn decode_words_and_length(
        fields: Fields,
        word: &mut impl FnMut() -> u64,
        kind: impl FnOnce(Option<u64>) -> RmaKind,
    ) -> Result<Rma, WireError> {
        let rma = Rma::decode_words(fields, word);
        let len_bytes = rule::check_len_bytes(word())?;
        Ok(Rma { len_bytes, kind: kind(rma.kind.data()), ..rma })
    }

    /// Reads the words of an access, and returns the access as a write of the payload. Callers that
    /// decode another access then change the fields that differ.
    #[inline(always)]
    pub(super) fn decode_words(fields: Fields, word: &mut impl FnMut() -> u64) -> Rma {
        let [op, key, address] = [word(), word(), word()];
        let data = fields.has_flags(DATA).then(&mut *word);
        let durable = if fields.has_flags(EVERYTHING) {
            Durable::Everything
        } else if fields.has_flags(DURABLE) {
            Durable::Written
        } else {
            Durable::Nothing
        };
        let kind = RmaKind::Write { data };
        Rma { op, key, address, len_bytes: fields.payload_len_bytes, kind, durable }
    }
}
