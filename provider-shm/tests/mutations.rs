//! Peers that change a byte of a line. If the byte belongs to a header, the peer's link ends with a protocol
//! error, and no other link ends.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use homespun_conformance::transport::{
    BUDGET_FRAMES, Deadline, Event, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Armed, LinkError, LinkId, Transport};
use homespun_engine::wire::Header;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::io::{pwrite, write};

use crate::raw::{RawSocket, encode_greeting, make_doorbell, make_ring_memfd, vacant_address};

type Endpoints = [TestEndpoint<ShmTransport>; 2];

/// How many peers the test connects at a time.
const PEERS: usize = 32;

/// Where the lines of a ring begin, how many there are, and how long each is.
const LINES_START_BYTES: u64 = 192;
const LINES: usize = 512;
const LINE_BYTES: usize = 64;

/// The value that a peer writes to a doorbell. It is the same in either byte order.
const ONE: [u8; WORD_BYTES] = [1; WORD_BYTES];

const WORD_BYTES: usize = size_of::<u64>();

/// The frame that each peer sends before the changed line.
const FIRST: Header = Header::Ack { received: 1 };

mod kind {
    pub(super) const PIECE: u8 = 0;
    pub(super) const MESSAGE: u8 = 1;
    pub(super) const ACK: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const CLEAR: u8 = 4;
    pub(super) const DATA: u8 = 5;
    pub(super) const DONE: u8 = 6;
    pub(super) const MATCHED: u8 = 7;
    pub(super) const CREDIT: u8 = 8;
    pub(super) const FENCE: u8 = 9;
    pub(super) const FENCED: u8 = 10;
    pub(super) const READ: u8 = 11;
    pub(super) const WRITE: u8 = 12;
    pub(super) const OFFER: u8 = 13;
    pub(super) const READ_DATA: u8 = 14;
    pub(super) const ANSWER: u8 = 15;
    pub(super) const ATOMIC: u8 = 16;
    pub(super) const MAPPABLE_REGION: u8 = 17;
    pub(super) const CONNECTION: u8 = 18;
    pub(super) const COUNTED_WRITE: u8 = 19;
    pub(super) const WRITTEN: u8 = 20;
    pub(super) const FLUSH: u8 = 21;
}

mod flag {
    /// Flags of messages and requests.
    pub(super) const TAGGED: u8 = 1 << 0;
    pub(super) const DATA: u8 = 1 << 1;
    pub(super) const ARRIVAL: u8 = 1 << 2;
    pub(super) const MATCH: u8 = 1 << 3;
    /// Flags of writes and offers. Counted writes have only the first, flushes only the second.
    pub(super) const WRITTEN_DATA: u8 = 1 << 0;
    pub(super) const DURABLE: u8 = 1 << 1;
    pub(super) const EVERYTHING: u8 = 1 << 2;
    /// The only flag of some headers. Its meaning depends on the kind: the receiver cannot pull, a fault
    /// occurred, or the fence waits for matches.
    pub(super) const ONLY: u8 = 1 << 0;
    /// Flags of every line.
    pub(super) const OUTSIDE: u8 = 1 << 6;
    pub(super) const LONG: u8 = 1 << 7;
}

/// The content of a line: kind, flags, payload length, and the words of the header.
#[derive(Debug, Clone, Copy)]
struct LineSpec(u8, u8, u16, &'static [u64]);

const ACK: LineSpec = LineSpec(kind::ACK, 0, 0, &[1]);

fn xor_bytes(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |xor, byte| xor ^ byte)
}

impl LineSpec {
    /// The line as a correct producer writes it at a position.
    fn encode_at(self, position: u64) -> Vec<u8> {
        let LineSpec(kind, flags, len_bytes, words) = self;
        let all_words = words.iter().fold(0_u64, |all, word| all.rotate_left(3) ^ word);
        let words_check = xor_bytes(&all_words.to_le_bytes()) ^ 0x5a;
        let sequence = (position as u16).wrapping_add(1).to_le_bytes();
        let len = len_bytes.to_le_bytes();
        let mut first = [sequence[0], sequence[1], 0, words_check, kind, flags, len[0], len[1]];
        first[2] = xor_bytes(&first) ^ 0xa5;
        first.into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }
}

/// Lines of every kind, with every flag. Payload and padding are zeros.
fn sample_lines() -> Vec<LineSpec> {
    const LONGEST: u64 = 1 << 40;
    const NUMBER: u64 = 0x0123_4567_89ab_cdef;
    vec![
        LineSpec(kind::MESSAGE, 0, 0, &[]),
        LineSpec(kind::MESSAGE, flag::TAGGED | flag::ARRIVAL, 8, &[NUMBER]),
        LineSpec(kind::MESSAGE, flag::DATA, 20, &[1]),
        LineSpec(kind::MESSAGE, flag::TAGGED | flag::DATA | flag::MATCH, 40, &[0, NUMBER]),
        LineSpec(kind::MESSAGE, flag::TAGGED | flag::OUTSIDE, 300, &[5]),
        LineSpec(kind::MESSAGE, flag::OUTSIDE | flag::LONG, 0x8000, &[LONGEST]),
        ACK,
        LineSpec(kind::REQUEST, 0, 0, &[1, 0]),
        LineSpec(kind::REQUEST, flag::TAGGED | flag::MATCH, 16, &[2, NUMBER, LONGEST]),
        LineSpec(kind::REQUEST, flag::TAGGED | flag::DATA | flag::OUTSIDE, 64, &[2, 3, 0, LONGEST]),
        LineSpec(kind::CLEAR, 0, 0, &[1]),
        LineSpec(kind::CLEAR, flag::ONLY, 0, &[NUMBER]),
        LineSpec(kind::DATA, 0, 9, &[1]),
        LineSpec(kind::DATA, flag::OUTSIDE, 0x8000, &[NUMBER]),
        LineSpec(kind::DATA, flag::OUTSIDE | flag::LONG, 0x1000, &[NUMBER, 0x1_0000]),
        LineSpec(kind::DONE, 0, 0, &[1]),
        LineSpec(kind::DONE, flag::ONLY, 0, &[NUMBER]),
        LineSpec(kind::MATCHED, 0, 0, &[NUMBER]),
        LineSpec(kind::CREDIT, 0, 0, &[u64::MAX]),
        LineSpec(kind::READ, 0, 0, &[1, NUMBER, 0, LONGEST]),
        LineSpec(kind::WRITE, 0, 32, &[1, 2, NUMBER]),
        LineSpec(kind::WRITE, flag::WRITTEN_DATA | flag::DURABLE | flag::OUTSIDE, 300, &[1, 2, 3, NUMBER]),
        LineSpec(kind::WRITE, flag::OUTSIDE | flag::LONG, 0x8000, &[1, 2, 3, LONGEST]),
        LineSpec(kind::OFFER, 0, 16, &[1, 2, 3, NUMBER >> 24]),
        LineSpec(
            kind::OFFER,
            flag::WRITTEN_DATA | flag::EVERYTHING | flag::OUTSIDE,
            64,
            &[1, 2, 3, NUMBER, LONGEST],
        ),
        LineSpec(kind::READ_DATA, 0, 9, &[1]),
        LineSpec(kind::READ_DATA, flag::OUTSIDE | flag::LONG, 0x1000, &[NUMBER, 0x1_0000]),
        LineSpec(kind::ANSWER, 0, 0, &[1]),
        LineSpec(kind::ANSWER, 4, 0, &[NUMBER]),
        LineSpec(kind::ATOMIC, 0, 8, &[1, 2, 3, 2 << 40 | 7 << 32 | 1]),
        LineSpec(kind::ATOMIC, flag::OUTSIDE, 1024, &[1, 2, NUMBER, 2 << 40 | 7 << 32 | 128]),
        LineSpec(kind::MAPPABLE_REGION, 0, 16, &[1, 2, 3, NUMBER >> 24]),
        LineSpec(kind::CONNECTION, 0, 48, &[NUMBER]),
        LineSpec(kind::CONNECTION, 1 | flag::OUTSIDE, 256, &[NUMBER]),
        LineSpec(kind::CONNECTION, 4, 0, &[1]),
        LineSpec(kind::COUNTED_WRITE, 0, 40, &[2, NUMBER]),
        LineSpec(kind::COUNTED_WRITE, flag::WRITTEN_DATA | flag::OUTSIDE, 300, &[2, 3, NUMBER]),
        LineSpec(kind::WRITTEN, 0, 0, &[1]),
        LineSpec(kind::WRITTEN, 3, 0, &[NUMBER]),
        LineSpec(kind::FLUSH, 0, 0, &[1, NUMBER, 0, LONGEST]),
        LineSpec(kind::FLUSH, flag::DURABLE, 0, &[1, 2, 3, NUMBER >> 24]),
        LineSpec(kind::FENCE, 0, 0, &[]),
        LineSpec(kind::FENCE, flag::ONLY, 0, &[]),
        LineSpec(kind::FENCED, 0, 0, &[]),
    ]
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

/// The lines that a peer has written into its ring.
struct Case {
    what: String,
    /// Valid lines, from the first on.
    valid: Vec<LineSpec>,
    /// The bytes in the place of the line that follows the valid lines.
    mutated: Vec<u8>,
    /// How many frames the valid lines hold.
    frames: usize,
}

/// Cases in which a line with one changed byte follows valid lines. There is one case for each byte of the
/// line and each of its [`byte_mutations`].
fn mutated_line_cases(valid: &[LineSpec], spec: LineSpec, frames: usize) -> Vec<Case> {
    let line = spec.encode_at(valid.len() as u64);
    let mut cases = Vec::new();
    for at in 0..line.len() {
        for value in byte_mutations(line[at]) {
            let mut mutated = line.clone();
            mutated[at] = value;
            let what = format!("byte {at} of {spec:x?}, become {value:#x}");
            cases.push(Case { what, valid: valid.to_vec(), mutated, frames });
        }
    }
    cases
}

/// Two linked endpoints. The hand-made peers of the test connect to the second endpoint.
struct Fixture {
    endpoints: Endpoints,
    link: LinkId,
    from: Address,
}

/// A peer, and the descriptors that it shares with the endpoint.
struct Peer {
    #[expect(dead_code, reason = "the link ends with it")]
    control: RawSocket,
    ring: OwnedFd,
    doorbell: OwnedFd,
}

/// What the endpoint has reported about a peer.
#[derive(Debug, Default)]
struct PeerLog {
    frames: Vec<Header>,
    down: Option<LinkError>,
}

impl Fixture {
    fn new() -> Fixture {
        let provider = ShmProvider::new();
        let mut endpoints = [TestEndpoint::open(&provider, 11), TestEndpoint::open(&provider, 22)];
        let link = endpoints[0].connect(endpoints[1].address());
        drive_until(&mut endpoints, "a link", |[_, b]| b.recorder.live_link_count() == 1);
        Fixture { endpoints, link, from: vacant_address() }
    }

    /// Connects a peer with this instance. The peer's ring already holds the lines of a case. If the valid
    /// lines fill the ring, the caller later writes the changed line in the place of the first line.
    fn connect_peer(&self, instance: u64, case: &Case) -> Peer {
        let (ring, doorbell) = (make_ring_memfd(), make_doorbell());
        let mut lines: Vec<u8> = Vec::new();
        for (spec, position) in case.valid.iter().zip(0..) {
            lines.extend(spec.encode_at(position));
            lines.resize((position as usize + 1) * LINE_BYTES, 0);
        }
        if case.valid.len() < LINES {
            lines.extend(&case.mutated);
        }
        pwrite(&ring, &lines, LINES_START_BYTES).unwrap();
        let control = RawSocket::connect(self.endpoints[1].address());
        control.send(&encode_greeting(self.from, instance), &[ring.as_fd(), doorbell.as_fd()]);
        Peer { control, ring, doorbell }
    }

    /// Drives the second endpoint until `done` accepts the peers' logs. Returns the logs, without the
    /// endpoint's first `seen` events. Arms the endpoint after each pass.
    fn observe_until(
        &mut self,
        seen: usize,
        what: &str,
        mut done: impl FnMut(&BTreeMap<u64, PeerLog>) -> bool,
    ) -> BTreeMap<u64, PeerLog> {
        let deadline = Deadline::new();
        loop {
            let endpoint = &mut self.endpoints[1];
            endpoint.receive(BUDGET_FRAMES);
            let (Armed::Ready | Armed::Asleep { .. }) = endpoint.transport.arm();
            let mut logs: BTreeMap<u64, PeerLog> = BTreeMap::new();
            let mut live = BTreeMap::new();
            for (link, event) in &endpoint.recorder.log()[seen..] {
                match event {
                    Event::Up(_, instance) => {
                        live.insert(*link, *instance);
                        logs.insert(*instance, PeerLog::default());
                    }
                    Event::Frame(header, _) => {
                        logs.get_mut(&live[link]).expect("it is up").frames.push(*header);
                    }
                    Event::Down(error) => {
                        logs.get_mut(&live[link]).expect("it is up").down = Some(error.clone());
                    }
                }
            }
            if done(&logs) {
                return logs;
            }
            deadline.yield_or_panic(what);
        }
    }

    /// Asserts that a frame on the link of the two endpoints arrives.
    fn assert_link_works(&mut self, after: &str) {
        let seen = self.endpoints[1].recorder.log().len();
        self.endpoints[0].post(self.link, pseudo_random_payload(100, 1));
        drive_until(&mut self.endpoints, after, |[_, b]| b.recorder.log().len() > seen);
        let (_, event) = &self.endpoints[1].recorder.log()[seen];
        assert!(matches!(event, Event::Frame(..)), "{after}: {event:?}");
    }
}

/// Links accept unchanged samples. Otherwise the tests of changed samples would prove nothing.
#[test]
fn unchanged_samples_are_accepted() {
    let mut fixture = Fixture::new();
    let mut all: Vec<Vec<LineSpec>> = sample_lines().into_iter().map(|spec| vec![spec]).collect();
    // A frame in two pieces.
    let begun = LineSpec(kind::MESSAGE, flag::OUTSIDE | flag::LONG, 0x8000, &[0x1_0000]);
    all.push(vec![begun, LineSpec(kind::PIECE, 0, 0x8000, &[])]);
    for (lines, instance) in all.into_iter().zip(100..) {
        let LineSpec(_, flags, ..) = lines[lines.len() - 1];
        // A sample with `LONG` leaves its frame unfinished, so no other frame can follow. After any other
        // sample, send another frame.
        let is_long = flags & flag::LONG != 0;
        let what = format!("{lines:x?}");
        let after = if is_long { vec![] } else { vec![ACK] };
        let case = Case { what, valid: [vec![ACK], lines, after].concat(), mutated: vec![], frames: 1 };
        let seen = fixture.endpoints[1].recorder.log().len();
        let peer = fixture.connect_peer(instance, &case);
        fixture.observe_until(seen, "the frame before a sample", |logs| {
            logs.get(&instance).is_some_and(|log| !log.frames.is_empty())
        });
        drop(peer);
        // Wait for the end of the link, so that all later events are of the next peer.
        let logs = fixture.observe_until(seen, "the end", |logs| logs[&instance].down.is_some());
        let PeerLog { frames, down } = &logs[&instance];
        assert_eq!(*down, Some(LinkError::System(Errno::ECONNRESET)), "{}", case.what);
        match frames[..] {
            [first] => assert!(is_long && first == FIRST, "{}: {frames:?}", case.what),
            [first, _, last] => assert!(!is_long && [first, last] == [FIRST; 2], "{}", case.what),
            _ => panic!("{}: {frames:?}", case.what),
        }
    }
}

#[test]
fn changed_header_byte_ends_the_link() {
    let mut cases: Vec<Case> =
        sample_lines().into_iter().flat_map(|spec| mutated_line_cases(&[ACK], spec, 1)).collect();
    // Also change a line that announces a further piece of a frame.
    let begun = LineSpec(kind::MESSAGE, flag::OUTSIDE | flag::LONG, 0x8000, &[1 << 20]);
    cases.extend(mutated_line_cases(&[ACK, begun], LineSpec(kind::PIECE, 0, 0x8000, &[]), 1));
    assert!(cases.len() > 1000);

    let mut fixture = Fixture::new();
    for (batch, first) in cases.chunks(PEERS).zip((100..).step_by(PEERS)) {
        let seen = fixture.endpoints[1].recorder.log().len();
        let peers: Vec<_> =
            (first..).zip(batch).map(|(instance, case)| fixture.connect_peer(instance, case)).collect();
        // The peers stay connected and write nothing more.
        let logs = fixture.observe_until(seen, "the end of each link with a mutated line", |logs| {
            logs.len() == batch.len() && logs.values().all(|log| log.down.is_some())
        });
        drop(peers);
        for (case, log) in batch.iter().zip(logs.values()) {
            assert!(matches!(log.down, Some(LinkError::Protocol(_))), "{}: {log:?}", case.what);
            assert_eq!(log.frames, vec![FIRST; case.frames], "{}", case.what);
        }
        fixture.assert_link_works("a frame of the unaffected link");
    }
}

/// A change may give a line the sequence number of the previous lap. Then only the line's check reveals the
/// change.
#[test]
fn line_with_previous_sequence_number_ends_the_link() {
    let mut fixture = Fixture::new();
    let spec = LineSpec(kind::MESSAGE, flag::TAGGED, 8, &[3]);
    let cases: Vec<Case> = mutated_line_cases(&[ACK; LINES], spec, LINES)
        .into_iter()
        .filter(|case| case.mutated[2..] == spec.encode_at(LINES as u64)[2..])
        .collect();
    assert!(
        cases.iter().any(|case| case.mutated[..2] == ACK.encode_at(0)[..2]),
        "no case has the previous number"
    );
    for (case, instance) in cases.iter().zip(100..) {
        let seen = fixture.endpoints[1].recorder.log().len();
        let peer = fixture.connect_peer(instance, case);
        fixture.observe_until(seen, "a lap of frames", |logs| {
            logs.get(&instance).is_some_and(|log| log.frames.len() == LINES)
        });
        pwrite(&peer.ring, &case.mutated, LINES_START_BYTES).unwrap();
        // The endpoint sleeps, so ring its doorbell.
        write(&peer.doorbell, &ONE).unwrap();
        let logs = fixture.observe_until(seen, "the end", |logs| logs[&instance].down.is_some());
        let why = &logs[&instance].down;
        assert!(matches!(why, Some(LinkError::Protocol(_))), "{}: {why:?}", case.what);
        fixture.assert_link_works("a frame of the unaffected link");
    }
}

/// If a peer ends inside a frame, or without having published its last line, the link ends with ECONNRESET.
#[test]
fn truncated_frame_resets_the_link() {
    let mut fixture = Fixture::new();
    let begun = LineSpec(kind::DATA, flag::OUTSIDE | flag::LONG, 0x8000, &[7, 1 << 20]);
    // A line that is complete except for the first word. The first word would publish the line.
    let mut unpublished = LineSpec(kind::MESSAGE, flag::TAGGED, 8, &[3]).encode_at(1);
    unpublished[..WORD_BYTES].fill(0);
    let cases = [
        Case { what: "a first piece".into(), valid: vec![ACK, begun], mutated: vec![], frames: 1 },
        Case {
            what: "a line without its first word".into(),
            valid: vec![ACK],
            mutated: unpublished,
            frames: 1,
        },
    ];
    for (case, instance) in cases.iter().zip(100..) {
        let seen = fixture.endpoints[1].recorder.log().len();
        let peer = fixture.connect_peer(instance, case);
        fixture.observe_until(seen, "the valid lines", |logs| {
            logs.get(&instance).is_some_and(|log| log.frames.len() == case.frames)
        });
        drop(peer);
        let logs = fixture.observe_until(seen, "the end", |logs| logs[&instance].down.is_some());
        let log = &logs[&instance];
        assert_eq!(log.down, Some(LinkError::System(Errno::ECONNRESET)), "{}", case.what);
        assert_eq!(log.frames.len(), case.frames, "{}", case.what);
        fixture.assert_link_works("a frame of the unaffected link");
    }
}
