//! The protocol between endpoints.
//!
//! Engine and transports pass each frame to each other as a [`Header`] and a payload. Each file of
//! `headers/` describes one header: its number, flags, words and limits. [`Fields`] are a header's parts.
//! [`frame`] lays these parts out on a byte stream, and the shared-memory transport lays them out in a line
//! of its ring. [`hello`] is the first data on a stream, from both sides. [`address_claim`] has the records
//! by which endpoints over TCP check a hello. [`stream`] parses a stream.

pub mod address_claim;
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
    Atomic, AtomicForm, AwaitedReply, CountedWrite, Durable, HandshakeHeader, HandshakeStep, MappableRegion,
    Message, Outcome, Refusal, Rma, RmaKind,
};
pub use self::rule::{FLAGS_BITS, Fields, Form};
