//! Peers that write a line that no correct peer can write, or end inside a frame. Their links end with an
//! error, and no other link. Lines have no check, so a well-formed but wrong line is taken for what it says.
//! `src/line/tests.rs` shows that `parse_line` accepts only lines that a producer can write.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::os::fd::AsFd;

use homespun_conformance::transport::{
    BUDGET_FRAMES, Backend, Deadline, Event, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Armed, LinkError, Transport};
use homespun_engine::wire::Header;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::io::pwrite;

use crate::raw::{RawSocket, encode_greeting, make_doorbell, make_ring_memfd, vacant_address};

/// Where the lines of a ring begin, and how long each is.
const LINES_START_BYTES: u64 = 192;
const LINE_BYTES: usize = 64;

/// The size of a line's first word: sequence number, kind, flags, and payload length.
const FIRST_WORD_BYTES: usize = 8;

/// The content of a line: kind, flags, payload length, and the words of the header.
#[derive(Clone, Copy)]
struct LineSpec(u8, u8, u16, &'static [u64]);

const ACK: LineSpec = LineSpec(2, 0, 0, &[1]);

/// The first piece of a frame, and the line of another piece.
const BEGUN: LineSpec = LineSpec(5, 0b1100_0000, 0x8000, &[7, 0x1_0000]);
const PIECE: LineSpec = LineSpec(0, 0, 0x8000, &[]);

impl LineSpec {
    /// The line as a correct producer writes it at a position.
    fn encode_at(self, position: usize) -> Vec<u8> {
        let LineSpec(kind, flags, len_bytes, words) = self;
        let sequence = (position as u32).wrapping_add(1).to_le_bytes();
        let first = [&sequence[..], &[kind, flags], &len_bytes.to_le_bytes()].concat();
        first.into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    /// The line with a change in this byte of its first word. No correct producer writes the result here.
    fn with_changed_byte(self, position: usize, at: usize) -> Vec<u8> {
        let mut line = self.encode_at(position);
        // The lowest bit of the kind would turn `ACK` into a request, which is well-formed.
        line[at] ^= 0x80;
        line
    }
}

/// Connects a peer whose ring already holds these lines, and behind them these bytes. The link ends with the
/// returned socket.
fn connect_peer(to: &TestEndpoint<ShmTransport>, lines: &[LineSpec], behind: &[u8]) -> RawSocket {
    let (ring, doorbell) = (make_ring_memfd(), make_doorbell());
    let mut bytes = Vec::new();
    for (position, line) in lines.iter().enumerate() {
        bytes.extend(line.encode_at(position));
        bytes.resize((position + 1) * LINE_BYTES, 0);
    }
    bytes.extend(behind);
    pwrite(&ring, &bytes, LINES_START_BYTES).unwrap();
    let control = RawSocket::connect(to.address());
    control.send(&encode_greeting(vacant_address(), 5), &[ring.as_fd(), doorbell.as_fd()]);
    control
}

/// Drives the endpoint until it has reported so many frames of its last link, or the end of the link. Arms it
/// after each pass. Returns the headers of the frames, and the end.
fn observe(
    endpoint: &mut TestEndpoint<ShmTransport>,
    seen: usize,
    frames: usize,
) -> (Vec<Header>, Option<LinkError>) {
    let deadline = Deadline::new();
    loop {
        endpoint.receive(BUDGET_FRAMES);
        let (Armed::Ready | Armed::Asleep { .. }) = endpoint.transport.arm();
        let (mut headers, mut end) = (Vec::new(), None);
        for (_, event) in &endpoint.recorder.log()[seen..] {
            match event {
                Event::Up(..) => {}
                Event::Frame(header, _) => headers.push(*header),
                Event::Down(error) => end = Some(error.clone()),
            }
        }
        if headers.len() >= frames || end.is_some() {
            return (headers, end);
        }
        deadline.yield_or_panic("a frame, or the end of a link");
    }
}

/// The valid lines, what follows them, whether the peer then ends, and how many frames the lines hold.
type Case = (&'static str, Vec<LineSpec>, Vec<u8>, bool, usize);

#[test]
fn wrong_line_or_cut_frame_ends_its_own_link_only() {
    let provider = ShmProvider::new();
    let (mut endpoints, link, _) = Backend::new(&provider).open_linked_pair();
    let mut unpublished = ACK.encode_at(1);
    unpublished[..FIRST_WORD_BYTES].fill(0);
    let mut cases: Vec<Case> = vec![
        ("no more lines", vec![ACK, ACK], vec![], true, 2),
        ("a frame in two pieces", vec![ACK, BEGUN, PIECE, ACK], vec![], true, 3),
        ("a first piece", vec![ACK, BEGUN], vec![], true, 1),
        ("a line without its first word", vec![ACK], unpublished, true, 1),
    ];
    // A changed word of a header is not here: it makes another well-formed line. A changed sequence number is
    // noticed only when the endpoint arms its ring.
    let changed =
        |line: LineSpec, position| (0..FIRST_WORD_BYTES).map(move |at| line.with_changed_byte(position, at));
    cases.extend(changed(ACK, 1).map(|line| ("a changed line", vec![ACK], line, false, 1)));
    cases.extend(changed(PIECE, 2).map(|line| ("a changed piece", vec![ACK, BEGUN], line, false, 1)));
    for (what, lines, behind, has_ended, frames) in cases {
        let endpoint = &mut endpoints[1];
        let seen = endpoint.recorder.log().len();
        let peer = connect_peer(endpoint, &lines, &behind);
        observe(endpoint, seen, frames);
        let peer = (!has_ended).then_some(peer);
        let (found, end) = observe(endpoint, seen, usize::MAX);
        drop(peer);
        assert_eq!(found.len(), frames, "{what}: {behind:x?}");
        let is_expected = match &end {
            Some(LinkError::Protocol(_)) => !has_ended,
            end => has_ended && *end == Some(LinkError::System(Errno::ECONNRESET)),
        };
        assert!(is_expected, "{what}: {behind:x?}: {end:?}");
        let seen = endpoints[1].recorder.log().len();
        endpoints[0].post(link, pseudo_random_payload(100, 1));
        drive_until(&mut endpoints, "a frame of the other link", |[_, b]| b.recorder.log().len() > seen);
    }
}
