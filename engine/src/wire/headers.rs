//! The headers, one in each file: its number, flags, words and payload, with their limits.
//!
//! Each file has three items. `RULE` has the limits that a rule can express. `encode_words` takes
//! the header apart. `decode_words` puts the header together again, and checks the other limits.
//! The table in `header.rs` lists the files.

pub(super) mod ack;
pub(super) mod answer;
pub(super) mod atomic;
pub(super) mod clear;
pub(super) mod connection;
pub(super) mod counted_write;
pub(super) mod credit;
pub(super) mod data;
pub(super) mod done;
pub(super) mod fence;
pub(super) mod fenced;
pub(super) mod flush;
pub(super) mod mappable_region;
pub(super) mod matched;
pub(super) mod message;
pub(super) mod offer;
mod outcome;
pub(super) mod read;
pub(super) mod read_data;
pub(super) mod request;
mod rma;
pub(super) mod write;
pub(super) mod written;

pub use self::atomic::{Atomic, AtomicForm};
pub use self::connection::{HandshakeHeader, HandshakeStep};
pub use self::counted_write::CountedWrite;
pub use self::mappable_region::MappableRegion;
pub use self::message::{AwaitedReply, Message};
pub use self::outcome::{Outcome, Refusal};
pub use self::rma::{Durable, Rma, RmaKind};
