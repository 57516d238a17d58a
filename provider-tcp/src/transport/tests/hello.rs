//! How links come up, and which connections are refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::transport::{LinkError, LinkId, Transport};
use homespun_engine::wire::address_claim::{CLAIM_RECORD_BYTES, ClaimRecord, ClaimStatus};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::{HELLO_BYTES, Hello, VERSION};

use crate::TcpProvider;
use crate::descriptors::DescriptorLimit;
use crate::testing::{Pair, Side, drive_until, make_message};

pub(super) fn encode_hello(address: &str) -> [u8; HELLO_BYTES] {
    let address: SocketAddr = address.parse().unwrap();
    Hello { address: address.into(), instance: 77 }.to_bytes()
}

/// Whether the endpoint has ended this connection. Does not block.
pub(super) fn has_ended(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Opens an endpoint, and connects a stranger that says nothing.
fn open_with_stranger(bind: &str) -> (Side, TcpStream) {
    let side = Side::open(&TcpProvider::new(), bind);
    let stranger = TcpStream::connect(side.transport.address().socket_addr()).unwrap();
    (side, stranger)
}

/// Connects the endpoint to a listener. Returns the link, and the listener's end of it.
fn connect_to(listener: &TcpListener, side: &mut Side) -> (LinkId, TcpStream) {
    let link = side.transport.connect(listener.local_addr().unwrap().into());
    (link, listener.accept().unwrap().0)
}

/// Waits until a new link takes a frame, which then leaves with the hello.
fn stage_frame(side: &mut Side, link: LinkId) {
    drive_until("the connection", &mut [], |_| {
        side.transport.receive(64, &mut side.recorder);
        side.transport.send_inline(link, &make_message(3, 5), b"abc").is_ok()
    });
}

#[test]
fn connect_uses_the_bound_source_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = Side::open(&TcpProvider::new(), "127.0.0.2:0");
    let (_, raw) = connect_to(&listener, &mut side);
    let remote = raw.peer_addr().unwrap();
    assert_eq!(remote.ip(), side.transport.address().ip());
    assert_ne!(remote.port(), side.transport.address().port());
}

#[test]
fn hello_and_first_frame_leave_in_one_write() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = Side::open(&TcpProvider::new(), "127.0.0.1:0");
    let (link, mut raw) = connect_to(&listener, &mut side);
    stage_frame(&mut side, link);
    let mut expected =
        Hello { address: side.transport.address(), instance: side.instance }.to_bytes().to_vec();
    let mut head = [0; HEADER_MAX_BYTES];
    let head_bytes = frame::emit(&make_message(3, 5), &mut head);
    expected.extend(&head[..head_bytes]);
    expected.extend(b"abc");
    let mut received = vec![0; expected.len()];
    raw.set_nonblocking(true).unwrap();
    let mut count_bytes = 0;
    drive_until("hello and frame", &mut [&mut side], |_| match raw.read(&mut received) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        read => {
            count_bytes = read.unwrap();
            true
        }
    });
    assert_eq!(count_bytes, received.len(), "more reads than one");
    assert_eq!(received, expected);
    assert!(!side.is_up(link), "up without a hello");
}

#[test]
fn claimed_address_is_checked_against_the_connection() {
    for (claimed, believed) in [("203.0.113.77:100", "127.0.0.1:100"), ("127.0.0.9:100", "127.0.0.9:100")] {
        let (mut side, mut raw) = open_with_stranger("127.0.0.1:0");
        raw.write_all(&encode_hello(claimed)).unwrap();
        drive_until("the hello", &mut [&mut side], |sides| sides[0].only_link().is_some());
        let link = side.only_link().unwrap();
        let believed: SocketAddr = believed.parse().unwrap();
        assert_eq!(side.inbox(link).unwrap().up, Some((Address::from(believed), 77)), "{claimed}");
    }
}

#[test]
fn connection_without_hello_is_dropped_unreported() {
    let mut no_port = encode_hello("127.0.0.1:1");
    no_port[12] = 0;
    let strangers: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n\r\n", b"\0", &no_port, &encode_hello("127.0.0.1:1")[..47], b""];
    for bytes in strangers {
        let (mut side, mut raw) = open_with_stranger("127.0.0.1:0");
        raw.write_all(bytes).unwrap();
        raw.shutdown(std::net::Shutdown::Write).unwrap();
        drive_until("the stranger to be dropped", &mut [&mut side], |_| has_ended(&mut raw));
        assert!(side.recorder.inboxes.is_empty());
        assert!(side.transport.half_open.is_empty());
    }
}

#[test]
fn request_of_libfabrics_tcp_is_refused_in_its_protocol() {
    let (mut side, mut raw) = open_with_stranger("127.0.0.1:0");
    // The header of a request: version, type, and the length of the data in network order.
    let mut request = [0; 34];
    request[0] = 3;
    request[3] = 2;
    raw.write_all(&request).unwrap();
    let mut refusal = [0; 32];
    raw.set_nonblocking(true).unwrap();
    drive_until("the refusal", &mut [&mut side], |_| raw.read(&mut refusal).is_ok_and(|len| len == 32));
    assert_eq!((refusal[..2].to_vec(), refusal[2..].to_vec()), (vec![3, 6], vec![0; 30]));
    drive_until("the end", &mut [&mut side], |_| raw.read(&mut refusal).is_ok_and(|len| len == 0));
    assert!(side.recorder.inboxes.is_empty());
}

#[test]
fn stranger_is_refused_by_its_own_bytes_and_not_by_those_of_another() {
    let mut side = Side::open(&TcpProvider::new(), "127.0.0.1:0");
    let address = side.transport.address().socket_addr();
    for (sent, answer_bytes) in [(&[3, 0][..], 32), (&[3], 0)] {
        let mut raw = TcpStream::connect(address).unwrap();
        raw.write_all(sent).unwrap();
        raw.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        drive_until("the end of the stranger", &mut [&mut side], |_| {
            raw.read_to_end(&mut answer).is_ok_and(|_| true)
        });
        assert_eq!(answer.len(), answer_bytes, "after {sent:?}");
    }
}

#[test]
fn connect_to_another_service_is_a_protocol_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = Side::open(&TcpProvider::new(), "127.0.0.1:0");
    let (link, mut raw) = connect_to(&listener, &mut side);
    raw.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").unwrap();
    drive_until("the end", &mut [&mut side], |sides| sides[0].down_error(link).is_some());
    assert_eq!(side.down_error(link), Some(&LinkError::Protocol("not a homespun endpoint")));
    assert_eq!(side.inbox(link).unwrap().up, None);
}

fn encode_hello_of_next_version() -> Vec<u8> {
    let mut hello = encode_hello("127.0.0.1:100").to_vec();
    hello[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
    hello
}

#[test]
fn peer_of_another_version_learns_the_version_of_this_side() {
    let (mut side, mut raw) = open_with_stranger("127.0.0.1:0");
    raw.write_all(&[&encode_hello_of_next_version()[..], b"frames"].concat()).unwrap();
    raw.set_nonblocking(true).unwrap();
    let mut answer = Vec::new();
    drive_until("the end", &mut [&mut side], |_| {
        raw.read_to_end(&mut answer).map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true)
    });
    assert_eq!(answer[..10], encode_hello("127.0.0.1:1")[..10]);
    assert!(side.recorder.inboxes.is_empty());
}

#[test]
fn acceptor_of_another_version_is_named_even_if_it_resets_the_connection() {
    for is_reset in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut side = Side::open(&TcpProvider::new(), "127.0.0.1:0");
        let (link, mut raw) = connect_to(&listener, &mut side);
        stage_frame(&mut side, link);
        side.transport.flush();
        // The system resets a connection that is closed while bytes are unread.
        raw.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        raw.peek(&mut [0]).unwrap();
        raw.write_all(&encode_hello_of_next_version()).unwrap();
        let _open = (!is_reset).then_some(raw);
        drive_until("the end", &mut [&mut side], |sides| sides[0].down_error(link).is_some());
        assert_eq!(side.down_error(link), Some(&LinkError::OtherVersion { theirs: VERSION + 1 }));

        // The next link takes no frames that would be lost.
        let (next, mut raw) = connect_to(&listener, &mut side);
        drive_until("the hello", &mut [&mut side], |_| {
            raw.set_nonblocking(true).unwrap();
            raw.peek(&mut [0]).is_ok()
        });
        assert!(side.transport.send_inline(next, &make_message(3, 5), b"abc").is_err());
        raw.write_all(&encode_hello_of_next_version()).unwrap();
        drive_until("the end", &mut [&mut side], |sides| sides[0].down_error(next).is_some());
        assert_eq!(side.down_error(next), Some(&LinkError::OtherVersion { theirs: VERSION + 1 }));
    }
}

#[test]
fn peer_that_had_another_version_before_gets_messages() {
    let mut side = Side::open(&TcpProvider::new(), "127.0.0.1:0");
    let mut peer = Side::open(&TcpProvider::new(), "127.0.0.1:0");
    let to = peer.transport.address();
    side.transport.other_versions.insert(to);
    let link = side.transport.connect(to);
    drive_until("the link", &mut [&mut side, &mut peer], |sides| {
        sides[0].transport.send_inline(link, &make_message(3, 5), b"abc").is_ok()
    });
    assert!(side.inbox(link).unwrap().up.is_some(), "a frame was taken before the hello");
}

#[test]
fn bad_frame_ends_its_own_link_only() {
    let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
    let mut raw = TcpStream::connect(pair.server.transport.address().socket_addr()).unwrap();
    raw.write_all(&encode_hello("127.0.0.1:100")).unwrap();
    raw.write_all(&[0xff; 64]).unwrap();
    let good = pair.into;
    pair.drive_until("the bad link to end", |_, server| {
        server.recorder.inboxes.iter().any(|(link, inbox)| *link != good && inbox.down.is_some())
    });
    let bad = *pair.server.recorder.inboxes.keys().find(|link| **link != good).unwrap();
    assert!(matches!(pair.server.down_error(bad), Some(LinkError::Protocol(_))));
    pair.client.transport.send_inline(pair.out, &make_message(0, 1), b"").unwrap();
    pair.drive_until("a frame on the good link", |_, server| server.received_frames(good).len() == 1);
}

#[test]
fn half_open_limit_drops_the_oldest() {
    let mut side = Side::open(&TcpProvider::new(), "127.0.0.1:0");
    let address = side.transport.address().socket_addr();
    let max_links = DescriptorLimit::current().half_open_max_links();
    let mut silent: Vec<TcpStream> = Vec::new();
    for count in 1..=max_links {
        silent.push(TcpStream::connect(address).unwrap());
        drive_until("it to be accepted", &mut [&mut side], |sides| {
            sides[0].transport.half_open.len() == count
        });
    }
    assert!(!has_ended(&mut silent[0]));
    let mut speaking = Vec::new();
    for more in 0..3 {
        // A peer that says hello at once takes no place among the silent peers.
        let mut raw = TcpStream::connect(address).unwrap();
        raw.write_all(&encode_hello(&format!("127.0.0.1:{}", 100 + more))).unwrap();
        drive_until("a connection with a hello", &mut [&mut side], |sides| {
            sides[0].recorder.inboxes.len() == more + 1
        });
        assert!(!has_ended(&mut silent[more]));
        silent.push(TcpStream::connect(address).unwrap());
        drive_until("the oldest to be dropped", &mut [&mut side], |_| has_ended(&mut silent[more]));
        assert!(!has_ended(&mut silent[more + 1]));
        assert_eq!(side.transport.half_open.len(), max_links);
        speaking.push(raw);
    }
}

#[test]
fn stop_accepting_ends_half_open_connections() {
    let (mut side, mut raw) = open_with_stranger("[::1]:0");
    raw.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    drive_until("it to be accepted", &mut [&mut side], |sides| !sides[0].transport.half_open.is_empty());
    side.transport.stop_accepting();
    assert!(side.transport.half_open.is_empty());
    let mut rest = Vec::new();
    // Either an orderly end or a reset is fine.
    let _closed_or_reset = raw.read_to_end(&mut rest);
    assert!(rest.is_empty(), "a stranger was answered");
}

#[test]
fn hello_is_answered_only_when_complete() {
    let (mut side, mut raw) = open_with_stranger("127.0.0.1:0");
    let hello = encode_hello("127.0.0.1:100");
    raw.write_all(&hello[..HELLO_BYTES - 1]).unwrap();
    drive_until("it to be accepted", &mut [&mut side], |sides| !sides[0].transport.half_open.is_empty());
    raw.set_nonblocking(true).unwrap();
    const ANSWER_BYTES: usize = HELLO_BYTES + CLAIM_RECORD_BYTES;
    let mut answer = [0; ANSWER_BYTES + 1];
    for _ in 0..100 {
        side.progress();
        assert_eq!(raw.read(&mut answer).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    }
    raw.write_all(&hello[HELLO_BYTES - 1..]).unwrap();
    let mut count_bytes = 0;
    drive_until("the answer", &mut [&mut side], |_| {
        count_bytes += raw.read(&mut answer[count_bytes..]).unwrap_or(0);
        count_bytes >= ANSWER_BYTES
    });
    let own = Hello { address: side.transport.address(), instance: side.instance };
    assert_eq!(answer[..HELLO_BYTES], own.to_bytes());
    let record = ClaimRecord::parse(answer[HELLO_BYTES..].first_chunk().unwrap()).unwrap();
    assert_eq!((record.status, count_bytes), (ClaimStatus::Welcome, ANSWER_BYTES));
}
