//! Strangers that take the accepted links of an endpoint by valid hellos.

use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::transport::{LinkError, LinkId, Transport};
use homespun_engine::wire::address_claim::ClaimStatus;

use super::address_claimer::{AddressClaimer, LOOPBACK, exchange_frames, open_checked_pair, vacant_address};
use crate::TcpProvider;
use crate::limits::PASS_MAX_ENDS;
use crate::link::NO_ROOM;
use crate::testing::{Pair, Side, drive_until, make_message};

/// How many links the endpoints of these tests accept.
const MAX_LINKS: usize = 8;

/// Other hosts, from which strangers connect.
const STRANGER: &str = "127.0.0.2:0";
const ACCOMPLICE: &str = "127.0.0.3:0";

/// A provider of endpoints that accept few links, whose unproven ones are safe for this time.
fn provider_with_grace(grace: Duration) -> TcpProvider {
    TcpProvider::new().with_accepted_max_links(MAX_LINKS).with_unproven_grace(grace)
}

/// Connects from this host, and claims an address at which no endpoint is.
fn claim_vacant_address(from: &str, to: &Side) -> AddressClaimer {
    let mut stranger = AddressClaimer::connect_from(from, to);
    stranger.say_hello(vacant_address(), 7);
    stranger
}

/// Lets strangers on two hosts take all links of an endpoint.
fn take_all_links(side: &mut Side) -> Vec<AddressClaimer> {
    let mut strangers = Vec::new();
    for from in [STRANGER, ACCOMPLICE] {
        for _ in 0..MAX_LINKS {
            let mut stranger = claim_vacant_address(from, side);
            drive_until("an answer", &mut [&mut *side], |_| {
                stranger.has(ClaimStatus::Welcome) || stranger.read()
            });
            strangers.push(stranger);
        }
    }
    assert_eq!(side.transport.accepted.len(), MAX_LINKS);
    strangers
}

fn count_open(strangers: &mut [AddressClaimer]) -> usize {
    strangers.iter_mut().map(AddressClaimer::read).filter(|has_ended| !has_ended).count()
}

/// The errors of the links that have ended.
fn end_errors(side: &Side) -> Vec<&LinkError> {
    let inboxes = side.recorder.inboxes.values().chain(&side.recorder.past);
    inboxes.filter_map(|inbox| inbox.down.as_ref()).collect()
}

#[test]
fn peer_gets_in_although_strangers_have_taken_all_links() {
    let provider = provider_with_grace(Duration::ZERO);
    let mut server = Side::open(&provider, LOOPBACK);
    let mut strangers = take_all_links(&mut server);
    let mut client = Side::open(&provider, LOOPBACK);
    let out = client.transport.connect(server.transport.address());
    let address = client.transport.address();
    let link_of_peer = |server: &Side| -> Option<LinkId> {
        let is_of_peer = |up: Option<(Address, u64)>| up.is_some_and(|(peer, _)| peer == address);
        let inboxes = &mut server.recorder.inboxes.iter();
        inboxes.find(|(_, inbox)| inbox.down.is_none() && is_of_peer(inbox.up)).map(|(id, _)| *id)
    };
    drive_until("the link of the peer", &mut [&mut client, &mut server], |sides| {
        sides[0].is_up(out) && link_of_peer(sides[1]).is_some()
    });
    let into = link_of_peer(&server).unwrap();
    assert_eq!((server.transport.accepted.len(), count_open(&mut strangers)), (MAX_LINKS, MAX_LINKS - 1));
    let mut pair = Pair { client, server, out, into };
    exchange_frames(&mut pair);
    // Further strangers do not end the link of the peer, whether its claim is confirmed or not.
    for _ in 0..3 * MAX_LINKS {
        strangers.push(claim_vacant_address(STRANGER, &pair.server));
        strangers.push(claim_vacant_address(ACCOMPLICE, &pair.server));
    }
    pair.drive_until("the further strangers", |_, server| {
        assert!(server.transport.accepted.len() <= MAX_LINKS);
        count_open(&mut strangers) <= MAX_LINKS
    });
    exchange_frames(&mut pair);
    assert_eq!(end_errors(&pair.server).first(), Some(&&NO_ROOM));
}

/// Drives the endpoint until so many links have ended, only a few of them in each pass.
fn check_few_links_end_in_a_pass(side: &mut Side, count: usize) {
    let mut before = end_errors(side).len();
    let all = before + count;
    drive_until("the end of links", &mut [side], |sides| {
        let ended = end_errors(sides[0]).len();
        let in_pass = ended - before;
        assert!(in_pass <= PASS_MAX_ENDS as usize, "{in_pass} links in one pass, of {count}");
        before = ended;
        // A check may end a link, too.
        ended >= all
    });
}

#[test]
fn pass_displaces_few_links() {
    let mut server = Side::open(&provider_with_grace(Duration::ZERO), LOOPBACK);
    let _strangers = take_all_links(&mut server);
    let _others: Vec<AddressClaimer> =
        (0..10 * PASS_MAX_ENDS).map(|_| claim_vacant_address(STRANGER, &server)).collect();
    check_few_links_end_in_a_pass(&mut server, 10 * PASS_MAX_ENDS as usize);
}

#[test]
fn late_hellos_displace_few_links_in_a_pass() {
    let mut server = Side::open(&provider_with_grace(Duration::ZERO), LOOPBACK);
    let _strangers = take_all_links(&mut server);
    let count = 5 * PASS_MAX_ENDS as usize;
    let mut silent: Vec<AddressClaimer> =
        (0..count).map(|_| AddressClaimer::connect_from(STRANGER, &server)).collect();
    let are_accepted = |sides: &mut [&mut Side]| sides[0].transport.half_open.len() == count;
    drive_until("the silent connections", &mut [&mut server], are_accepted);
    silent.iter_mut().for_each(|late| late.say_hello(vacant_address(), 1));
    check_few_links_end_in_a_pass(&mut server, count);
}

#[test]
fn flood_of_links_that_displace_others_does_not_stop_reads() {
    let mut pair = open_checked_pair(&provider_with_grace(Duration::ZERO));
    let _strangers = take_all_links(&mut pair.server);
    let _others: Vec<AddressClaimer> =
        (0..10 * PASS_MAX_ENDS).map(|_| claim_vacant_address(STRANGER, &pair.server)).collect();
    let before = end_errors(&pair.server).len();
    for count in 1..=5 {
        pair.client.transport.send_inline(pair.out, &make_message(0, 1), b"").unwrap();
        pair.client.progress();
        pair.server.progress();
        assert_eq!(pair.server.received_frames(pair.into).len(), count);
    }
    assert!(end_errors(&pair.server).len() > before + 5, "the others displaced no links meanwhile");
}

#[test]
fn young_links_are_not_displaced() {
    let mut server = Side::open(&provider_with_grace(Duration::MAX), LOOPBACK);
    let mut strangers = take_all_links(&mut server);
    let mut refused = claim_vacant_address(LOOPBACK, &server);
    drive_until("the refusal", &mut [&mut server], |_| refused.read());
    assert_eq!((count_open(&mut strangers), end_errors(&server).len()), (MAX_LINKS, 0));
}

#[test]
fn links_of_this_side_neither_count_nor_are_displaced() {
    let mut pair = Pair::open_connected(&provider_with_grace(Duration::ZERO), LOOPBACK);
    let mut strangers = take_all_links(&mut pair.client);
    pair.drive_until("the strangers", |_, _| count_open(&mut strangers) == MAX_LINKS);
    assert_eq!(pair.client.transport.accepted.len(), MAX_LINKS);
    exchange_frames(&mut pair);
}
