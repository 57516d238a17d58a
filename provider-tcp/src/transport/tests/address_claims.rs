//! Peers that claim the address of another, and the checks that find them out.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Armed, Close, LinkError, LinkId, Transport};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::hello::Hello;

use super::address_claimer::{
    AddressClaimer, LOOPBACK, encode_frame, exchange_frames, hasty_provider, hold_stranger, live_count,
    open_checked_pair, provider, vacant_address,
};
use super::hello::has_ended;
use crate::limits::ARRIVAL_TOLERANCE_MS;
use crate::testing::{Pair, Side, drive_until, make_message};

/// The endpoint ends the link of a stranger that claims a peer's address, and the peer's link stays up.
#[test]
fn takeover_of_a_connected_peer_fails() {
    for (has_peer_connected, has_same_instance) in [(true, false), (true, true), (false, false)] {
        let mut pair = Pair::open_connected(&provider(), LOOPBACK);
        if !has_peer_connected {
            let Pair { client, server, out, into } = pair;
            pair = Pair { client: server, server: client, out: into, into: out };
        }
        let instance = if has_same_instance { pair.client.instance } else { 1 };
        let mut hostile = AddressClaimer::claim(&pair.server, pair.client.transport.address(), instance);
        pair.drive_until("the end of the stranger", |_, _| hostile.read());
        let statuses: Vec<ClaimStatus> = hostile.records().iter().map(|record| record.status).collect();
        let row = (has_peer_connected, has_same_instance);
        assert_eq!(statuses, [ClaimStatus::Held], "the stranger was sent more: {row:?}");
        assert_eq!(pair.server.recorder.inboxes.len(), 1, "the stranger was reported: {row:?}");
        exchange_frames(&mut pair);
    }
}

#[test]
fn takeover_of_a_silent_peer_is_held_until_its_time_is_over() {
    let mut pair = open_checked_pair(&hasty_provider());
    // The peer lives, and makes no progress.
    let mut hostile = hold_stranger(&mut pair);
    drive_until("the end of the stranger", &mut [&mut pair.server], |_| hostile.read());
    assert!(!hostile.has(ClaimStatus::Admitted));
    assert_eq!(pair.server.recorder.inboxes.len(), 1, "the stranger was reported");
    exchange_frames(&mut pair);
}

#[test]
fn claim_of_a_vacant_address_stays_unless_it_is_contested() {
    let vacant = vacant_address();
    let mut side = Side::open(&hasty_provider(), LOOPBACK);
    let mut first = AddressClaimer::claim(&side, vacant, 1);
    drive_until("the first to be checked", &mut [&mut side], |sides| {
        !sides[0].recorder.inboxes.is_empty() && !sides[0].transport.address_claims.is_busy()
    });
    assert!(!first.read() && first.has(ClaimStatus::Welcome));
    let link = side.only_link().unwrap();
    assert_eq!(side.received_frames(link).len(), 1);

    let mut second = AddressClaimer::claim(&side, vacant, 2);
    drive_until("the end of the second", &mut [&mut side], |_| second.read());
    assert!(second.has(ClaimStatus::Held) && !second.has(ClaimStatus::Admitted));
    assert!(!first.read() && side.only_link() == Some(link) && side.is_up(link));
}

#[test]
fn uncontested_false_claim_is_refuted_in_the_background() {
    let provider = provider();
    let mut pair = Pair::open_connected(&provider, LOOPBACK);
    let mut victim = Side::open(&provider, LOOPBACK);
    let mut hostile = AddressClaimer::claim(&pair.server, victim.transport.address(), victim.instance);
    // Until the victim makes progress, the claim counts.
    pair.drive_until("the stranger's link", |_, server| live_count(server) == 2);
    let honest = pair.into;
    let false_link = *pair.server.recorder.inboxes.keys().find(|link| **link != honest).unwrap();
    exchange_frames(&mut pair);
    let Pair { client, server, out, into } = &mut pair;
    drive_until("the end of the stranger's link", &mut [client, server, &mut victim], |sides| {
        sides[1].down_error(false_link).is_some()
    });
    let error = server.down_error(false_link).unwrap();
    assert_eq!(*error, LinkError::Protocol("claims the address of another endpoint"));
    assert!(client.is_up(*out) && server.is_up(*into) && hostile.read());
    assert!(victim.recorder.inboxes.is_empty(), "the check was reported as a link");
    exchange_frames(&mut pair);
}

#[test]
fn honest_claim_is_confirmed_in_the_background_by_one_connection() {
    let mut pair = open_checked_pair(&provider());
    let accepted = |side: &mut Side| side.transport.half_open.take_next_serial();
    // The check is the only connection that the client has accepted.
    assert_eq!((accepted(&mut pair.client), accepted(&mut pair.server)), (1, 1));
    pair.drive_until("the end of the check", |client, _| client.transport.half_open.is_empty());
    assert_eq!((live_count(&pair.client), live_count(&pair.server)), (1, 1));
    assert!(pair.server.transport.checks.iter().all(Option::is_none));
    // The server does not ask again.
    for _ in 0..100 {
        pair.server.progress();
        pair.client.progress();
    }
    assert_eq!(accepted(&mut pair.client), 2);
    exchange_frames(&mut pair);
}

/// Where a hostile endpoint listens that passes tokens on: on any port of loopback, or on the port of the
/// target, at another address of the target's host.
const RELAYS: [fn(&Side) -> SocketAddr; 2] = [
    |_| LOOPBACK.parse().unwrap(),
    |target| SocketAddr::from(([127, 77, 0, 2], target.transport.address().port())),
];

/// The victim connects to a hostile endpoint. Passes the token of the stranger's link to the target on to the
/// victim. Returns the victim's link.
fn relay_token(
    victim: &mut Side,
    target: &mut Side,
    stranger: &mut AddressClaimer,
    listener: &TcpListener,
) -> LinkId {
    let relay: Address = listener.local_addr().unwrap().into();
    let link = victim.transport.connect(relay);
    let (mut to_victim, _) = listener.accept().unwrap();
    // The victim answers only once it has the token.
    drive_until("the token", &mut [target], |_| !stranger.records().is_empty());
    let token = stranger.records()[0].token;
    to_victim.write_all(&Hello { address: relay, instance: 5 }.to_bytes()).unwrap();
    to_victim.write_all(&ClaimRecord { status: ClaimStatus::Welcome, token }.to_bytes()).unwrap();
    drive_until("the relay", &mut [victim], |sides| sides[0].is_up(link));
    link
}

#[test]
fn relayed_token_proves_nothing() {
    for relay_of in RELAYS {
        let mut pair = open_checked_pair(&hasty_provider());
        let Pair { client: victim, server: target, .. } = &mut pair;
        let listener = TcpListener::bind(relay_of(target)).unwrap();
        let mut stranger = AddressClaimer::claim(target, victim.transport.address(), 1);
        relay_token(victim, target, &mut stranger, &listener);
        let mut was_admitted = false;
        drive_until("the end of the stranger", &mut [target, victim], |_| {
            was_admitted |= stranger.has(ClaimStatus::Admitted);
            stranger.read()
        });
        assert!(!was_admitted, "{listener:?}");
        exchange_frames(&mut pair);
    }
}

/// Like `relayed_token_proves_nothing`, but the victim has no link to the target yet. The false claim stands
/// until the victim connects to the target.
#[test]
fn link_of_a_relayed_token_gives_way_to_a_proven_link() {
    for relay_of in RELAYS {
        let provider = provider();
        let (mut victim, mut target) = (Side::open(&provider, LOOPBACK), Side::open(&provider, LOOPBACK));
        let listener = TcpListener::bind(relay_of(&target)).unwrap();
        let mut stranger = AddressClaimer::claim(&target, victim.transport.address(), victim.instance);
        relay_token(&mut victim, &mut target, &mut stranger, &listener);
        let out = victim.transport.connect(target.transport.address());
        let what = "the victim's link, and the end of the stranger";
        drive_until(what, &mut [&mut target, &mut victim], |sides| sides[1].is_up(out) && stranger.read());
        assert_eq!(live_count(&target), 1);
    }
}

/// A peer reaches an endpoint that listens at all addresses of its host at one that is not its name.
#[test]
fn claim_over_another_address_of_the_acceptor_is_confirmed() {
    let provider = provider();
    let (mut client, mut server) = (Side::open(&provider, LOOPBACK), Side::open(&provider, "0.0.0.0:0"));
    let other = SocketAddr::from(([127, 77, 0, 2], server.transport.address().port()));
    let _first = client.transport.connect(other.into());
    // The claim of a second link is contested, so only a confirmation admits it.
    let second = client.transport.connect(other.into());
    drive_until("the second link", &mut [&mut client, &mut server], |sides| sides[0].is_up(second));
}

#[test]
fn restarted_peer_gets_in_beside_its_old_link() {
    let provider = provider();
    let mut side = Side::open(&provider, LOOPBACK);
    let vacated = vacant_address();
    // The old link stays open, as if this side did not know yet that the old peer has ended.
    let _old = AddressClaimer::claim(&side, vacated, 1);
    drive_until("the old link", &mut [&mut side], |sides| {
        live_count(sides[0]) == 1 && !sides[0].transport.address_claims.is_busy()
    });
    let mut restarted = Side::open(&provider, &vacated.to_string());
    let out = restarted.transport.connect(side.transport.address());
    restarted.progress();
    drive_until("the new link", &mut [&mut side, &mut restarted], |sides| sides[1].is_up(out));
    let expected = (vacated, restarted.instance);
    assert!(side.recorder.inboxes.values().any(|inbox| inbox.up == Some(expected)));
}

#[test]
fn hellos_of_a_peer_and_its_successor_are_read_in_the_order_of_their_connections() {
    let provider = provider();
    let mut side = Side::open(&provider, LOOPBACK);
    let vacated = vacant_address();
    let mut old = AddressClaimer::connect(&side);
    drive_until("it to be accepted", &mut [&mut side], |sides| !sides[0].transport.half_open.is_empty());
    old.say_hello(vacated, 1);
    old.send(&encode_frame());
    drop(old);
    let mut successor = Side::open(&provider, &vacated.to_string());
    let out = successor.transport.connect(side.transport.address());
    for _ in 0..3 {
        successor.progress();
    }
    // The next pass of this side finds both hellos.
    drive_until("the end of the checks", &mut [&mut side, &mut successor], |sides| {
        sides[1].is_up(out) && !sides[0].transport.address_claims.is_busy()
    });
    let instances = |side: &Side, has_frames: bool| -> Vec<u64> {
        let inboxes = side.recorder.inboxes.values().filter(|inbox| inbox.frames.is_empty() != has_frames);
        inboxes.filter_map(|inbox| inbox.up.map(|(_, instance)| instance)).collect()
    };
    assert_eq!(instances(&side, true), [1], "the message of the old peer");
    assert_eq!(instances(&side, false), [successor.instance]);
}

/// The caller learns of the successor by other means, before this side reads what the old peer has sent.
#[test]
fn messages_of_a_peer_that_has_left_arrive_although_its_address_is_reserved() {
    let mut side = Side::open(&provider(), LOOPBACK);
    let vacated = vacant_address();
    let old = AddressClaimer::claim(&side, vacated, 1);
    drop(old);
    side.transport.reserve_address(vacated);
    drive_until("the message and the end", &mut [&mut side], |sides| {
        sides[0].recorder.inboxes.values().any(|inbox| inbox.frames.len() == 1 && inbox.down.is_some())
    });
    assert_eq!(side.recorder.inboxes.len(), 1);
    // A claim that arrives later may be false, even if its peer has left. Only time makes it later.
    thread::sleep(Duration::from_millis(4 * ARRIVAL_TOLERANCE_MS));
    drop(AddressClaimer::claim(&side, vacated, 2));
    drive_until("the claim", &mut [&mut side], |sides| sides[0].transport.accepted.len() == 1);
    for _ in 0..100 {
        side.progress();
    }
    assert_eq!(side.recorder.inboxes.len(), 1, "the stranger was reported");
}

#[test]
fn link_whose_peer_has_ended_contests_no_claim() {
    let mut pair = open_checked_pair(&provider());
    let address = pair.client.transport.address();
    pair.client.transport.send_inline(pair.out, &make_message(0, 1), b"").unwrap();
    pair.client.transport.flush();
    drop(pair.client);
    // The end is unread when the successor connects.
    let mut successor = AddressClaimer::claim(&pair.server, address, 1);
    drive_until("the successor's link", &mut [&mut pair.server], |_| successor.has(ClaimStatus::Welcome));
    // What the old peer had sent is read, too.
    drive_until("the old link's end", &mut [&mut pair.server], |sides| {
        sides[0].down_error(pair.into) == Some(&LinkError::Closed)
    });
    assert_eq!(pair.server.received_frames(pair.into), [(make_message(0, 1), Vec::new())]);
}

#[test]
fn sleeping_endpoint_wakes_for_its_checks() {
    let mut pair = open_checked_pair(&hasty_provider());
    assert_eq!(pair.server.transport.arm(), Armed::Asleep { look_again_after: None });
    let mut hostile = hold_stranger(&mut pair);
    // The peer makes no progress, so only the timeout ends the stranger's link.
    while !hostile.read() {
        match pair.server.transport.arm() {
            Armed::Asleep { look_again_after: Some(after) } => thread::sleep(after),
            Armed::Asleep { look_again_after: None } => panic!("the endpoint sleeps for ever"),
            Armed::Ready => {}
        }
        pair.server.progress();
    }
    assert_eq!(pair.server.transport.arm(), Armed::Asleep { look_again_after: None });
}

#[test]
fn stop_accepting_drops_held_links() {
    let mut pair = open_checked_pair(&provider());
    let mut hostile = hold_stranger(&mut pair);
    pair.server.transport.stop_accepting();
    assert_eq!(pair.server.transport.accepted.len(), 1);
    assert!(has_ended(&mut hostile.stream));
    exchange_frames(&mut pair);
}

/// An endpoint that is being closed still answers for its own links. So a peer that holds such a link admits
/// it.
#[test]
fn held_link_of_an_endpoint_that_stops_accepting_is_admitted() {
    const PASSES: u32 = 8;
    let provider = provider();
    // The sides make their first passes in every order.
    for order in 0..1 << PASSES {
        let mut sides = [Side::open(&provider, LOOPBACK), Side::open(&provider, LOOPBACK)];
        let addresses = sides.each_ref().map(|side| side.transport.address());
        let [out, _] = [sides[0].transport.connect(addresses[1]), sides[1].transport.connect(addresses[0])];
        let [one, other] = &mut sides;
        for pass in 0..PASSES {
            if order >> pass & 1 == 0 {
                one.progress()
            } else {
                other.progress()
            };
        }
        one.transport.stop_accepting();
        drive_until("the link", &mut [one, other], |sides| sides[0].is_up(out));
        one.transport.send_inline(out, &make_message(0, 1), b"").unwrap();
        drive_until("its frame", &mut [one, other], |sides| {
            sides[1].recorder.inboxes.values().any(|inbox| !inbox.frames.is_empty())
        });
    }
}

#[test]
fn endpoint_that_stops_accepting_listens_only_while_it_has_links_of_its_own() {
    let mut pair = open_checked_pair(&provider());
    let closing = pair.client.transport.address();
    pair.client.transport.stop_accepting();
    let refused = pair.server.transport.connect(closing);
    pair.drive_until("the refusal", |_, server| server.down_error(refused).is_some());
    assert_eq!(pair.server.down_error(refused).map(LinkError::errno), Some(Errno::ECONNREFUSED));
    assert_eq!(live_count(&pair.client), 1, "a new link was accepted");
    exchange_frames(&mut pair);
    let mut silent = TcpStream::connect(closing.socket_addr()).unwrap();
    pair.drive_until("it to be accepted", |client, _| !client.transport.half_open.is_empty());
    pair.client.transport.close(pair.out, Close::Drain);
    pair.drive_until("the end of the link", |client, _| client.transport.draining_count() == 0);
    assert!(pair.client.transport.listener.is_none() && has_ended(&mut silent));
}

#[test]
fn claim_of_a_reserved_address_is_held_until_it_is_released_or_refuted() {
    let mut side = Side::open(&provider(), LOOPBACK);
    let vacant: Address = "127.0.0.1:100".parse::<SocketAddr>().unwrap().into();
    side.transport.reserve_address(vacant);
    let mut waiting = AddressClaimer::claim(&side, vacant, 1);
    drive_until("a held link", &mut [&mut side], |_| waiting.has(ClaimStatus::Held));
    // No endpoint can be asked at the address, which proves nothing.
    for _ in 0..100 {
        side.progress();
    }
    assert!(!waiting.has(ClaimStatus::Admitted) && live_count(&side) == 0);
    side.transport.release_address(vacant);
    drive_until("a link", &mut [&mut side], |sides| live_count(sides[0]) == 1);
    assert!(waiting.has(ClaimStatus::Admitted));

    let mut owner = Side::open(&provider(), LOOPBACK);
    let owned = owner.transport.address();
    side.transport.reserve_address(owned);
    let mut stranger = AddressClaimer::claim(&side, owned, 2);
    drive_until("the refutation", &mut [&mut side, &mut owner], |_| stranger.read());
    assert!(!stranger.has(ClaimStatus::Admitted) && live_count(&side) == 1);
    // The owner's own link is confirmed.
    owner.transport.connect(side.transport.address());
    drive_until("the owner's link", &mut [&mut side, &mut owner], |sides| live_count(sides[0]) == 2);
}
