//! Held links whose peers hang up.

use std::net::TcpListener;
use std::time::Duration;

use homespun_engine::transport::{Close, Transport};
use socket2::SockRef;

use super::address_claimer::{
    AddressClaimer, LOOPBACK, exchange_frames, hold_stranger, live_count, open_checked_pair, provider,
};
use crate::limits::HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS;
use crate::links::Slot;
use crate::testing::{Pair, Side, drive_until, make_message};

#[test]
fn few_held_links_whose_peers_have_hung_up_are_kept() {
    let mut pair = open_checked_pair(&provider());
    for _ in 0..3 * HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS {
        drop(hold_stranger(&mut pair));
    }
    drive_until("most of them to be dropped", &mut [&mut pair.server], |sides| {
        sides[0].transport.accepted.len() == 1 + HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS
    });
    exchange_frames(&mut pair);
}

#[test]
fn held_link_ends_when_its_peer_resets_it() {
    let mut pair = open_checked_pair(&provider());
    let stranger = hold_stranger(&mut pair);
    SockRef::from(&stranger.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stranger);
    drive_until("the end of the link", &mut [&mut pair.server], |sides| {
        sides[0].transport.accepted.len() == 1
    });
    exchange_frames(&mut pair);
}

#[test]
fn frames_of_a_held_link_arrive_although_the_peer_has_closed_it() {
    let mut pair = open_checked_pair(&provider());
    let second = pair.client.transport.connect(pair.server.transport.address());
    let Pair { client, server, .. } = &mut pair;
    let has_token = |client: &mut Side| {
        client.transport.links.link_mut(second).is_some_and(|link| link.given_token.is_some())
    };
    drive_until("a frame", &mut [client], |sides| {
        sides[0].transport.send_inline(second, &make_message(0, 7), b"").is_ok()
    });
    drive_until("the token", &mut [client, server], |sides| has_token(sides[0]));
    client.transport.close(second, Close::Drain);
    drive_until("the end of the link", &mut [client], |sides| sides[0].transport.draining_count() == 0);
    pair.drive_until("the frame", |_, server| {
        server.recorder.inboxes.values().any(|inbox| inbox.frames == [(make_message(0, 7), Vec::new())])
    });
    exchange_frames(&mut pair);
}

/// The peer has closed its connection, so its kernel answers the acceptor's greeting with a reset.
#[test]
fn frame_of_a_held_link_arrives_although_its_peer_left_before_the_greeting() {
    let silent = TcpListener::bind(LOOPBACK).unwrap();
    let address = silent.local_addr().unwrap().into();
    let mut side = Side::open(&provider(), LOOPBACK);
    let rival = AddressClaimer::claim(&side, address, 1);
    drive_until("the first link", &mut [&mut side], |sides| live_count(sides[0]) == 1);
    drop(AddressClaimer::claim(&side, address, 2));
    drive_until("the reset", &mut [&mut side], |sides| {
        let links = &sides[0].transport.links;
        let has_failed =
            |id| matches!(links.slot(id), Some(Slot::Made(link)) if link.outbound.failure().is_some());
        links.ids().any(has_failed)
    });
    assert_eq!(live_count(&side), 1);
    drop(rival);
    drive_until("the frame of the other", &mut [&mut side], |sides| {
        let inboxes = sides[0].recorder.inboxes.values().chain(&sides[0].recorder.past);
        inboxes.filter(|inbox| inbox.frames == [(make_message(0, 666), Vec::new())]).count() == 2
    });
}
