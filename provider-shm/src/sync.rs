//! Atomics and fences, of the standard library or of loom.
//!
//! If an access of one side pairs with an access of the other, both carry a comment `SYNC POINT` with the
//! same name:
//!
//! - line: the producer publishes a line, release; the consumer finds its sequence number, acquire.
//! - room: the consumer publishes its progress, release; the producer looks for room, acquire.
//! - doorbell: the producer publishes a line, fence, reads the cold mark; the consumer marks the ring cold,
//!   fence, looks for a line.
//! - room requested: the consumer publishes its progress, fence, looks for a request; the producer leaves a
//!   request, fence, looks for room.
//! - finished: the producer stores where the ring ends, release; the consumer reads it, acquire.
//!
//! At the two with fences at least one side sees what the other has done, so no wakeup is lost.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
