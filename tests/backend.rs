//! Tests the example of a backend: the contract of a transport, and what applications may rely on.

use homespun_suite::Features;

use crate::provider::ChannelProvider;

#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../examples/backend/provider.rs"]
mod provider;

homespun_suite::backend_tests!("channel", ChannelProvider::new(), Features::SPLITS);
