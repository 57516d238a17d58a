//! Which peers are found on the core of a waiting thread.

use homespun_conformance::transport::{TestEndpoint, drive_until};
use homespun_engine::transport::Transport;

use crate::ShmProvider;
use crate::transport::ShmTransport;

fn open(instance: u64) -> TestEndpoint<ShmTransport> {
    TestEndpoint::open(&ShmProvider::new(), instance)
}

/// Whether an endpoint that waits on this core finds a peer there.
fn finds_peer(endpoint: &mut TestEndpoint<ShmTransport>, core: u32) -> bool {
    endpoint.transport.publish_core_and_find_peer(core)
}

#[test]
fn peer_is_found_on_the_core_where_it_last_waited() {
    let mut endpoints = [open(1), open(2)];
    let address = endpoints[1].address();
    endpoints[0].connect(address);
    drive_until(&mut endpoints, "the link", |endpoints| {
        endpoints.iter().all(|endpoint| endpoint.recorder.live_link_count() == 1)
    });
    let [one, other] = &mut endpoints;
    assert!(!finds_peer(one, 3), "the peer has not waited yet");
    assert!(finds_peer(other, 3));
    assert!(finds_peer(one, 3));
    assert!(!finds_peer(one, 4), "the peer has waited on core 3");
    assert!(!finds_peer(other, 3), "the peer has moved to core 4");
    assert!(finds_peer(other, 4));
    assert!(finds_peer(one, 4), "both have moved");
}

#[test]
fn core_0_differs_from_no_core() {
    let mut endpoints = [open(1), open(2)];
    let address = endpoints[1].address();
    endpoints[0].connect(address);
    drive_until(&mut endpoints, "the link", |endpoints| {
        endpoints.iter().all(|endpoint| endpoint.recorder.live_link_count() == 1)
    });
    let [one, other] = &mut endpoints;
    assert!(!finds_peer(one, 0));
    assert!(finds_peer(other, 0));
}
