//! The example of a backend, held against the contract of a transport.

#[path = "../examples/backend.rs"]
mod backend;

use crate::backend::ChannelProvider;

homespun_conformance::transport_contract!(ChannelProvider::new());

#[test]
fn the_example_runs() {
    backend::main().expect("two messages arrive");
}
