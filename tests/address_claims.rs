//! Strangers that claim, by a TCP hello, to be a peer of the application.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use homespun::{
    AddressVector, BytesMut, CompletionQueue, Endpoint, Fabric, FabricAddress, Hints, OpenEndpoint,
};
use homespun_engine::wire::hello::Hello;

use homespun_suite::Deadline;

/// A stranger gets at most this many bytes: the endpoint's hello and the token of the link.
const GREETING_MAX_BYTES: usize = 64;

/// An endpoint over TCP, and all that it needs.
struct Party {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
}

impl Party {
    fn open(fabric: &Fabric) -> Party {
        let hints = Hints::new().domain("tcp").node("127.0.0.1").source();
        let OpenEndpoint { endpoint, cq, av, .. } = fabric.open_endpoint(&hints).expect("an endpoint");
        Party { endpoint, cq, av }
    }

    fn address(&self) -> SocketAddr {
        self.endpoint.name().expect("an endpoint in service").socket_addr()
    }

    fn post_receive(&self) {
        self.endpoint.recv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, 1).expect("room for a receive");
    }

    fn send(&self, to: &Party) {
        let name = to.endpoint.name().expect("an endpoint in service");
        let to = self.av.insert(&[name]).remove(0).expect("an endpoint's name");
        self.endpoint.send(b"secret"[..].to_vec().into(), to, 2).expect("room for a send");
    }
}

/// Sends a message, and waits until its send and its receive have completed. Calls `meanwhile` in each
/// round.
#[track_caller]
fn exchange_message(from: &Party, to: &Party, mut meanwhile: impl FnMut()) {
    to.post_receive();
    from.send(to);
    let deadline = Deadline::new();
    let mut ends = [false, false];
    while ends != [true, true] {
        for (end, party) in ends.iter_mut().zip([from, to]) {
            *end |= party.cq.read().expect("no operation fails").is_some();
        }
        meanwhile();
        deadline.yield_or_panic("a message");
    }
}

/// A stranger that claims the address of an endpoint, and the number of bytes that it has received.
struct Stranger {
    stream: TcpStream,
    received_bytes: usize,
    is_refused: bool,
}

impl Stranger {
    fn claim(at: &Party, address: SocketAddr, instance: u64) -> Stranger {
        let mut stream = TcpStream::connect(at.address()).expect("a listener");
        stream.write_all(&Hello { address: address.into(), instance }.to_bytes()).expect("room for a hello");
        stream.set_nonblocking(true).expect("a socket");
        Stranger { stream, received_bytes: 0, is_refused: false }
    }

    fn read(&mut self) {
        let mut buffer = [0; 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_refused = true,
            Ok(read_bytes) => self.received_bytes += read_bytes,
            Err(error) => self.is_refused |= error.kind() != ErrorKind::WouldBlock,
        }
        assert!(self.received_bytes <= GREETING_MAX_BYTES, "the stranger gets what is meant for the peer");
    }

    /// Waits until the endpoint has answered the hello.
    fn await_greeting(&mut self, progress: impl Fn()) {
        let deadline = Deadline::new();
        while self.received_bytes < GREETING_MAX_BYTES && !self.is_refused {
            progress();
            self.read();
            deadline.yield_or_panic("an answer to the hello");
        }
    }
}

/// Checks that a stranger that claims the peer's address gets no message for the peer. The victim must end
/// the stranger's link, and still reach the peer. `begin` connects the two parties first.
fn check_takeover_fails(begin: impl Fn(&Party, &Party)) {
    let fabric = Fabric::new();
    let (victim, peer) = (Party::open(&fabric), Party::open(&fabric));
    begin(&victim, &peer);
    let mut stranger = Stranger::claim(&victim, peer.address(), 0x0bad);
    stranger.await_greeting(|| {
        assert!(victim.cq.read().expect("no operation fails").is_none(), "nothing was posted");
    });
    exchange_message(&victim, &peer, || stranger.read());
    let deadline = Deadline::new();
    while !stranger.is_refused {
        victim.cq.progress();
        peer.cq.progress();
        stranger.read();
        deadline.yield_or_panic("the end of the stranger");
    }
    exchange_message(&victim, &peer, || {});
    exchange_message(&peer, &victim, || {});
}

#[test]
fn stranger_does_not_take_over_a_peer_that_has_connected() {
    check_takeover_fails(|victim, peer| exchange_message(peer, victim, || {}));
}

#[test]
fn stranger_does_not_take_over_a_peer_that_was_connected() {
    check_takeover_fails(|victim, peer| exchange_message(victim, peer, || {}));
}

#[test]
fn stranger_does_not_get_a_message_to_a_peer_that_is_being_connected() {
    let fabric = Fabric::new();
    let (victim, peer) = (Party::open(&fabric), Party::open(&fabric));
    peer.post_receive();
    // The peer makes no progress, so that the victim's connect is pending.
    victim.send(&peer);
    let mut stranger = Stranger::claim(&victim, peer.address(), 0x0bad);
    stranger.await_greeting(|| victim.cq.progress());
    let deadline = Deadline::new();
    while peer.cq.read().expect("nothing fails").is_none() {
        victim.cq.progress();
        stranger.read();
        deadline.yield_or_panic("the message");
    }
}
