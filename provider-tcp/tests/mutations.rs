//! Peers that send a frame whose header has a changed byte or is cut. The peer's link ends with an error,
//! and the link of a correct peer stays up. A connector also refuses a greeting with a changed byte.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::errno::Errno;
use homespun_engine::limits::{MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use homespun_engine::transport::{FrameHandler, LinkError, LinkEvent, LinkId, Provider, Space, Transport};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::Hello;
use homespun_engine::wire::{
    Atomic, AtomicForm, AwaitedReply, Durable, Form, HandshakeHeader, HandshakeStep, Header, MappableRegion,
    Message, Outcome, Refusal, Rma, RmaKind, samples,
};
use homespun_tcp::{TcpProvider, TcpTransport};
use socket2::SockRef;

/// How long the test waits for an event before it fails: far longer than any event takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many peers the test connects at a time.
const PEERS: usize = 32;

/// The instance of the peer that sends correct frames. The instance of any other peer is the number of its
/// case.
const UNAFFECTED: u64 = u64::MAX;

/// The frame that each peer sends before the changed frame.
const FIRST: Header = Header::Ack { received: 1 };

/// What the endpoint has reported about each peer, by its instance.
#[derive(Default)]
struct PeerLogs {
    live: BTreeMap<LinkId, u64>,
    frames: BTreeMap<u64, Vec<Header>>,
    down: BTreeMap<u64, LinkError>,
    /// Links that never came up.
    refused: BTreeMap<LinkId, LinkError>,
}

impl FrameHandler for PeerLogs {
    fn frame(&mut self, link: LinkId, header: &Header, _: &[u8]) {
        self.frames.entry(self.live[&link]).or_default().push(*header);
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        self.frames.entry(self.live[&link]).or_default().push(*header);
    }

    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }

    fn bytes_placed(&mut self, _: LinkId, _: usize) {}

    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Up { instance, .. } => assert_eq!(self.live.insert(link, instance), None, "up twice"),
            LinkEvent::Confirmed => {}
            LinkEvent::Down(error) => match self.live.remove(&link) {
                Some(instance) => drop(self.down.insert(instance, error)),
                None => drop(self.refused.insert(link, error)),
            },
        }
    }

    fn link_writable(&mut self, _: LinkId) {}
}

struct Side {
    transport: TcpTransport,
    logs: PeerLogs,
}

impl Side {
    fn open(instance: u64) -> Side {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let transport = TcpProvider::new().open(loopback.into(), instance).unwrap();
        Side { transport, logs: PeerLogs::default() }
    }

    fn drive_until(&mut self, what: &str, mut done: impl FnMut(&mut Side) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            if self.transport.receive(64, &mut self.logs) == 0 {
                thread::yield_now();
            }
            self.transport.flush();
            assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        }
    }
}

/// Connects a peer that sends a hello, a frame, and then these bytes.
fn connect_peer(at: Address, instance: u64, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(at.socket_addr()).unwrap();
    // Close with a reset, so that no connection stays in TIME_WAIT.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    // Each peer claims another address, at which no socket listens.
    let address = SocketAddr::from(([127, 1, (instance >> 8) as u8, instance as u8], 1));
    let hello = Hello { address: address.into(), instance }.to_bytes();
    stream.write_all(&[&hello, &encoded_header(&FIRST)[..], bytes].concat()).unwrap();
    stream
}

fn encoded_header(header: &Header) -> Vec<u8> {
    let mut buffer = [0; HEADER_MAX_BYTES];
    let len_bytes = frame::emit(header, &mut buffer);
    buffer[..len_bytes].to_vec()
}

/// A header of every form, and further headers with chosen values.
fn sample_headers() -> Vec<Header> {
    const NUMBER: u64 = 0x0123_4567_89ab_cdef;
    let message = |tag, data, awaits| Message { len_bytes: 0x01_2345, tag, data, awaits };
    let rma = |kind| {
        Header::Rma(Rma {
            op: NUMBER,
            key: !NUMBER,
            address: NUMBER,
            len_bytes: 0x01_2345,
            kind,
            durable: Durable::Nothing,
        })
    };
    let atomic = |kind, op, datatype, count| {
        let form = AtomicForm::new(kind, op, datatype, count).unwrap();
        Header::Atomic(Atomic { op: NUMBER, key: !NUMBER, address: NUMBER, form })
    };
    let plain = Message::of_len(0);
    let full = message(Some(NUMBER), Some(!NUMBER), AwaitedReply::Match);
    let longest = Message { len_bytes: MESSAGE_MAX_BYTES, ..full };
    let chosen = vec![
        Header::Message(plain),
        Header::Message(message(Some(NUMBER), None, AwaitedReply::Arrival)),
        Header::Message(message(None, Some(NUMBER), AwaitedReply::Nothing)),
        Header::Message(full),
        Header::Ack { received: 2 },
        Header::Request { message: plain, op: 1, remote_bytes: 0 },
        Header::Request { message: longest, op: NUMBER, remote_bytes: REMOTE_MAX_BYTES as u8 },
        Header::Clear { op: 1, cannot_pull: false },
        Header::Clear { op: NUMBER, cannot_pull: true },
        Header::Data { op: 1, len_bytes: 0 },
        Header::Data { op: NUMBER, len_bytes: 0x01_2345 },
        Header::Done { op: 1, fault: false },
        Header::Done { op: NUMBER, fault: true },
        Header::Matched { number: 3 },
        Header::Matched { number: u64::MAX },
        Header::Credit { granted_bytes: 1 << 20 },
        Header::Fence { matched: false },
        Header::Fence { matched: true },
        Header::Fenced,
        rma(RmaKind::Read),
        rma(RmaKind::Flush),
        rma(RmaKind::Write { data: None }),
        rma(RmaKind::Write { data: Some(NUMBER) }),
        rma(RmaKind::Offer { data: Some(NUMBER), remote_bytes: REMOTE_MAX_BYTES as u8 }),
        Header::MappableRegion(MappableRegion {
            key: NUMBER,
            address: 1,
            len_bytes: 0x01_2345,
            access: NUMBER,
            remote_bytes: 9,
        }),
        Header::ReadData { op: NUMBER, len_bytes: 0x01_2345 },
        atomic(AtomicKind::Base, AtomicOp::Sum, Datatype::Double, 3),
        atomic(AtomicKind::Fetch, AtomicOp::Read, Datatype::Uint8, 0x0123),
        atomic(AtomicKind::Compare, AtomicOp::CswapLe, Datatype::Int32, 0x0123),
        Header::Answer { op: 1, outcome: Outcome::Done },
        Header::Answer { op: NUMBER, outcome: Outcome::Refused(Refusal::Range) },
        Header::Connection(HandshakeHeader {
            step: HandshakeStep::Request,
            number: NUMBER,
            data_bytes: 0x0100,
        }),
        Header::Connection(HandshakeHeader { step: HandshakeStep::Shutdown, number: NUMBER, data_bytes: 0 }),
    ];
    // `fitting_header` looks for a last word and a payload length that fit the form. Pair 1 has a short
    // payload, so begin there.
    let of_every_form = Form::all().map(|form| samples::fitting_header(form, NUMBER, 1));
    chosen.into_iter().chain(of_every_form).collect()
}

/// The values to which a byte is changed: all bits 0, all bits 1, each single bit flipped, and all bits
/// flipped.
fn byte_mutations(byte: u8) -> Vec<u8> {
    let flips = (0..u8::BITS).map(|bit| byte ^ 1 << bit);
    let mut all: Vec<u8> = flips.chain([0, 0xff, !byte]).filter(|mutated| *mutated != byte).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The bytes that a peer sends after its first frame, and whether it then ends its stream.
struct Case {
    what: String,
    bytes: Vec<u8>,
    is_cut: bool,
}

fn mutation_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for header in sample_headers() {
        let bytes = encoded_header(&header);
        for at in 0..bytes.len() {
            for mutated in byte_mutations(bytes[at]) {
                let mut bytes = bytes.clone();
                bytes[at] = mutated;
                let what = format!("byte {at} of {header:?}, become {mutated:#x}");
                cases.push(Case { what, bytes, is_cut: false });
            }
            if at > 0 {
                let what = format!("{header:?}, cut at byte {at}");
                cases.push(Case { what, bytes: bytes[..at].to_vec(), is_cut: true });
            }
        }
    }
    cases
}

/// Asserts that a frame on the correct peer's link arrives.
fn assert_link_works(side: &mut Side, friend: &mut Side, link: LinkId, after: &str) {
    let frame_count = |side: &Side| side.logs.frames.get(&UNAFFECTED).map_or(0, Vec::len);
    let before = frame_count(side);
    friend.drive_until("room", |friend| friend.transport.send_inline(link, &FIRST, &[]).is_ok());
    friend.transport.flush();
    side.drive_until(after, |side| frame_count(side) > before);
    assert!(!side.logs.down.contains_key(&UNAFFECTED));
}

/// The link accepts unchanged samples. Otherwise the tests of changed samples would prove nothing.
#[test]
fn unchanged_header_arrives() {
    let mut side = Side::open(1);
    let address = side.transport.address();
    for (header, instance) in sample_headers().into_iter().zip(0..) {
        let payload = vec![0; header.payload_len_bytes() as usize];
        let peer = connect_peer(
            address,
            instance,
            &[encoded_header(&header), payload, encoded_header(&FIRST)].concat(),
        );
        side.drive_until("the frames around a sample", |side| {
            side.logs.frames.get(&instance).is_some_and(|frames| frames.len() == 3)
                || side.logs.down.contains_key(&instance)
        });
        assert_eq!(side.logs.down.get(&instance), None, "{header:?}");
        assert_eq!(side.logs.frames[&instance], [FIRST, header, FIRST]);
        drop(peer);
    }
}

#[test]
fn changed_header_byte_ends_the_link() {
    let mut side = Side::open(1);
    let address = side.transport.address();
    let mut friend = Side::open(UNAFFECTED);
    let link = friend.transport.connect(address);
    side.drive_until("the unaffected link", |side| {
        friend.transport.receive(64, &mut friend.logs);
        friend.transport.flush();
        side.logs.live.values().any(|instance| *instance == UNAFFECTED)
    });

    let cases = mutation_cases();
    assert!(cases.len() > 1000);
    for (batch, first) in cases.chunks(PEERS).zip((0..).step_by(PEERS)) {
        let peers: Vec<TcpStream> = (first..)
            .zip(batch)
            .map(|(instance, case)| {
                let stream = connect_peer(address, instance, &case.bytes);
                if case.is_cut {
                    stream.shutdown(Shutdown::Write).unwrap();
                }
                stream
            })
            .collect();
        let instances = first..first + batch.len() as u64;
        // The peers stay connected and send nothing more.
        side.drive_until("the end of each link with a mutated frame", |side| {
            side.logs.down.len() as u64 == instances.end
        });
        drop(peers);
        for (instance, case) in instances.zip(batch) {
            match &side.logs.down[&instance] {
                LinkError::Protocol(_) if !case.is_cut => {}
                LinkError::System(Errno::ECONNRESET) if case.is_cut => {}
                error => panic!("{}: {error:?}", case.what),
            }
            assert_eq!(side.logs.frames[&instance], [FIRST], "{}", case.what);
        }
        assert_link_works(&mut side, &mut friend, link, "a frame of the unaffected link");
    }
}

/// A connector refuses a greeting with any changed byte, in the acceptor's hello or in the record with the
/// link's token.
#[test]
fn changed_greeting_byte_refuses_the_link() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut cases = Vec::new();
    for claimed in ["127.0.0.1:100", "[2001:db8::1%2]:65535"] {
        let claimed: SocketAddr = claimed.parse().unwrap();
        let hello = Hello { address: claimed.into(), instance: 0x0123_4567_89ab_cdef }.to_bytes();
        let welcome = ClaimRecord { status: ClaimStatus::Welcome, token: 0x0123_4567_89ab_cdef }.to_bytes();
        let greeting = [&hello[..], &welcome].concat();
        for at in 0..greeting.len() {
            for mutated in byte_mutations(greeting[at]) {
                let mut greeting = greeting.clone();
                greeting[at] = mutated;
                cases
                    .push((format!("byte {at} of the greeting of {claimed}, become {mutated:#x}"), greeting));
            }
        }
    }
    let mut side = Side::open(1);
    for (what, greeting) in cases {
        let link = side.transport.connect(address.into());
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&greeting).unwrap();
        side.drive_until(&what, |side| side.logs.refused.contains_key(&link));
        let error = side.logs.refused.remove(&link);
        let is_named = matches!(error, Some(LinkError::Protocol(_) | LinkError::OtherVersion { .. }));
        assert!(is_named, "{what}: {error:?}");
        assert!(side.logs.live.is_empty() && side.logs.down.is_empty(), "{what} is up");
    }
}
