//! Payload that arrives in pieces.

/// A payload that arrives in pieces, and what it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reassembly<O> {
    /// The length of the whole payload.
    pub(crate) len_bytes: u64,
    /// How many bytes have arrived, including bytes that were dropped because the destination had
    /// no room.
    pub(crate) arrived_bytes: u64,
    /// What the payload belongs to: a message, a read or a write.
    pub(crate) owner: O,
}

/// Whether a payload has arrived whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    Partly,
    Whole,
}

impl<O> Reassembly<O> {
    /// Creates a payload of which no byte has arrived.
    pub(crate) fn new(len_bytes: u64, owner: O) -> Reassembly<O> {
        Reassembly { len_bytes, arrived_bytes: 0, owner }
    }

    /// Returns how many bytes have yet to arrive.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.len_bytes - self.arrived_bytes
    }

    /// Returns the first bytes of `bytes`, as many as belong to this payload.
    pub(crate) fn clip_bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..bytes.len().min(clamp_to_usize(self.left_bytes()))]
    }

    /// Counts bytes that have arrived.
    pub(crate) fn advance(&mut self, count_bytes: usize) -> Arrived {
        self.arrived_bytes += count_bytes as u64;
        if self.arrived_bytes >= self.len_bytes { Arrived::Whole } else { Arrived::Partly }
    }
}

/// Converts a length to `usize`. A larger length becomes `usize::MAX`.
#[inline(always)]
pub(crate) fn clamp_to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
