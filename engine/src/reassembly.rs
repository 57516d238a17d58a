//! Payload on its way into memory.

/// Payload that arrives in pieces, and the place where they are put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reassembly<P> {
    /// The length of all of it.
    pub(crate) len_bytes: u64,
    /// How much of it has arrived. Where there is less room than that, the rest was dropped.
    pub(crate) arrived_bytes: u64,
    /// Where it goes.
    pub(crate) place: P,
}

impl<P> Reassembly<P> {
    /// Payload of which nothing has arrived.
    pub(crate) fn new(len_bytes: u64, place: P) -> Reassembly<P> {
        Reassembly { len_bytes, arrived_bytes: 0, place }
    }

    /// How many bytes are still to arrive.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.len_bytes - self.arrived_bytes
    }

    /// The beginning of `bytes` that belongs to this payload.
    pub(crate) fn clip_bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..bytes.len().min(clamp_to_usize(self.left_bytes()))]
    }

    /// Counts bytes that are in their place. Returns whether all of them are.
    pub(crate) fn advance(&mut self, count_bytes: usize) -> bool {
        self.arrived_bytes += count_bytes as u64;
        self.arrived_bytes >= self.len_bytes
    }
}

/// A length as memory counts it.
#[inline(always)]
pub(crate) fn clamp_to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
