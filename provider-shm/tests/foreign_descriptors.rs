//! A peer passes descriptors whose close waits for ever. The endpoint goes on.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use homespun_conformance::transport::{BUDGET_FRAMES, TestEndpoint};
use homespun_engine::transport::Transport;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::net::{SendFlags, send, sockopt};

use crate::raw::{RawSocket, encode_greeting, make_doorbell, make_ring_memfd, vacant_address};

/// How long a close waits in vain.
const LINGER: Duration = Duration::from_secs(600);

/// How long the test waits for the endpoint.
const PATIENCE: Duration = Duration::from_secs(30);

/// A socket with bytes that its peer, the second one, does not read. To close it takes [`LINGER`].
fn make_lingering_socket() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let lingering = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (reader, _) = listener.accept().expect("a connection");
    sockopt::set_socket_linger(&lingering, Some(LINGER)).expect("an option of the socket");
    lingering.set_nonblocking(true).expect("an option of the socket");
    while send(&lingering, &[0; 65_536], SendFlags::DONTWAIT).is_ok() {}
    (lingering.into(), reader)
}

/// Runs a part of a test that must not block.
#[track_caller]
fn run_in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} blocks"))
}

/// Opens an endpoint to which a peer sends messages, each with these bytes and descriptors. The peer keeps
/// none of the descriptors.
fn open_endpoint_with_messages(
    messages: Vec<(Vec<u8>, Vec<OwnedFd>)>,
) -> (TestEndpoint<ShmTransport>, RawSocket) {
    let endpoint = TestEndpoint::open(&ShmProvider::new(), 11);
    let raw = RawSocket::connect(endpoint.address());
    for (bytes, descriptors) in messages {
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        raw.send(&bytes, &descriptors);
    }
    (endpoint, raw)
}

fn receive_some(mut endpoint: TestEndpoint<ShmTransport>) -> TestEndpoint<ShmTransport> {
    for _ in 0..100 {
        endpoint.receive(BUDGET_FRAMES);
    }
    endpoint
}

#[test]
fn greeting_with_a_lingering_socket_does_not_block() {
    let greeting = encode_greeting(vacant_address(), 5);
    let beside = |lingering| vec![make_ring_memfd(), make_doorbell(), lingering];
    type Place = fn(OwnedFd) -> Vec<OwnedFd>;
    let places: [Place; 2] =
        [|lingering| vec![lingering, make_doorbell()], |lingering| vec![make_ring_memfd(), lingering]];
    for (bytes, descriptors) in [
        (greeting.clone(), places[0] as Place),
        (greeting.clone(), places[1]),
        (greeting, beside),
        (Vec::new(), beside),
        (b"no greeting".to_vec(), beside),
    ] {
        let (lingering, _reader) = make_lingering_socket();
        let (endpoint, _raw) = open_endpoint_with_messages(vec![(bytes, descriptors(lingering))]);
        let mut endpoint = run_in_time("a pass", || receive_some(endpoint));
        assert_eq!(endpoint.recorder.live_link_count(), 0);
        endpoint.transport.stop_accepting();
    }
}

#[test]
fn unread_lingering_sockets_do_not_block_the_end_of_a_link() {
    let (lingering, _reader) = make_lingering_socket();
    let good = (encode_greeting(vacant_address(), 5), vec![make_ring_memfd(), make_doorbell()]);
    let (endpoint, raw) = open_endpoint_with_messages(vec![good]);
    let endpoint = receive_some(endpoint);
    raw.send(&[], &[]);
    raw.send(&[7], &[lingering.as_fd()]);
    drop(lingering);
    run_in_time("the end of the link", || drop(endpoint));
}

#[test]
fn unaccepted_lingering_sockets_do_not_block_the_end_of_an_endpoint() {
    let (lingering, _reader) = make_lingering_socket();
    let (endpoint, _raw) =
        open_endpoint_with_messages(vec![(Vec::new(), Vec::new()), (vec![7], vec![lingering])]);
    run_in_time("the end of the endpoint", || drop(endpoint));
}
