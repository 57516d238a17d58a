//! The recorder panics in three cases: a connected link comes up although its peer only claims its address;
//! a claim is confirmed twice; an already proven address is confirmed.

use std::net::SocketAddr;

use homespun_conformance::transport::Recorder;
use homespun_engine::transport::{AddressProof, FrameHandler, LinkEvent, LinkId};

const LINK: LinkId = LinkId(1);

fn up(proof: AddressProof) -> LinkEvent {
    let peer: SocketAddr = "127.0.0.1:1".parse().expect("an address");
    LinkEvent::Up { peer: peer.into(), instance: 1, proof }
}

#[test]
fn claim_may_be_confirmed_once() {
    let mut recorder = Recorder::default();
    recorder.link_event(LINK, up(AddressProof::Claimed));
    recorder.link_event(LINK, LinkEvent::Confirmed);
}

#[test]
#[should_panic(expected = "is not merely claimed")]
fn second_confirmation_breaks_the_contract() {
    let mut recorder = Recorder::default();
    recorder.link_event(LINK, up(AddressProof::Claimed));
    recorder.link_event(LINK, LinkEvent::Confirmed);
    recorder.link_event(LINK, LinkEvent::Confirmed);
}

#[test]
#[should_panic(expected = "is not merely claimed")]
fn confirmation_of_a_proven_peer_breaks_the_contract() {
    let mut recorder = Recorder::default();
    recorder.link_event(LINK, up(AddressProof::Credentials));
    recorder.link_event(LINK, LinkEvent::Confirmed);
}

#[test]
#[should_panic(expected = "was connected to a mere claim")]
fn claim_of_a_connected_link_breaks_the_contract() {
    let mut recorder = Recorder::default();
    recorder.note_connecting(LINK);
    recorder.link_event(LINK, up(AddressProof::Claimed));
}
