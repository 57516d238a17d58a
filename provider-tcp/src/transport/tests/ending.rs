//! How links end.

use std::io::{Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, LinkError, LinkId, Provider, Sent, Transport};
use homespun_engine::wire::address_claim::CLAIM_RECORD_BYTES;
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::{HELLO_BYTES, Hello};
use socket2::{Domain, SockRef, Socket, Type};

use super::address_claimer::{AddressClaimer, LOOPBACK, live_count};
use crate::TcpProvider;
use crate::limits::{PASS_MAX_ENDS, USER_TIMEOUT_MS};
use crate::testing::{Pair, Side, drive_until, make_message, make_payload};

/// Opens an endpoint, connects a hand-made peer and exchanges hellos. Returns the endpoint, the connection of
/// the peer, and the link at the endpoint.
fn open_with_raw_peer() -> (Side, TcpStream, LinkId) {
    let mut side = Side::open(&TcpProvider::new(), LOOPBACK);
    let mut raw = TcpStream::connect(side.transport.address().socket_addr()).unwrap();
    raw.set_nodelay(true).unwrap();
    let address: SocketAddr = "127.0.0.1:100".parse().unwrap();
    raw.write_all(&Hello { address: address.into(), instance: 7 }.to_bytes()).unwrap();
    drive_until("the hello", &mut [&mut side], |sides| sides[0].only_link().is_some());
    raw.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    raw.read_exact(&mut [0; HELLO_BYTES + CLAIM_RECORD_BYTES]).unwrap();
    let link = side.only_link().unwrap();
    (side, raw, link)
}

fn encode_frame(len_bytes: usize, tag: u64) -> Vec<u8> {
    let mut head = [0; HEADER_MAX_BYTES];
    let head_bytes = frame::emit(&make_message(len_bytes, tag), &mut head);
    [&head[..head_bytes], &make_payload(len_bytes, tag)].concat()
}

fn drive_until_down(side: &mut Side, link: LinkId) -> LinkError {
    drive_until("the end of the link", &mut [side], |sides| sides[0].down_error(link).is_some());
    // The recorder panics if the endpoint reports anything after the end.
    for _ in 0..10 {
        side.progress();
    }
    side.down_error(link).unwrap().clone()
}

fn open_with_connect_timeout(timeout: Duration) -> Side {
    Side::open(&TcpProvider::new().with_connect_timeout(Some(timeout)), LOOPBACK)
}

/// The kernel drops the first packet of each further connection to a listener whose backlog is full.
#[test]
fn connect_without_an_answer_ends_at_its_limit() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let silent = listener.local_addr().unwrap().as_socket().unwrap();
    let mut side = open_with_connect_timeout(Duration::from_millis(300));
    let links: Vec<LinkId> = (0..4).map(|_| side.transport.connect(silent.into())).collect();
    drive_until("the limit", &mut [&mut side], |sides| {
        links.iter().any(|link| sides[0].down_error(*link).is_some())
    });
    let errors = links.iter().filter_map(|link| side.down_error(*link));
    assert!(errors.into_iter().all(|error| *error == LinkError::System(Errno::ETIMEDOUT)));
}

#[test]
fn limit_of_a_connect_goes_on_after_the_peer_has_cut_it_short() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer: Address = listener.local_addr().unwrap().into();
    let limit_of = |side: &mut Side, link| {
        let link = side.transport.links.link_mut(link).expect("it is connecting");
        SockRef::from(&*link.stream).tcp_user_timeout().unwrap().unwrap()
    };
    // Only the next call knows what was cut short, so no pass may follow.
    let drive_until_end = |side: &mut Side, link| {
        drive_until("the end of the link", &mut [side], |sides| sides[0].down_error(link).is_some());
    };
    let all = Duration::from_secs(1000);
    let mut side = open_with_connect_timeout(all);
    let mut link = side.transport.connect(peer);
    let mut left = all;
    for _ in 0..3 {
        assert!(limit_of(&mut side, link) <= left);
        drop(listener.accept().unwrap());
        drive_until_end(&mut side, link);
        thread::sleep(Duration::from_millis(2));
        link = side.transport.connect_again(peer);
        let before = mem::replace(&mut left, limit_of(&mut side, link));
        assert!(left < before, "{left:?} after {before:?}");
    }
    let other = side.transport.connect(peer);
    assert_eq!(limit_of(&mut side, other), all, "a new attempt");

    let mut side = open_with_connect_timeout(Duration::from_millis(1));
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let peer: Address = listener.local_addr().unwrap().into();
    let link = side.transport.connect(peer);
    drop(listener.accept().unwrap());
    drive_until_end(&mut side, link);
    thread::sleep(Duration::from_millis(2));
    let late = side.transport.connect_again(peer);
    assert_eq!(drive_until_down(&mut side, late), LinkError::System(Errno::ETIMEDOUT));
}

#[test]
fn established_link_keeps_no_limit_of_its_connect() {
    let provider = TcpProvider::new().with_connect_timeout(Some(Duration::from_millis(300)));
    let mut pair = Pair::open_connected(&provider, "127.0.0.1:0");
    let link = pair.client.transport.links.link_mut(pair.out).unwrap();
    let limit = SockRef::from(&*link.stream).tcp_user_timeout().unwrap();
    assert_eq!(limit, Some(Duration::from_millis(USER_TIMEOUT_MS)));
}

#[test]
fn remote_peer_of_a_loopback_endpoint_is_named_with_both_addresses() {
    for (at, remote) in [("127.0.0.1:0", "192.0.2.1:7471"), ("[::1]:0", "[2001:db8::1]:7471")] {
        let mut side = Side::open(&TcpProvider::new(), at);
        let peer: Address = remote.parse::<SocketAddr>().unwrap().into();
        let link = side.transport.connect(peer);
        let error = drive_until_down(&mut side, link);
        let own = side.transport.address();
        assert_eq!(error, LinkError::LoopbackOnly { own: Box::new(own), peer: Box::new(peer) });
        let text = error.to_string();
        assert!(text.contains(&own.to_string()) && text.contains(remote), "{text}");
    }
}

/// Writes without reading, so that a write finds the error before a read does.
fn write_until_it_fails(side: &mut Side, link: LinkId) {
    let begin = Instant::now();
    while side.transport.send_inline(link, &make_message(0, 1), b"").is_ok() {
        side.transport.flush();
        thread::yield_now();
        assert!(begin.elapsed() < Duration::from_secs(30), "writing to a dead peer never fails");
    }
}

#[test]
fn connect_to_another_family_fails_with_eafnosupport() {
    let mut side = Side::open(&TcpProvider::new(), "127.0.0.1:0");
    let other_family: SocketAddr = "[::1]:9".parse().unwrap();
    let link = side.transport.connect(other_family.into());
    assert_eq!(side.transport.send(link, &make_message(0, 1), &[]), Sent::Full);
    assert_eq!(drive_until_down(&mut side, link), LinkError::System(Errno::EAFNOSUPPORT));

    // If the application closes a failed link before the failure is reported, nothing is reported.
    let link = side.transport.connect(other_family.into());
    side.transport.close(link, Close::Drain);
    let before = side.recorder.inboxes.len();
    assert_eq!((side.progress(), side.transport.draining_count()), (0, 0));
    assert_eq!(side.recorder.inboxes.len(), before);
}

#[test]
fn peer_death_inside_a_header_is_econnreset() {
    let (mut side, mut raw, link) = open_with_raw_peer();
    raw.write_all(&encode_frame(3, 1)).unwrap();
    raw.write_all(&encode_frame(100, 2)[..5]).unwrap();
    drop(raw);
    assert_eq!(drive_until_down(&mut side, link), LinkError::System(Errno::ECONNRESET));
    assert_eq!(side.received_frames(link), [(make_message(3, 1), make_payload(3, 1))]);
    assert!(!side.inbox(link).unwrap().is_mid_frame());
}

#[test]
fn frames_before_peer_death_are_read_after_a_failed_write() {
    let (mut side, mut raw, link) = open_with_raw_peer();
    // Send few frames, so that all arrive before the reset. A reset destroys frames in flight.
    for tag in 0..10 {
        raw.write_all(&encode_frame(1_000, tag)).unwrap();
    }
    SockRef::from(&raw).set_linger(Some(Duration::ZERO)).unwrap();
    drop(raw);
    write_until_it_fails(&mut side, link);
    assert_eq!(drive_until_down(&mut side, link), LinkError::System(Errno::ECONNRESET));
    assert_eq!(side.received_frames(link).len(), 10);
}

#[test]
fn orderly_end_after_a_failed_write_is_closed() {
    let (mut side, mut raw, link) = open_with_raw_peer();
    raw.write_all(&encode_frame(10, 1)).unwrap();
    drop(raw);
    // The peer's kernel answers the first write with a reset. Then a later write fails.
    write_until_it_fails(&mut side, link);
    assert_eq!(drive_until_down(&mut side, link), LinkError::Closed);
    assert_eq!(side.received_frames(link).len(), 1);
}

/// Peers end links, and checks of claims end further ones at the same time.
#[test]
fn pass_ends_few_links_and_later_passes_the_others() {
    const LINKS: usize = 5 * PASS_MAX_ENDS as usize;
    let provider = TcpProvider::new();
    let open = || Side::open(&provider, LOOPBACK);
    let (mut client, mut server) = (open(), open());
    let mut victims: Vec<Side> = (0..PASS_MAX_ENDS).map(|_| open()).collect();
    for _ in 0..LINKS {
        client.transport.connect(server.transport.address());
    }
    drive_until("all links", &mut [&mut client, &mut server], |sides| live_count(sides[1]) == LINKS);
    let claim = |victim: &Side| AddressClaimer::claim(&server, victim.transport.address(), victim.instance);
    let _hostile: Vec<AddressClaimer> = victims.iter().map(claim).collect();
    drive_until("the checks of the claims", &mut [&mut server], |sides| {
        live_count(sides[0]) == LINKS + victims.len()
            && sides[0].transport.checks.iter().flatten().count() == victims.len()
    });
    // The server asks, but does not yet read the answers.
    for _ in 0..50 {
        server.progress();
    }
    for _ in 0..50 {
        victims.iter_mut().for_each(|victim| _ = victim.progress());
    }
    drop(client);
    let mut before = live_count(&server);
    drive_until("the end of all links", &mut [&mut server], |sides| {
        let ended = before - live_count(sides[0]);
        assert!(ended <= PASS_MAX_ENDS as usize, "{ended} links in one pass");
        before -= ended;
        before == 0
    });
}

#[test]
fn bind_to_a_foreign_address_fails_with_eaddrnotavail() {
    let elsewhere: SocketAddr = "203.0.113.77:0".parse().unwrap();
    let error = TcpProvider::new().open(elsewhere.into(), 1).err();
    assert_eq!(error, Some(Errno::EADDRNOTAVAIL));
}
