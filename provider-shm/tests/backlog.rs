//! Peers that let no more connections wait.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::array;

use homespun_conformance::transport::{BUDGET_FRAMES, TestEndpoint, drive, payload};
use homespun_engine::transport::{Armed, Close, LinkCaps, Transport};
use homespun_shm::ShmProvider;

use crate::raw::{RawSocket, listen_at, vacant};

/// A connection for which there is no place waits for one. When it has it, that is something to do: whoever could send
/// nothing before can send now.
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
    assert_eq!(endpoint.waiting_frames(link), 1, "nobody has taken it");
    let Armed::Asleep { look_again_after: Some(_) } = endpoint.transport.arm() else {
        panic!("nobody tells of a place in a queue");
    };

    // One that is closed meanwhile is no longer tried.
    let given_up = endpoint.connect(address);
    endpoint.close(given_up, Close::Drain);

    drop(raw::accept(&silent).expect("one waits there"));
    assert_eq!(endpoint.transport.arm(), Armed::Ready, "there is room now");
    endpoint.transmit();
    assert!(endpoint.is_posted(), "it was taken");
    drop((first, raw::accept(&silent).expect("the other one waits there")));
    assert!(raw::accept(&silent).is_none());
    drive(array::from_mut(&mut endpoint), "the end of the link", |[a]| a.recorder.down(link).is_some());
}

/// It may also happen that the peer which let nobody in ends, and another endpoint comes to its address.
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
