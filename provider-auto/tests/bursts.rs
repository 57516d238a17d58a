//! When the frames of posts to far peers leave.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use homespun_auto::{AutoProvider, AutoTransport};
use homespun_conformance::transport::{BUDGET_FRAMES, Deadline, TestEndpoint, message_header};
use homespun_engine::address::AddressFormat;
use homespun_engine::transport::{LinkId, Transport};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::{HELLO_BYTES, Hello};
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;
use rustix::io::ioctl_fionread;

const PAYLOAD: &[u8] = b"payload.";

/// The kernel may send what it holds back at any time, and a slow post is not held back. So the tests try
/// again.
const TRIES: usize = 50;

/// An endpoint with a link to a bare socket.
struct FarLink {
    endpoint: TestEndpoint<AutoTransport>,
    link: LinkId,
    socket: TcpStream,
}

impl FarLink {
    fn open() -> FarLink {
        let provider = AutoProvider::new(ShmProvider::new(), TcpProvider::new());
        let bind = AddressFormat::SockaddrIn.wildcard();
        let mut endpoint = TestEndpoint::open_at(&provider, bind, 1);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound").into();
        let link = endpoint.connect(address);
        let (mut socket, _) = listener.accept().expect("a connection");
        let hello = Hello { address, instance: 2 }.to_bytes();
        let welcome = ClaimRecord { status: ClaimStatus::Welcome, token: 3 }.to_bytes();
        socket.write_all(&[&hello[..], &welcome].concat()).expect("the peer reads");
        let deadline = Deadline::new();
        while endpoint.recorder.up_events().is_empty() {
            endpoint.receive(BUDGET_FRAMES);
            endpoint.transport.flush();
            deadline.yield_or_panic("the link");
        }
        socket.read_exact(&mut [0; HELLO_BYTES]).expect("the endpoint's hello");
        FarLink { endpoint, link, socket }
    }

    fn post(&mut self) {
        let header = message_header(PAYLOAD.len());
        self.endpoint.transport.send_inline(self.link, &header, PAYLOAD).expect("room");
        self.endpoint.transport.hand_over();
    }

    fn make_pass(&mut self) {
        self.endpoint.receive(BUDGET_FRAMES);
        self.endpoint.transport.flush();
    }

    /// Counts the frames that have arrived. Reads none: the kernel would acknowledge them, and then send
    /// what it holds back.
    fn count_arrived(&self) -> usize {
        let header_bytes = frame::emit(&message_header(PAYLOAD.len()), &mut [0; HEADER_MAX_BYTES]);
        let arrived_bytes = ioctl_fionread(&self.socket).expect("a socket");
        usize::try_from(arrived_bytes).expect("few") / (header_bytes + PAYLOAD.len())
    }
}

#[test]
fn lone_post_to_a_far_peer_leaves_at_once() {
    let is_seen = (0..TRIES).any(|_| {
        let mut far = FarLink::open();
        far.post();
        far.count_arrived() == 1
    });
    assert!(is_seen, "the frame waits");
}

#[test]
fn third_post_to_a_far_peer_is_held_until_the_next_pass() {
    let is_seen = (0..TRIES).any(|_| {
        let mut far = FarLink::open();
        (0..3).for_each(|_| far.post());
        let before = far.count_arrived();
        far.make_pass();
        (before, far.count_arrived()) == (2, 3)
    });
    assert!(is_seen, "the third frame never waited for the pass, or never left in it");
}

#[test]
fn arming_pushes_what_is_held_for_a_far_peer() {
    let is_seen = (0..TRIES).any(|_| {
        let mut far = FarLink::open();
        (0..3).for_each(|_| far.post());
        let before = far.count_arrived();
        far.endpoint.transport.arm();
        (before, far.count_arrived()) == (2, 3)
    });
    assert!(is_seen, "the third frame never waited, or never left");
}
