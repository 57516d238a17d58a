//! The sans-IO protocol engine of homespun.
//!
//! homespun is a software fabric: the object model of libfabric without special hardware. This crate is the
//! core of homespun. It uses no sockets, no shared memory, no threads and no clocks. It holds
//!
//! - the vocabulary: [`flags`], [`errno`], [`error`], [`address`];
//! - the [`wire`] format;
//! - the [`Engine`]: [`operation`]s, [`matching`], ordering, completions;
//! - the interface of a backend: [`transport`], [`link_table`] to number its links, [`fork`] for
//!   descriptors that a forked child must not touch, and [`thread`] for what it starts or measures;
//! - with the feature `loopback`: the module `loopback`, a backend for tests that stays in one process and
//!   injects faults.
//!
//! Applications use the `homespun` crate. A backend needs only this crate, without features, and
//! `homespun-conformance` for its tests. A backend implements [`Provider`](transport::Provider) and
//! [`Transport`](transport::Transport):
//!
//! ```text
//!           homespun: Endpoint, CompletionQueue, AddressVector
//!                | post, post_receive            ^ Sink
//!                v                               |
//!           Engine: operations, matching, completions
//!                | transmit                      ^ arrivals: FrameHandler
//!                v                               |
//!           Transport: TCP, loopback, yours
//! ```

#![deny(unsafe_code)]

pub mod address;
#[expect(unsafe_code, reason = "long doubles have instructions of their own; see atomic/long_double.rs")]
pub mod atomic;
#[expect(unsafe_code, reason = "turns the raw tier's addresses into slices")]
pub mod buffer;
pub mod completion;
mod connecting;
pub mod connection;
pub mod engine;
pub mod errno;
pub mod error;
mod failure_watch;
mod fetches;
pub mod flags;
#[expect(unsafe_code, reason = "closes the descriptors of a forked child")]
pub mod fork;
mod held_reports;
mod initiator;
pub mod limits;
mod link;
mod link_fault;
pub mod link_table;
#[cfg(any(test, feature = "loopback"))]
pub mod loopback;
pub mod matching;
pub mod moment;
#[doc(hidden)]
pub mod mutants;
pub mod operation;
pub mod peer_id;
pub mod peers;
mod protocol_violation;
mod reassembly;
mod receiver;
#[expect(
    unsafe_code,
    reason = "turns registered addresses into slices, and moves strings of words; see region/"
)]
pub mod region;
pub mod rejected;
pub mod remote_memory;
pub mod shared_receiver;
pub mod source_host;
pub mod spare_descriptor;
mod target;
#[expect(unsafe_code, reason = "calls `getrusage(2)` and `pthread_sigmask(3)`")]
pub mod thread;
mod timeout;
pub mod transport;
mod visits;
pub mod wire;

pub use self::engine::{Config, Engine};
