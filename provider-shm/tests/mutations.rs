//! A peer whose lines are not what a correct producer has written: whatever has become of a byte of a header,
//! its link ends with a reason, and no other link does.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use homespun_conformance::transport::{BUDGET_FRAMES, Deadline, Event, TestEndpoint, drive, payload};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Armed, LinkError, LinkId, Transport};
use homespun_engine::wire::Header;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::io::{pwrite, write};

use crate::raw::{RawSocket, doorbell, greeting, ring, vacant};

type Endpoints = [TestEndpoint<ShmTransport>; 2];

/// How many peers there are at a time.
const PEERS: usize = 32;

/// Where the lines of a ring begin, how many there are, and how long each is.
const LINES_START_BYTES: u64 = 192;
const LINES: usize = 512;
const LINE_BYTES: usize = 64;

/// What is written to a doorbell. The same in every host's own numbers: the kernel counts, and no test reads
/// how far.
const ONE: [u8; WORD_BYTES] = [1; WORD_BYTES];

const WORD_BYTES: usize = size_of::<u64>();

/// The frame that each peer sends before the line in question.
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
    pub(super) const SHOWN: u8 = 17;
    pub(super) const CONNECTION: u8 = 18;
}

mod flag {
    /// Of messages and requests.
    pub(super) const TAGGED: u8 = 1 << 0;
    pub(super) const DATA: u8 = 1 << 1;
    pub(super) const ARRIVAL: u8 = 1 << 2;
    pub(super) const MATCH: u8 = 1 << 3;
    /// Of writes and offers.
    pub(super) const WRITTEN_DATA: u8 = 1 << 0;
    pub(super) const DURABLE: u8 = 1 << 1;
    pub(super) const EVERYTHING: u8 = 1 << 2;
    /// Of headers that have one flag: that the receiver cannot pull, that there was a fault, that matches are
    /// asked for.
    pub(super) const ONLY: u8 = 1 << 0;
    /// Of every line.
    pub(super) const OUTSIDE: u8 = 1 << 6;
    pub(super) const LONG: u8 = 1 << 7;
}

/// What a line says: its kind, its flags, the length of the payload that it announces, and the words of its
/// header.
#[derive(Debug, Clone, Copy)]
struct LineSpec(u8, u8, u16, &'static [u64]);

const ACK: LineSpec = LineSpec(kind::ACK, 0, 0, &[1]);

fn xor_of(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |all, byte| all ^ byte)
}

impl LineSpec {
    /// The line as a correct producer writes it in a position.
    fn at(self, position: u64) -> Vec<u8> {
        let LineSpec(kind, flags, len_bytes, words) = self;
        let all_words = words.iter().fold(0_u64, |all, word| all.rotate_left(3) ^ word);
        let words_check = xor_of(&all_words.to_le_bytes()) ^ 0x5a;
        let sequence = (position as u16).wrapping_add(1).to_le_bytes();
        let len = len_bytes.to_le_bytes();
        let mut first = [sequence[0], sequence[1], 0, words_check, kind, flags, len[0], len[1]];
        first[2] = xor_of(&first) ^ 0xa5;
        first.into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }
}

/// Lines of every kind, with every flag. What follows a header is zeros, and so is payload.
fn samples() -> Vec<LineSpec> {
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
        LineSpec(kind::SHOWN, 0, 16, &[1, 2, 3, NUMBER >> 24]),
        LineSpec(kind::CONNECTION, 0, 48, &[NUMBER]),
        LineSpec(kind::CONNECTION, 1 | flag::OUTSIDE, 256, &[NUMBER]),
        LineSpec(kind::CONNECTION, 4, 0, &[1]),
        LineSpec(kind::FENCE, 0, 0, &[]),
        LineSpec(kind::FENCE, flag::ONLY, 0, &[]),
        LineSpec(kind::FENCED, 0, 0, &[]),
    ]
}

/// What may become of a byte: nothing but zeros or ones, any one bit another, all of them.
fn mutations(byte: u8) -> Vec<u8> {
    let flips = (0..u8::BITS).map(|bit| byte ^ 1 << bit);
    let mut all: Vec<u8> = flips.chain([0, 0xff, !byte]).filter(|mutated| *mutated != byte).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What a peer has written into its ring.
struct Case {
    what: String,
    /// Sound lines, from the first on.
    sound: Vec<LineSpec>,
    /// What is in the place of the line after them.
    spoilt: Vec<u8>,
    /// How many frames there are in the sound lines.
    frames: usize,
}

/// A line with each of its bytes changed in every way, after these.
fn spoil(sound: &[LineSpec], spec: LineSpec, frames: usize) -> Vec<Case> {
    let line = spec.at(sound.len() as u64);
    let mut cases = Vec::new();
    for at in 0..line.len() {
        for mutated in mutations(line[at]) {
            let mut spoilt = line.clone();
            spoilt[at] = mutated;
            let what = format!("byte {at} of {spec:x?}, become {mutated:#x}");
            cases.push(Case { what, sound: sound.to_vec(), spoilt, frames });
        }
    }
    cases
}

/// Peers that share memory with an endpoint, each with a ring that was written before the endpoint gets to
/// see it.
struct Fixture {
    endpoints: Endpoints,
    link: LinkId,
    from: Address,
}

/// A peer, and what it shares with the endpoint.
struct Peer {
    #[expect(dead_code, reason = "the link ends with it")]
    control: RawSocket,
    ring: OwnedFd,
    doorbell: OwnedFd,
}

/// What was heard of a peer.
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
        drive(&mut endpoints, "a link", |[_, b]| b.recorder.up_count() == 1);
        Fixture { endpoints, link, from: vacant() }
    }

    /// Lets a peer of this instance connect that has written a case's lines. The last one is still to be
    /// written if its place is that of the first.
    fn connect_peer(&self, instance: u64, case: &Case) -> Peer {
        let (ring, doorbell) = (ring(), doorbell());
        let mut lines: Vec<u8> = Vec::new();
        for (spec, position) in case.sound.iter().zip(0..) {
            lines.extend(spec.at(position));
            lines.resize((position as usize + 1) * LINE_BYTES, 0);
        }
        if case.sound.len() < LINES {
            lines.extend(&case.spoilt);
        }
        pwrite(&ring, &lines, LINES_START_BYTES).unwrap();
        let control = RawSocket::connect(self.endpoints[1].address());
        control.send(&greeting(self.from, instance), &[ring.as_fd(), doorbell.as_fd()]);
        Peer { control, ring, doorbell }
    }

    /// Goes on until something has been heard of so many peers since `heard`. The endpoint goes to sleep in
    /// between, as one does that has nothing to do.
    fn observe_until(
        &mut self,
        heard: usize,
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
            for (link, event) in &endpoint.recorder.log()[heard..] {
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
            deadline.pause(what);
        }
    }

    /// What the endpoints send on their link arrives.
    fn assert_link_works(&mut self, after: &str) {
        let heard = self.endpoints[1].recorder.log().len();
        self.endpoints[0].post(self.link, payload(100, 1));
        drive(&mut self.endpoints, after, |[_, b]| b.recorder.log().len() > heard);
        let (_, event) = &self.endpoints[1].recorder.log()[heard];
        assert!(matches!(event, Event::Frame(..)), "{after}: {event:?}");
    }
}

#[test]
fn changed_header_byte_ends_the_link() {
    let mut cases: Vec<Case> = samples().into_iter().flat_map(|spec| spoil(&[ACK], spec, 1)).collect();
    // Inside a frame.
    let begun = LineSpec(kind::MESSAGE, flag::OUTSIDE | flag::LONG, 0x8000, &[1 << 20]);
    cases.extend(spoil(&[ACK, begun], LineSpec(kind::PIECE, 0, 0x8000, &[]), 1));
    assert!(cases.len() > 1000);

    let mut fixture = Fixture::new();
    for (batch, first) in cases.chunks(PEERS).zip((100..).step_by(PEERS)) {
        let heard = fixture.endpoints[1].recorder.log().len();
        let peers: Vec<_> =
            (first..).zip(batch).map(|(instance, case)| fixture.connect_peer(instance, case)).collect();
        // They are all still there, and nothing more comes from them.
        let logs = fixture.observe_until(heard, "the end of each spoilt link", |logs| {
            logs.len() == batch.len() && logs.values().all(|log| log.down.is_some())
        });
        drop(peers);
        for (case, log) in batch.iter().zip(logs.values()) {
            assert!(matches!(log.down, Some(LinkError::Protocol(_))), "{}: {log:?}", case.what);
            assert_eq!(log.frames, vec![FIRST; case.frames], "{}", case.what);
        }
        fixture.assert_link_works("a frame of the sound link");
    }
}

/// A line whose sequence number has become that of the lap before looks as if it were still to come, but for
/// its check.
#[test]
fn line_with_previous_sequence_number_ends_the_link() {
    let mut fixture = Fixture::new();
    let spec = LineSpec(kind::MESSAGE, flag::TAGGED, 8, &[3]);
    let cases: Vec<Case> = spoil(&[ACK; LINES], spec, LINES)
        .into_iter()
        .filter(|case| case.spoilt[2..] == spec.at(LINES as u64)[2..])
        .collect();
    assert!(cases.iter().any(|case| case.spoilt[..2] == ACK.at(0)[..2]), "that very number");
    for (case, instance) in cases.iter().zip(100..) {
        let heard = fixture.endpoints[1].recorder.log().len();
        let peer = fixture.connect_peer(instance, case);
        fixture.observe_until(heard, "a lap of frames", |logs| {
            logs.get(&instance).is_some_and(|log| log.frames.len() == LINES)
        });
        pwrite(&peer.ring, &case.spoilt, LINES_START_BYTES).unwrap();
        // Asleep, it looks when it is told to.
        write(&peer.doorbell, &ONE).unwrap();
        let logs = fixture.observe_until(heard, "the end", |logs| logs[&instance].down.is_some());
        let why = &logs[&instance].down;
        assert!(matches!(why, Some(LinkError::Protocol(_))), "{}: {why:?}", case.what);
        fixture.assert_link_works("a frame of the sound link");
    }
}

/// Who ends before its frame does, or before its line is there, has ended in the middle.
#[test]
fn truncated_frame_resets_the_link() {
    let mut fixture = Fixture::new();
    let begun = LineSpec(kind::DATA, flag::OUTSIDE | flag::LONG, 0x8000, &[7, 1 << 20]);
    // All of a line but the word that says that it is there.
    let mut unsaid = LineSpec(kind::MESSAGE, flag::TAGGED, 8, &[3]).at(1);
    unsaid[..WORD_BYTES].fill(0);
    let cases = [
        Case { what: "a first piece".into(), sound: vec![ACK, begun], spoilt: vec![], frames: 1 },
        Case { what: "a line without its first word".into(), sound: vec![ACK], spoilt: unsaid, frames: 1 },
    ];
    for (case, instance) in cases.iter().zip(100..) {
        let heard = fixture.endpoints[1].recorder.log().len();
        let peer = fixture.connect_peer(instance, case);
        fixture.observe_until(heard, "the sound lines", |logs| {
            logs.get(&instance).is_some_and(|log| log.frames.len() == case.frames)
        });
        drop(peer);
        let logs = fixture.observe_until(heard, "the end", |logs| logs[&instance].down.is_some());
        let log = &logs[&instance];
        assert_eq!(log.down, Some(LinkError::System(Errno::ECONNRESET)), "{}", case.what);
        assert_eq!(log.frames.len(), case.frames, "{}", case.what);
        fixture.assert_link_works("a frame of the sound link");
    }
}
