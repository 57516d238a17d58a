//! The ring of one direction of a link: one producer, one consumer, no lock.
//!
//! A line that carries its own sequence number is all that a small message costs: one cache line goes from one side to the
//! other. Both sides count lines and bytes since the ring was made, each for itself. The consumer publishes its counts seldom,
//! and the producer looks at them only when the ring seems full.

mod consumer;
#[cfg(all(test, loom))]
mod loom_tests;
mod producer;
#[cfg(any(test, fuzzing))]
pub(crate) mod recorder;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use consumer::{Consumer, RingEnd};
pub(crate) use producer::Producer;

use crate::line::{PIECE_MAX_BYTES, PIECE_MIN_BYTES};
use crate::segment::{DATA_BYTES, DATA_UNIT_BYTES, LINES};

/// The largest payload that is taken at once or not at all.
pub(crate) const INLINE_MAX_BYTES: usize = if cfg!(loom) { 8 } else { 4096 };

/// The largest payload that is reported together with its header, by way of a buffer. Anything larger is copied straight to
/// where it belongs.
const FRAME_MAX_BYTES: usize = 1024;

/// How many lines are consumed at most before the producer can know of it.
const PUBLISH_LINES: u64 = (LINES / 4) as u64;

/// How much of the data area is consumed at most before the producer can know of it, give or take a piece.
const PUBLISH_BYTES: u64 = (DATA_BYTES / 4) as u64;

// A producer never waits for what the consumer has consumed and does not publish: with an empty ring, what is not yet
// published leaves room for a line and for the least that is written at once.
const _: () = assert!(PUBLISH_LINES > 0 && PUBLISH_LINES < LINES as u64);
const _: () = assert!(INLINE_MAX_BYTES <= PIECE_MAX_BYTES && PIECE_MIN_BYTES <= INLINE_MAX_BYTES);
const _: () =
    assert!(PUBLISH_BYTES as usize + INLINE_MAX_BYTES.next_multiple_of(DATA_UNIT_BYTES) <= DATA_BYTES);

/// How much of the data area a piece occupies.
#[inline]
fn occupied_bytes(piece_bytes: usize) -> u64 {
    piece_bytes.next_multiple_of(DATA_UNIT_BYTES) as u64
}
