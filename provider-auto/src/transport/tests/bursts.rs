//! When the frames of posts to far peers leave.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use homespun_conformance::transport::{BUDGET_FRAMES, Deadline, TestEndpoint, message_header};
use homespun_engine::address::AddressFormat;
use homespun_engine::transport::{LinkId, Transport};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::{HELLO_BYTES, Hello};
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;

use crate::carried_link::CarriedLink;
use crate::{AutoProvider, AutoTransport};

const PAYLOAD: &[u8] = b"payload.";

/// How long a test waits for a frame before it fails: far longer than any frame takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint with a link to a bare socket. The endpoint's clock stands still, so all posts between two
/// passes belong to one burst.
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
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        endpoint.transport.far.stop_burst_clock();
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

    /// Makes posts. Returns for each whether the kernel may then hold frames back.
    fn post_and_see_holds<const COUNT: usize>(&mut self) -> [bool; COUNT] {
        [(); COUNT].map(|()| {
            self.post();
            self.holds_back()
        })
    }

    /// Whether the kernel was asked to hold frames back, and was not asked to push them since.
    fn holds_back(&mut self) -> bool {
        let CarriedLink::Far(far) = CarriedLink::from_link_id(self.link) else { panic!("a link over TCP") };
        self.endpoint.transport.far.holds_back(far)
    }

    #[track_caller]
    fn assert_frames_arrive(&mut self, count: usize) {
        let mut header = [0; HEADER_MAX_BYTES];
        let header_bytes = frame::emit(&message_header(PAYLOAD.len()), &mut header);
        let expected = [&header[..header_bytes], PAYLOAD].concat().repeat(count);
        let mut arrived = vec![0; expected.len()];
        self.socket.read_exact(&mut arrived).expect("the frames");
        assert_eq!(arrived, expected);
    }
}

#[test]
fn third_post_to_a_far_peer_is_held_until_the_next_pass() {
    let mut far = FarLink::open();
    for _ in 0..3 {
        assert_eq!(far.post_and_see_holds(), [false, false, true, true]);
        far.make_pass();
        assert!(!far.holds_back());
        far.assert_frames_arrive(4);
    }
}

#[test]
fn arming_pushes_what_is_held_for_a_far_peer() {
    let mut far = FarLink::open();
    assert_eq!(far.post_and_see_holds(), [false, false, true]);
    far.endpoint.transport.arm();
    assert!(!far.holds_back());
    far.assert_frames_arrive(3);
}
