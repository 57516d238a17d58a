//! The memory of a ring: one direction of a link.
//!
//! A segment is an anonymous file of a fixed size. The producer creates the file, and both sides map it. The
//! size is sealed: otherwise one side could truncate the file, and accesses of the other side would fail.
//! Each row of this picture starts on a cache line of its own:
//!
//! ```text
//!   finished_at, room_requested, core written by the producer, seldom; the consumer clears room_requested
//!   exposure_ended                    written by the producer, once
//!   consumed_lines, consumed_bytes    written by the consumer, seldom; read if the ring seems full
//!   wake_requested, pulled_classes    written by the consumer, seldom; the producer reads and clears
//!                                     wake_requested after every batch of frames
//!   line 0 ... line LINES - 1         8 words each: the header of a frame, and its payload if it fits
//!   data area                         payload that does not fit into a line
//! ```
//!
//! The other process may write to any part of the segment at any time. So this process holds references only
//! to the atomics, accesses the data area only by copying, and reads each value once.

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

/// A line. Its first word tells whether the line is published, and what the other words hold.
pub(crate) type Line = [AtomicU64; LINE_WORDS];

/// How many lines a ring has, a power of two.
pub(crate) const LINES: usize = if cfg!(loom) { 4 } else { 512 };

/// The size of the data area, a power of two.
pub(crate) const DATA_BYTES: usize = if cfg!(loom) { 16 } else { 256 * 1024 };

/// Each piece of payload in the data area starts at a multiple of this. So the producer never writes a cache
/// line that the consumer is reading.
pub(crate) const DATA_UNIT_BYTES: usize = if cfg!(loom) { 4 } else { 64 };

const _: () = assert!(LINES.is_power_of_two() && DATA_BYTES.is_power_of_two());
const _: () = assert!(DATA_BYTES.is_multiple_of(DATA_UNIT_BYTES));

/// Why a segment was not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The file has the wrong size, its size is not sealed, or it is not writable.
    #[error("not a sealed ring")]
    NotARing,
}

/// The index of a line in the ring. `position` counts lines since the ring was created.
#[inline]
fn line_index(position: u64) -> usize {
    // `LINES` is a power of two, so a `usize` gives the same remainder as a `u64`.
    position as usize % LINES
}

/// The index of a byte in the data area. `position` counts bytes since the ring was created.
#[inline]
fn data_index(position: u64) -> usize {
    position as usize % DATA_BYTES
}
