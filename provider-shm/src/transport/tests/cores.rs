//! Which peers are found on the core of a waiting thread.

use homespun_conformance::transport::{BUDGET_FRAMES, Backend, Deadline, TestEndpoint, drive_until};
use homespun_engine::transport::Transport;

use crate::ShmProvider;
use crate::limits::CORE_LOOK_MAX_LINKS;
use crate::transport::ShmTransport;

fn open(instance: u64) -> TestEndpoint<ShmTransport> {
    TestEndpoint::open(&ShmProvider::new(), instance)
}

/// Two endpoints with a link between them.
fn open_linked() -> [TestEndpoint<ShmTransport>; 2] {
    Backend::new(&ShmProvider::new()).open_linked_pair().0
}

/// Whether an endpoint that waits on this core finds a peer there.
fn finds_peer(endpoint: &mut TestEndpoint<ShmTransport>, core: u32) -> bool {
    endpoint.transport.publish_core_and_find_peer(core)
}

#[test]
fn peer_is_found_on_the_core_where_it_last_waited() {
    let [one, other] = &mut open_linked();
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
    let [one, other] = &mut open_linked();
    assert!(!finds_peer(one, 0));
    assert!(finds_peer(other, 0));
}

#[test]
fn looks_reach_all_peers_in_turn() {
    let mut endpoints = [open(1), open(2), open(3)];
    let [many, last] = [1, 2].map(|at| endpoints[at].address());
    for _ in 0..CORE_LOOK_MAX_LINKS {
        endpoints[0].connect(many);
    }
    endpoints[0].connect(last);
    drive_until(&mut endpoints, "the links", |endpoints| {
        endpoints[0].recorder.live_link_count() == CORE_LOOK_MAX_LINKS + 1
            && endpoints[2].recorder.live_link_count() == 1
    });
    let [one, _, other] = &mut endpoints;
    assert!(!finds_peer(other, 3));
    let is_found = |one: &mut TestEndpoint<ShmTransport>| [(); 2].map(|()| finds_peer(one, 3));
    assert_ne!(is_found(one), [false; 2], "neither look has reached the last peer");
    assert!(finds_peer(other, 3), "the looks have told it the core");
    let deadline = Deadline::new();
    while !one.transport.hot.is_empty() {
        one.receive(BUDGET_FRAMES);
        one.transport.arm();
        deadline.yield_or_panic("the links to become cold");
    }
    assert_ne!(is_found(one), [false; 2], "all links are cold");
}
