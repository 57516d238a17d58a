//! The contract of a homespun backend as a library of tests.
//!
//! A backend implements [`Provider`] and [`Transport`], and needs only the crate `homespun-engine`. The
//! documentation of these traits makes promises. This crate has a function for each promise. The function
//! panics if a backend breaks the promise. The functions use a backend only through the two traits.
//!
//! # How to use it
//!
//! ```toml
//! [dependencies]
//! homespun-engine = "0.1"
//!
//! [dev-dependencies]
//! homespun-conformance = "0.1"
//! ```
//!
//! A file below `tests/`, with `harness = false` in `Cargo.toml`, makes each function a test. Replace the
//! loopback network with your provider:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use homespun_conformance::{Contract, run_tests};
//! use homespun_conformance::transport::Features;
//! use homespun_engine::loopback::{Faults, Network};
//!
//! fn main() -> ExitCode {
//!     let open = || Network::new(7, Faults::default());
//!     run_tests(Contract::new("loopback", open, Features::MAPS | Features::SPLITS).tests())
//! }
//! ```
//!
//! `cargo test` then shows the result of each promise by name. A promise is `ignored` if it belongs to an
//! optional [feature](transport::Features) that the backend does not declare:
//!
//! ```text
//! test loopback::frames_arrive_whole_and_in_order ... ok
//! test loopback::frame_wakes_the_receiver ... ignored (the backend lacks WAKES)
//! test loopback::declared_features_match_the_backend ... ok
//! ```
//!
//! To begin, declare no feature: `declared_features_match_the_backend` prints the features that the backend
//! has. A backend that keeps the contract runs what applications rely on, too: see `homespun-suite`.
//!
//! # One promise at a time
//!
//! A test may also call a single function, for example for a backend in a special situation:
//!
//! ```
//! use std::time::Duration;
//!
//! use homespun_conformance::transport::{Backend, connecting, frames};
//! use homespun_engine::loopback::{Faults, Network};
//!
//! let network = Network::new(7, Faults::choppy());
//! let backend = Backend::new(&network).with_patience(Duration::from_secs(600));
//! connecting::endpoint_connects_to_itself(backend);
//! frames::many_small_frames_arrive_in_order(backend);
//! ```
//!
//! [`TestEndpoint`](transport::TestEndpoint) drives a transport as an engine would, and
//! [`Recorder`](transport::Recorder) records what the transport reports. Tests of your own may use both:
//!
//! ```
//! use homespun_conformance::transport::{Backend, drive_until, pseudo_random_payload};
//! use homespun_engine::loopback::{Faults, Network};
//!
//! let network = Network::new(7, Faults::default());
//! let (mut endpoints, link, peer) = Backend::new(&network).open_linked_pair();
//! endpoints[0].post(link, pseudo_random_payload(100, 1));
//! drive_until(&mut endpoints, "the frame", |[_, b]| b.recorder.frame_count(peer) == 1);
//! assert_eq!(endpoints[1].recorder.payloads_of(peer), [pseudo_random_payload(100, 1)]);
//! ```
//!
//! [`Provider`]: homespun_engine::transport::Provider
//! [`Transport`]: homespun_engine::transport::Transport

#![forbid(unsafe_code)]

mod contract;
mod program;
pub mod transport;

pub use contract::Contract;
pub use program::run_tests;
