//! Atomics and fences, of the standard library or of loom.
//!
//! Where two sides meet, both carry a comment `SYNC POINT` with the same name:
//!
//! | name | one side | the other side |
//! | --- | --- | --- |
//! | line | the producer publishes a line, release | the consumer finds its sequence number, acquire |
//! | room | the consumer publishes its progress, release | the producer looks for room, acquire |
//! | doorbell | the producer publishes a line, fence, looks whether the ring is cold | the consumer marks the ring cold, fence, looks for a line |
//! | room wanted | the consumer publishes its progress, fence, looks for a wish | the producer leaves a wish, fence, looks for room |
//! | finished | the producer says where the ring ends, release | the consumer asks, acquire |
//!
//! With the two that have fences, at least one side sees what the other has done, so that nobody sleeps through it.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
