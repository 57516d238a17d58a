//! One flush that the target carries out in parts.

use crate::region::Window;
use crate::wire::{Outcome, Refusal};

/// A peer's persistent flush that is carried out in parts.
#[derive(Debug)]
pub(super) struct PartialFlush {
    op: u64,
    window: Window,
    len_bytes: usize,
    /// How many bytes, from the start of the window, are durable.
    durable_bytes: usize,
}

impl PartialFlush {
    /// Creates a flush of the first `len_bytes` of a window, under the initiator's number.
    pub(super) fn new(op: u64, window: Window, len_bytes: usize) -> PartialFlush {
        PartialFlush { op, window, len_bytes, durable_bytes: 0 }
    }

    /// Returns the initiator's number of the flush.
    pub(super) fn op(&self) -> u64 {
        self.op
    }

    /// Returns how many bytes are not durable yet.
    pub(super) fn left_bytes(&self) -> usize {
        self.len_bytes - self.durable_bytes
    }

    /// Makes the next `part_bytes` durable. Returns the answer to the flush if it ends here.
    pub(super) fn persist_part(&mut self, part_bytes: usize) -> Outcome {
        let Some(open) = self.window.open() else { return Outcome::Refused(Refusal::Key) };
        if !open.try_persist(self.durable_bytes, part_bytes) {
            return Outcome::NotDurable;
        }
        self.durable_bytes += part_bytes;
        Outcome::Done
    }
}
