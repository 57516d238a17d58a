//! Tests the example of a backend against the contract of a transport.

#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[allow(dead_code, reason = "its main function is another program's")]
#[path = "../examples/backend/main.rs"]
mod backend;

use crate::backend::provider::ChannelProvider;

homespun_conformance::transport_contract!(ChannelProvider::new(), features: [splits]);

#[test]
fn example_backend_keeps_the_contract() {
    backend::run().expect("two messages arrive");
}
