//! The example of a backend, held against the contract of a transport.

#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../examples/backend.rs"]
mod backend;

use crate::backend::ChannelProvider;

homespun_conformance::transport_contract!(ChannelProvider::new(), features: [splits]);

#[test]
fn example_backend_keeps_the_contract() {
    backend::main().expect("two messages arrive");
}
