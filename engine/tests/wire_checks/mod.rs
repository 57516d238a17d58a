//! Checks of the wire format that must pass for any bytes. Ordinary tests run them on a corpus, and the
//! fuzz targets look for bytes that fail them.
//!
//! Each check panics when something is wrong, and returns whether the bytes were acceptable.

use std::io::IoSliceMut;
use std::mem;

use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Space};
use homespun_engine::wire::address_claim::{CLAIM_RECORD_BYTES, ClaimRecord};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::{self, HELLO_BYTES, Hello, Opening};
use homespun_engine::wire::stream::Decoder;
use homespun_engine::wire::{Form, Header, WireError};

/// Checks that a header has one encoding only. Also parses every shorter beginning of `bytes`: the
/// parser must accept or refuse it like the whole, or ask for more bytes. Does the same for the
/// header with valid checks, which random bytes hardly ever have. Returns whether the parser
/// accepts `bytes`.
pub(crate) fn check_frame(bytes: &[u8]) -> bool {
    check_one_frame(&with_checks(bytes));
    check_one_frame(bytes)
}

/// Returns a header with valid checks of its form and its words. Returns it unchanged if no header has
/// this form, or if words are missing.
pub(crate) fn with_checks(bytes: &[u8]) -> Vec<u8> {
    let mut checked = bytes.to_vec();
    if let Some(([kind, flags, of_form, of_words], words)) = checked.split_first_chunk_mut()
        && let Ok(form) = Form::new(*kind, *flags)
        && let Some(words) =
            words.as_chunks().0.get(..form.word_count() + usize::from(form.can_have_payload()))
    {
        let all_words = words.iter().fold(0_u64, |all, word| all.rotate_left(3) ^ u64::from_le_bytes(*word));
        *of_form = 0xa5 ^ *kind ^ flags.rotate_left(4);
        *of_words = all_words.to_le_bytes().iter().fold(0x5a, |check, byte| check ^ byte);
    }
    checked
}

fn check_one_frame(bytes: &[u8]) -> bool {
    let judged = frame::parse(bytes);
    let mut needed_bytes = 0;
    if let Ok(Some((header, len_bytes))) = judged {
        let mut emitted = [0; HEADER_MAX_BYTES];
        assert_eq!(frame::emit(&header, &mut emitted), len_bytes);
        assert_eq!(frame::header_len_bytes(&header), len_bytes);
        assert_eq!(emitted[..len_bytes], bytes[..len_bytes]);
        needed_bytes = len_bytes;
    }
    for end in 0..bytes.len().min(HEADER_MAX_BYTES) {
        match frame::parse(&bytes[..end]) {
            Ok(None) => assert!(judged.is_err() || end < needed_bytes || needed_bytes == 0),
            early => assert_eq!(early, judged),
        }
    }
    judged.is_ok()
}

/// Checks that a hello has one encoding only, and that a wrong hello is refused at its last byte at the
/// latest. Does the same for the hello with a valid check, which random bytes hardly ever have. Returns
/// whether the parser accepts `bytes`.
pub(crate) fn check_hello(bytes: &[u8]) -> bool {
    if let Some(whole) = bytes.first_chunk::<HELLO_BYTES>() {
        check_one_hello(&with_check(*whole));
    }
    check_one_hello(bytes)
}

/// Returns a hello with a valid check: the CRC-32 of its other bytes.
pub(crate) fn with_check(mut hello: [u8; HELLO_BYTES]) -> [u8; HELLO_BYTES] {
    let others = hello[..20].iter().chain(&hello[24..]);
    let check = others.flat_map(|byte| (0..8).map(move |bit| u32::from(byte >> bit & 1))).fold(
        u32::MAX,
        |crc, bit| {
            let is_odd = crc & 1 != bit;
            crc >> 1 ^ if is_odd { 0xedb8_8320 } else { 0 }
        },
    );
    hello[20..24].copy_from_slice(&(!check).to_le_bytes());
    hello
}

fn check_one_hello(bytes: &[u8]) -> bool {
    let plausible = hello::check_prefix(bytes);
    for end in 0..bytes.len().min(HELLO_BYTES) {
        if let Err(reason) = hello::check_prefix(&bytes[..end]) {
            // The bytes that follow can show another wrong field, but cannot make this field right.
            assert!(plausible.is_err(), "{reason} was taken back");
        }
    }
    let Some(whole) = bytes.first_chunk::<HELLO_BYTES>() else {
        return plausible.is_ok();
    };
    let (address, encoded) = match Opening::parse(whole) {
        Ok(Opening::Hello(hello)) => {
            assert_eq!(Hello::parse(whole), Ok(hello));
            (hello.address, hello.to_bytes())
        }
        Ok(Opening::Question(question)) => {
            assert_eq!(Hello::parse(whole), Err(WireError::OutOfTurn));
            (question.address, question.to_bytes())
        }
        Err(reason) => {
            assert_eq!(Hello::parse(whole), Err(reason));
            assert!(plausible == Ok(()) || plausible == Err(reason));
            return false;
        }
    };
    assert_eq!(plausible, Ok(()));
    assert_eq!(encoded, *whole);
    assert_eq!(with_check(*whole), *whole);
    assert!(address.is_specific() && address.port() != 0);
    true
}

/// Checks that a record about an address claim has one encoding only. Returns whether the parser accepts
/// `bytes`.
pub(crate) fn check_claim_record(bytes: &[u8]) -> bool {
    let Some(whole) = bytes.first_chunk::<CLAIM_RECORD_BYTES>() else { return false };
    let parsed = ClaimRecord::parse(whole);
    if let Ok(claim) = parsed {
        assert_eq!(claim.to_bytes(), *whole);
    }
    parsed.is_ok()
}

/// Checks that the decoder reports the same for a stream that arrives in pieces as for one that arrives at
/// once. Returns whether the decoder accepts the stream.
///
/// `input` starts with a number of pieces, then has one byte for each piece, then the stream. The low 7 bits
/// of a piece's byte are its length. The highest bit says whether its payload is read straight into the
/// receiver's space, where that is possible.
pub(crate) fn check_stream(input: &[u8]) -> bool {
    let Some((count, input)) = input.split_first() else {
        return true;
    };
    let (arrivals, stream) = input.split_at(input.len().min(usize::from(*count)));
    let at_once = decode_stream(stream, &[]);
    let in_pieces = decode_stream(stream, arrivals);
    assert_eq!(in_pieces, at_once);
    at_once.refused.is_none()
}

/// What the decoder reported of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) frames: Vec<(Header, Vec<u8>)>,
    pub(crate) refused: Option<WireError>,
    pub(crate) is_reading_frame: bool,
    payload_left: u64,
}

/// Decodes a stream. Its bytes arrive in pieces as `arrivals` says, then the rest arrives in one
/// piece.
pub(crate) fn decode_stream(stream: &[u8], arrivals: &[u8]) -> Outcome {
    let mut recorder = Recorder::default();
    let mut decoder = Decoder::new();
    let mut completed = 0;
    let mut refused = None;
    let mut rest = stream;
    let arrivals = arrivals.iter().map(|arrival| (usize::from(arrival & 0x7f), arrival & 0x80 != 0));
    for (len_bytes, in_place) in arrivals.chain([(usize::MAX, false)]) {
        let (piece, after) = rest.split_at(len_bytes.min(rest.len()));
        if in_place && decoder.payload_left() > 0 {
            let placed_bytes = recorder.place_payload(piece);
            completed += usize::from(decoder.report_placed_bytes(LINK, placed_bytes, &mut recorder));
            rest = &rest[placed_bytes..];
            continue;
        }
        rest = after;
        match decoder.feed(LINK, piece, &mut recorder) {
            Ok(frames) => completed += frames as usize,
            Err(reason) => {
                refused = Some(reason);
                break;
            }
        }
    }
    if refused.is_none() {
        assert!(rest.is_empty());
        assert_eq!(completed, recorder.frames.len() - usize::from(recorder.left_bytes > 0));
    }
    assert_eq!(decoder.payload_left(), recorder.left_bytes);
    assert!(decoder.payload_left() == 0 || decoder.is_reading_frame());
    Outcome {
        frames: recorder.frames,
        refused,
        is_reading_frame: decoder.is_reading_frame(),
        payload_left: decoder.payload_left(),
    }
}

const LINK: LinkId = LinkId(3);

/// Puts payload together as it arrives, and allocates for what has arrived only.
#[derive(Debug, Default)]
struct Recorder {
    frames: Vec<(Header, Vec<u8>)>,
    left_bytes: u64,
    window: [u8; 32],
}

impl Recorder {
    /// Copies the start of `piece` into the space for payload. Returns how many bytes fitted.
    fn place_payload(&mut self, piece: &[u8]) -> usize {
        let mut placed_bytes = 0;
        for place in &mut self.payload_space(LINK) {
            let fitting = place.len().min(piece.len() - placed_bytes);
            place[..fitting].copy_from_slice(&piece[placed_bytes..placed_bytes + fitting]);
            placed_bytes += fitting;
        }
        placed_bytes
    }
}

impl FrameHandler for Recorder {
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        assert_eq!((link, self.left_bytes), (LINK, 0));
        assert_eq!(header.payload_len_bytes(), payload.len() as u64);
        self.frames.push((*header, payload.to_vec()));
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        assert_eq!((link, self.left_bytes), (LINK, 0));
        self.left_bytes = header.payload_len_bytes();
        assert!(self.left_bytes > 0);
        self.frames.push((*header, Vec::new()));
    }

    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        let len_bytes =
            usize::try_from(self.left_bytes).map_or(self.window.len(), |left| left.min(self.window.len()));
        let (first, second) = self.window[..len_bytes].split_at_mut(len_bytes / 3);
        Space::from_iter([IoSliceMut::new(first), IoSliceMut::new(second)])
    }

    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        let window = mem::take(&mut self.window);
        if count_bytes > 0 {
            self.payload_arrived(link, &window[..count_bytes]);
        }
    }

    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        assert_eq!(link, LINK);
        assert!(!bytes.is_empty());
        self.left_bytes = self.left_bytes.checked_sub(bytes.len() as u64).expect("more than the frame has");
        let (_, payload) = self.frames.last_mut().expect("payload before any frame");
        payload.extend_from_slice(bytes);
    }

    fn link_event(&mut self, _: LinkId, event: LinkEvent) {
        panic!("a decoder knows nothing of {event:?}");
    }

    fn link_writable(&mut self, link: LinkId) {
        panic!("a decoder knows nothing of {link:?}");
    }
}
