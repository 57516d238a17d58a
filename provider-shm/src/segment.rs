//! The memory of a ring: one direction of a link.
//!
//! A segment is an anonymous file. The producer creates the file, and both sides map it. Its size, one of
//! two, tells the consumer how large the main area is ([`DataArea`]). The size is sealed: otherwise one side
//! could truncate the file, and accesses of the other side would fail.
//! Each row of this picture starts on a cache line of its own:
//!
//! ```text
//!   finished_at, room_requested, core written by the producer, seldom; the consumer clears room_requested
//!   exposure_ended                    written by the producer, once
//!   consumed_lines, consumed_bytes,   written by the consumer, seldom; read if the ring seems full
//!   consumed_front_bytes
//!   wake_requested, pulled_classes    written by the consumer, seldom; the producer reads and clears
//!                                     wake_requested after every batch of frames
//!   line 0 ... line LINES - 1         8 words each: the header of a frame, and its payload if it fits
//!   main area                         payload that does not fit into a line
//!   front area                        the same, as long as the consumer keeps up
//! ```
//!
//! The other process may write to any part of the segment at any time. So this process holds references only
//! to the atomics, accesses the two areas only by copying, and reads each value once.

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

/// Each piece of payload in an area starts at a multiple of this. So the producer never writes a cache line
/// that the consumer is reading.
pub(crate) const DATA_UNIT_BYTES: usize = if cfg!(loom) { 4 } else { 64 };

/// How large the front area is. Those of both directions and the application's memory stay in a first-level
/// cache: with 16 KiB, half a round trip of 4 KiB takes a fifth longer.
pub(crate) const FRONT_BYTES: usize = if cfg!(loom) { 32 } else { 8 * 1024 };

const _: () = assert!(LINES.is_power_of_two() && FRONT_BYTES.is_power_of_two());

/// The part of a segment that a piece of payload is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// Short, so that the same memory is used again soon.
    Front,
    /// Long, so that the producer may run ahead.
    Main,
}

/// How large the main area of a ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataArea {
    bytes: usize,
}

impl DataArea {
    /// Long payload is fastest through a ring of this size: both sides copy at the same time, and the ring
    /// stays in the second-level cache.
    pub(crate) const LARGE: DataArea = DataArea::new(if cfg!(loom) { 16 } else { 256 * 1024 });

    /// Payload from 64 KiB on takes up to a third longer than through a large ring.
    pub(crate) const SMALL: DataArea = DataArea::new(if cfg!(loom) { 16 } else { 64 * 1024 });

    const FRONT: DataArea = DataArea::new(FRONT_BYTES);

    #[cfg(not(loom))]
    pub(crate) const ALL: [DataArea; 2] = [DataArea::LARGE, DataArea::SMALL];

    const fn new(bytes: usize) -> DataArea {
        assert!(bytes.is_power_of_two() && bytes.is_multiple_of(DATA_UNIT_BYTES));
        DataArea { bytes }
    }

    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        self.bytes
    }

    /// The index of a byte in the area. `position` counts bytes since the ring was created.
    #[inline]
    fn index(self, position: u64) -> usize {
        // The size is a power of two.
        position as usize & (self.bytes - 1)
    }
}

/// Why a segment was not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The file has neither size of a ring, its size is not sealed, or it is not writable.
    #[error("not a sealed ring")]
    NotARing,
}

/// The index of a line in the ring. `position` counts lines since the ring was created.
#[inline]
fn line_index(position: u64) -> usize {
    // `LINES` is a power of two, so a `usize` gives the same remainder as a `u64`.
    position as usize % LINES
}
