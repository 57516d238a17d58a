//! The memory of a ring: one direction of a link.
//!
//! A segment is an anonymous file of a fixed size that the producer makes and the consumer maps as well. It is sealed, so
//! neither can make the other's accesses fail by truncating it. Each line of the following drawing starts at a
//! cache line of its own:
//!
//! ```text
//!   finished_at, room_requested       written by the producer, seldom
//!   consumed_lines, consumed_bytes    written by the consumer, once in many lines; read when the ring looks full
//!   cold                              read after every batch of frames, so it is where nothing else changes
//!   line 0 ... line LINES - 1         8 words each: what a frame is, and its payload if that is small
//!   data area                         payload that does not fit into a line
//! ```
//!
//! The other process may write to all of it at any time. So nothing ever refers to it but references to atomics, the data
//! area is only copied from and to, and what is read is read once.

#[cfg(not(loom))]
mod mapped;
#[cfg(loom)]
mod modelled;

use std::io;

#[cfg(not(loom))]
pub(crate) use mapped::Segment;
#[cfg(loom)]
pub(crate) use modelled::Segment;

use crate::sync::AtomicU64;

/// How many words a line has: as many as a cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// A line: its first word tells that it is there, and what the others are.
pub(crate) type Line = [AtomicU64; LINE_WORDS];

/// How many lines a ring has, a power of two.
pub(crate) const LINES: usize = if cfg!(loom) { 4 } else { 512 };

/// How much payload there is room for beside the lines, a power of two.
pub(crate) const DATA_BYTES: usize = if cfg!(loom) { 16 } else { 256 * 1024 };

/// Payload in the data area starts at a multiple of this, so that what is being written and what is being read do not
/// share a cache line.
pub(crate) const DATA_UNIT_BYTES: usize = if cfg!(loom) { 4 } else { 64 };

const _: () = assert!(LINES.is_power_of_two() && DATA_BYTES.is_power_of_two());
const _: () = assert!(DATA_BYTES.is_multiple_of(DATA_UNIT_BYTES));

/// Why what was handed over as a ring was not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// The kernel refuses.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It has the wrong size, or may change it, or may not be written to.
    #[error("not a sealed ring")]
    NotARing,
}

/// The place of a line in the ring, from its number since the ring was made.
#[inline]
fn line_place(position: u64) -> usize {
    // The remainder is smaller than a usize, whatever was cut off.
    position as usize % LINES
}

/// The place of a byte in the data area, from its number since the ring was made.
#[inline]
fn data_place(position: u64) -> usize {
    position as usize % DATA_BYTES
}
