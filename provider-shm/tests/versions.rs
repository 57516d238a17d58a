//! Peers that speak another version of the protocol.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::array;

use homespun_conformance::transport::{BUDGET_FRAMES, TestEndpoint, drive_until, pseudo_random_payload};
use homespun_engine::transport::LinkError;
use homespun_engine::wire::hello::VERSION;
use homespun_shm::ShmProvider;

use crate::raw::{encode_greeting, listen_with_version, try_accept, vacant_address};

/// A frame that the link had taken would be lost, and its send would have succeeded.
#[test]
fn link_to_a_peer_of_another_version_takes_no_frame_and_names_the_version() {
    let mut endpoint = TestEndpoint::open(&ShmProvider::new(), 11);
    let own_version = encode_greeting(endpoint.address(), 11)[..10].to_vec();
    for theirs in [VERSION + 1, VERSION + 7] {
        let address = vacant_address();
        let listener = listen_with_version(theirs, address, 8);
        let link = endpoint.connect(address);
        endpoint.post(link, pseudo_random_payload(100, 1));
        endpoint.transmit();
        assert_eq!(endpoint.queued_frame_count(link), 1);
        drive_until(array::from_mut(&mut endpoint), "the end of the link", |[a]| {
            a.recorder.down_error(link).is_some()
        });
        assert_eq!(endpoint.recorder.down_error(link), Some(&LinkError::OtherVersion { theirs }));
        let told = try_accept(&listener).and_then(|raw| raw.try_receive());
        assert_eq!(told.map(|message| message.bytes[..10].to_vec()), Some(own_version.clone()));
    }
}

#[test]
fn endpoint_is_found_beside_one_of_another_version() {
    let provider = ShmProvider::new();
    let mut endpoints = [TestEndpoint::open(&provider, 11), TestEndpoint::open(&provider, 22)];
    let _other = listen_with_version(VERSION + 1, endpoints[1].address(), 8);
    let to = endpoints[1].address();
    endpoints[0].connect(to);
    drive_until(&mut endpoints, "a link", |[_, b]| b.recorder.live_link_count() == 1);
    endpoints[0].receive(BUDGET_FRAMES);
}
