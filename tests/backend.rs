//! The example of a backend, held against the contract of a transport.

#[path = "../examples/backend.rs"]
mod backend;

use crate::backend::ChannelProvider;

homespun_conformance::transport_contract!(ChannelProvider::new(), features: [splits]);

#[test]
fn example_backend_keeps_the_contract() {
    backend::main().expect("two messages arrive");
}
