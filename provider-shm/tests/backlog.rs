//! Peers whose backlog of connections is full.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::array;

use homespun_conformance::transport::{BUDGET_FRAMES, TestEndpoint, drive_until, pseudo_random_payload};
use homespun_engine::transport::{Armed, Close, LinkCaps, Transport};
use homespun_shm::ShmProvider;

use crate::raw::{RawSocket, listen_at, vacant_address};

/// A connect to a peer with a full backlog waits for a place in the backlog. Once the connect has succeeded,
/// `arm` returns `Ready`, so that refused sends are repeated.
#[test]
fn connect_to_a_full_backlog_waits() {
    let provider = ShmProvider::new();
    let mut endpoint = TestEndpoint::open(&provider, 11);
    let address = vacant_address();
    let silent = listen_at(address, 0);
    let first = RawSocket::connect(address);

    let link = endpoint.connect(address);
    let LinkCaps { inline_max_bytes, .. } = endpoint.transport.caps(link);
    endpoint.post(link, pseudo_random_payload(inline_max_bytes.min(100), 1));
    for _ in 0..100 {
        endpoint.transmit();
        assert_eq!(endpoint.receive(BUDGET_FRAMES), 0);
    }
    assert_eq!(endpoint.queued_frame_count(link), 1, "sent without a connection");
    let Armed::Asleep { look_again_after: Some(_) } = endpoint.transport.arm() else {
        panic!("no event announces a place in a backlog, so the transport must ask for a timer");
    };

    // The endpoint does not retry the connect of a link that was closed before the connect succeeded.
    let closed = endpoint.connect(address);
    endpoint.close(closed, Close::Drain);

    drop(raw::try_accept(&silent).expect("a waiting connection"));
    assert_eq!(endpoint.transport.arm(), Armed::Ready, "there is room now");
    endpoint.receive(BUDGET_FRAMES);
    endpoint.transmit();
    assert!(endpoint.has_sent_all(), "the frame was taken");
    drop((first, raw::try_accept(&silent).expect("the other waiting connection")));
    assert!(raw::try_accept(&silent).is_none());
    drive_until(array::from_mut(&mut endpoint), "the end of the link", |[a]| {
        a.recorder.down_error(link).is_some()
    });
}

/// A peer with a full backlog ends, and another endpoint opens at its address. Waiting connects then reach
/// the new endpoint.
#[test]
fn waiting_connect_reaches_the_next_endpoint_at_its_address() {
    let provider = ShmProvider::new();
    let mut endpoint = TestEndpoint::open(&provider, 11);
    let address = vacant_address();
    let silent = listen_at(address, 0);
    let _first = RawSocket::connect(address);
    let links = [endpoint.connect(address), endpoint.connect(address)];
    for link in links {
        endpoint.post(link, pseudo_random_payload(100, 1));
    }
    drop(silent);
    let successor = TestEndpoint::open_at(&provider, address, 22);
    let mut endpoints = [endpoint, successor];
    drive_until(&mut endpoints, "both links", |[a, b]| {
        a.recorder.live_link_count() == 2
            && b.recorder.up_events().iter().map(|(peer, ..)| b.recorder.frame_count(*peer)).sum::<usize>()
                == 2
    });
}
