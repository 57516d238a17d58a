//! What travels between endpoints.
//!
//! [`Header`] says what a frame means; it is what transports and engine exchange. Each header is described in
//! one file of `headers/`, with its number, flags, words and limits. Taken apart ([`Fields`]) it is laid out
//! on a byte stream by [`frame`], and by shared memory in a line of its ring; neither knows any single
//! header. What the two sides of a stream say first is in [`hello`], and [`stream`] takes a stream apart
//! again.

pub mod checksum;
mod error;
pub mod frame;
mod header;
mod headers;
pub mod hello;
mod rule;
pub mod samples;
pub mod stream;
#[cfg(test)]
mod testing;

pub use self::error::WireError;
pub use self::header::{COMMON_KIND, Header, WORDS_MAX};
pub use self::headers::{
    Atomic, AtomicForm, AwaitedReply, Durable, Handshake, HandshakeStep, MappableRegion, Message, Outcome,
    Refusal, Rma, RmaKind,
};
pub use self::rule::{FLAGS_BITS, Fields, Form};
