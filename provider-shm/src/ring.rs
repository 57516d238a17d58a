//! The ring of one direction of a link: one producer, one consumer, no lock.
//!
//! A small message takes one line. The line carries its own sequence number, so only one cache line moves
//! from the producer to the consumer. Each side counts lines and bytes since the ring was created. The
//! consumer publishes its counts seldom, and the producer reads these counts only when the ring seems full.
//!
//! Payload that does not fit into a line goes to the front area as long as the consumer keeps up, so that the
//! same memory is used again before it leaves the first-level caches; otherwise to the main area, in which
//! the producer may run ahead.

mod consumer;
#[cfg(all(test, loom))]
mod loom_tests;
mod producer;
#[cfg(any(test, fuzzing))]
pub(crate) mod recorder;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use consumer::{Consumer, RingEnd, Staging};
pub(crate) use producer::Producer;

use crate::line::{PIECE_MAX_BYTES, PIECE_MIN_BYTES};
use crate::segment::{DATA_UNIT_BYTES, DataArea, FRONT_BYTES, LINES};

/// The largest payload of a frame that [`Producer::send_inline`] takes, whole or not at all.
pub(crate) const INLINE_MAX_BYTES: usize = if cfg!(loom) { 8 } else { 4096 };

/// The largest payload outside a line that the consumer reports together with the header. For this, the
/// consumer copies the payload to a buffer. It copies larger payload to the frame handler's space.
const FRAME_MAX_BYTES: usize = 1024;

/// How far ahead of their lines both sides prefetch. In a stream, a line takes as long from one cache to the
/// other as a few messages take to process. The next line itself is left alone: the other side may be using
/// it.
const PREFETCH_LINES: u64 = 3;

/// After consuming this many lines the consumer publishes its progress.
const PUBLISH_LINES: u64 = (LINES / 4) as u64;

/// After consuming at least this much of the front area, the consumer publishes its progress there.
const PUBLISH_FRONT_BYTES: u64 = (FRONT_BYTES / 4) as u64;

/// After consuming at least this much of the main area, the consumer publishes its progress.
#[inline]
const fn publish_bytes(data: DataArea) -> u64 {
    (data.bytes() / 4) as u64
}

// A producer never waits for progress that the consumer has not published: when the ring is empty, the
// published room suffices for a line and for `INLINE_MAX_BYTES` of payload.
const _: () = assert!(PUBLISH_LINES > 0 && PUBLISH_LINES < LINES as u64);
const _: () = assert!(INLINE_MAX_BYTES <= PIECE_MAX_BYTES && PIECE_MIN_BYTES <= INLINE_MAX_BYTES);
const fn does_published_room_suffice(data: DataArea) -> bool {
    publish_bytes(data) as usize + INLINE_MAX_BYTES.next_multiple_of(DATA_UNIT_BYTES) <= data.bytes()
}
const _: () = assert!(does_published_room_suffice(DataArea::LARGE));
const _: () = assert!(does_published_room_suffice(DataArea::SMALL));

/// How much of its area a piece occupies.
#[inline]
fn round_up_to_data_unit(piece_bytes: usize) -> u64 {
    piece_bytes.next_multiple_of(DATA_UNIT_BYTES) as u64
}
