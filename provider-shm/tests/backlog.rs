//! Peers whose backlog of connections is full.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::array;

use homespun_conformance::transport::{BUDGET_FRAMES, TestEndpoint, drive, payload};
use homespun_engine::transport::{Armed, Close, LinkCaps, Transport};
use homespun_shm::ShmProvider;

use crate::raw::{RawSocket, listen_at, vacant};

/// A connect to a peer with a full backlog waits for a place. Once it has one, the transport stays awake,
/// because sends that were refused before may succeed now.
#[test]
fn connect_to_a_full_backlog_waits() {
    let provider = ShmProvider::new();
    let mut endpoint = TestEndpoint::open(&provider, 11);
    let address = vacant();
    let silent = listen_at(address, 0);
    let first = RawSocket::connect(address);

    let link = endpoint.connect(address);
    let LinkCaps { inline_max_bytes, .. } = endpoint.transport.caps(link);
    endpoint.post(link, payload(inline_max_bytes.min(100), 1));
    for _ in 0..100 {
        endpoint.transmit();
        assert_eq!(endpoint.receive(BUDGET_FRAMES), 0);
    }
    assert_eq!(endpoint.waiting_frames(link), 1, "sent without a connection");
    let Armed::Asleep { look_again_after: Some(_) } = endpoint.transport.arm() else {
        panic!("no event announces a place in a backlog, so the transport must ask for a timer");
    };

    // A link that is closed meanwhile is not tried again.
    let closed = endpoint.connect(address);
    endpoint.close(closed, Close::Drain);

    drop(raw::accept(&silent).expect("a waiting connection"));
    assert_eq!(endpoint.transport.arm(), Armed::Ready, "there is room now");
    endpoint.transmit();
    assert!(endpoint.is_posted(), "the frame was taken");
    drop((first, raw::accept(&silent).expect("the other waiting connection")));
    assert!(raw::accept(&silent).is_none());
    drive(array::from_mut(&mut endpoint), "the end of the link", |[a]| a.recorder.down(link).is_some());
}

/// The peer with the full backlog may end, and another endpoint may open at its address.
#[test]
fn waiting_connect_reaches_the_next_endpoint() {
    let provider = ShmProvider::new();
    let mut endpoint = TestEndpoint::open(&provider, 11);
    let address = vacant();
    let silent = listen_at(address, 0);
    let _first = RawSocket::connect(address);
    let links = [endpoint.connect(address), endpoint.connect(address)];
    for link in links {
        endpoint.post(link, payload(100, 1));
    }
    drop(silent);
    let successor = TestEndpoint::open_at(&provider, address, 22);
    let mut endpoints = [endpoint, successor];
    drive(&mut endpoints, "both links", |[a, b]| {
        a.recorder.up_count() == 2
            && b.recorder.ups().iter().map(|(peer, ..)| b.recorder.frame_count(*peer)).sum::<usize>() == 2
    });
}
