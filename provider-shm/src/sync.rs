//! Atomics and fences, of the standard library or of loom.
//!
//! An access of the producer may pair with an access of the consumer. Then both accesses have a comment
//! `SYNC POINT` with the same name:
//!
//! - line: the producer publishes a line (release); the consumer reads its sequence number (acquire).
//! - room: the consumer publishes its progress (release); the producer looks for room (acquire).
//! - doorbell: the producer publishes a line, fences, and reads the wake request; the consumer stores a wake
//!   request, fences, and looks for a line.
//! - room requested: the consumer publishes its progress, fences, and reads the room request; the producer
//!   stores a room request, fences, and looks for room.
//! - finished: the producer stores where the ring ends (release); the consumer reads it (acquire).
//! - exposure ended: the producer stores the mark, fences, and only then gives exposed memory back to its
//!   application; the consumer copies from the memory, fences, and reads the mark. So a copy that may have
//!   bytes of a later use is discarded. The memory and the mark are outside loom's model.
//!
//! At the two points with wake-ups, at least one side sees the store of the other side. So no wakeup is lost.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
