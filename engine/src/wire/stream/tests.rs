use std::io::IoSliceMut;

use proptest::prelude::*;

use super::*;
use crate::transport::{LinkEvent, Space};
use crate::wire::testing::any_header;
use crate::wire::{AwaitedReply, Message};

const LINK: LinkId = LinkId(7);

/// Longer than a chunk and a header, short enough to shrink well.
const PAYLOAD_MAX_BYTES: u64 = 100;

type Frame = (Header, Vec<u8>);

/// Collects the reported frames and checks the order of the calls.
#[derive(Default)]
struct Recorder {
    frames: Vec<Frame>,
    /// The number of frames reported by [`FrameHandler::frame`].
    whole: usize,
    unfinished: Option<Unfinished>,
}

struct Unfinished {
    header: Header,
    payload: Vec<u8>,
    filled_bytes: usize,
}

impl Recorder {
    fn finish_if_filled(&mut self) {
        if let Some(done) = self.unfinished.take_if(|it| it.filled_bytes == it.payload.len()) {
            self.frames.push((done.header, done.payload));
        }
    }

    fn expect_unfinished(&mut self) -> &mut Unfinished {
        self.unfinished.as_mut().expect("payload outside a frame")
    }
}

impl FrameHandler for Recorder {
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        assert_eq!(link, LINK);
        assert!(self.unfinished.is_none(), "a frame inside a frame");
        assert_eq!(payload.len() as u64, header.payload_len_bytes());
        self.frames.push((*header, payload.to_vec()));
        self.whole += 1;
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        assert_eq!(link, LINK);
        assert!(self.unfinished.is_none(), "a frame inside a frame");
        assert!(header.payload_len_bytes() > 0, "a frame without payload is whole");
        let len_bytes = header.payload_len_bytes().min(PAYLOAD_MAX_BYTES);
        let payload = vec![0; usize::try_from(len_bytes).unwrap()];
        self.unfinished = Some(Unfinished { header: *header, payload, filled_bytes: 0 });
    }

    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        let unfinished = self.expect_unfinished();
        let free = &mut unfinished.payload[unfinished.filled_bytes..];
        let (first, second) = free.split_at_mut(free.len() / 3);
        Space::from_iter([IoSliceMut::new(first), IoSliceMut::new(second)])
    }

    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        assert_eq!(link, LINK);
        self.expect_unfinished().filled_bytes += count_bytes;
        self.finish_if_filled();
    }

    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        assert_eq!(link, LINK);
        assert!(!bytes.is_empty(), "an empty chunk");
        let unfinished = self.expect_unfinished();
        let end = unfinished.filled_bytes + bytes.len();
        unfinished.payload[unfinished.filled_bytes..end].copy_from_slice(bytes);
        unfinished.filled_bytes = end;
        self.finish_if_filled();
    }

    fn link_event(&mut self, _: LinkId, event: LinkEvent) {
        panic!("a decoder knows nothing of {event:?}");
    }

    fn link_writable(&mut self, link: LinkId) {
        panic!("a decoder knows nothing of {link:?}");
    }
}

fn any_frame() -> impl Strategy<Value = Frame> {
    any_header(PAYLOAD_MAX_BYTES).prop_flat_map(|header| {
        let len_bytes = header.payload_len_bytes() as usize;
        proptest::collection::vec(any::<u8>(), len_bytes).prop_map(move |payload| (header, payload))
    })
}

fn stream_bytes(frames: &[Frame]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (header, payload) in frames {
        let mut buffer = [0; HEADER_MAX_BYTES];
        let len_bytes = frame::emit(header, &mut buffer);
        stream.extend_from_slice(&buffer[..len_bytes]);
        stream.extend_from_slice(payload);
    }
    stream
}

/// One arrival: the largest number of bytes, and whether payload is read straight into its space if
/// possible.
type Arrival = (usize, bool);

/// Delivers a stream in the given arrivals, repeated as needed. Returns the error, if any, and the
/// number of complete frames.
fn deliver_stream(
    stream: &[u8],
    arrivals: &[Arrival],
    decoder: &mut Decoder,
    recorder: &mut Recorder,
) -> (Result<(), WireError>, usize) {
    let mut rest = stream;
    let mut counted = 0;
    for &(len_bytes, in_place) in arrivals.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let len_bytes = len_bytes.min(rest.len());
        if in_place && decoder.payload_left() > 0 {
            let mut placed_bytes = 0;
            for piece in &mut recorder.payload_space(LINK) {
                let count_bytes = piece.len().min(len_bytes - placed_bytes);
                piece[..count_bytes].copy_from_slice(&rest[placed_bytes..placed_bytes + count_bytes]);
                placed_bytes += count_bytes;
            }
            counted += usize::from(decoder.report_placed_bytes(LINK, placed_bytes, recorder));
            rest = &rest[placed_bytes..];
        } else {
            let (piece, after) = rest.split_at(len_bytes);
            match decoder.feed(LINK, piece, recorder) {
                Ok(frames) => counted += frames as usize,
                Err(reason) => return (Err(reason), counted),
            }
            rest = after;
        }
    }
    (Ok(()), counted)
}

fn any_arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    proptest::collection::vec((1..80_usize, any::<bool>()), 1..20)
}

#[test]
fn whole_frames_are_delivered_whole() {
    let message = |len_bytes| Message { tag: Some(1), ..Message::of_len(len_bytes) };
    let frames: Vec<Frame> = vec![
        (Header::Message(message(3)), vec![1, 2, 3]),
        (Header::Message(message(0)), vec![]),
        (Header::Ack { received: 2 }, vec![]),
    ];
    let (mut decoder, mut recorder) = (Decoder::new(), Recorder::default());
    assert_eq!(decoder.feed(LINK, &stream_bytes(&frames), &mut recorder), Ok(3));
    assert_eq!((recorder.frames, recorder.whole), (frames, 3));
    assert!(!decoder.is_reading_frame());
}

#[test]
fn split_header_does_not_split_the_payload() {
    let header = Header::Message(Message { awaits: AwaitedReply::Arrival, ..Message::of_len(2) });
    let stream = stream_bytes(&[(header, vec![8, 9])]);
    let (mut decoder, mut recorder) = (Decoder::new(), Recorder::default());
    assert_eq!(decoder.feed(LINK, &stream[..5], &mut recorder), Ok(0));
    assert!(decoder.is_reading_frame());
    assert_eq!(decoder.payload_left(), 0);
    assert_eq!(decoder.feed(LINK, &stream[5..], &mut recorder), Ok(1));
    assert_eq!((recorder.frames, recorder.whole), (vec![(header, vec![8, 9])], 1));
}

#[test]
fn decoder_reports_no_frames_after_a_violation() {
    let ack = stream_bytes(&[(Header::Ack { received: 1 }, vec![])]);
    let (mut decoder, mut recorder) = (Decoder::new(), Recorder::default());
    let bad = [&ack[..], &[0xf0], &ack[..]].concat();
    assert_eq!(decoder.feed(LINK, &bad, &mut recorder), Err(WireError::UnknownKind));
    assert_eq!(decoder.feed(LINK, &ack, &mut recorder), Err(WireError::UnknownKind));
    assert_eq!(recorder.frames.len(), 1);
}

#[test]
fn wrong_flags_are_refused_at_their_byte_across_pieces() {
    let (mut decoder, mut recorder) = (Decoder::new(), Recorder::default());
    assert_eq!(decoder.feed(LINK, &[1], &mut recorder), Ok(0));
    assert_eq!(decoder.feed(LINK, &[0x40], &mut recorder), Err(WireError::UnknownFlag));
}

proptest! {
    #[test]
    fn frames_decode_alike_for_any_split(
        frames in proptest::collection::vec(any_frame(), 0..12),
        arrivals in any_arrivals(),
    ) {
        let (mut decoder, mut recorder) = (Decoder::new(), Recorder::default());
        let bytes = stream_bytes(&frames);
        let (result, counted) = deliver_stream(&bytes, &arrivals, &mut decoder, &mut recorder);
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(counted, frames.len());
        prop_assert_eq!(recorder.frames, frames);
        prop_assert!(!decoder.is_reading_frame());
        prop_assert_eq!(decoder.payload_left(), 0);
    }

    #[test]
    fn decoder_is_mid_frame_after_a_cut_inside_a_frame(
        frames in proptest::collection::vec(any_frame(), 1..4),
        arrivals in any_arrivals(),
        cut in any::<prop::sample::Index>(),
    ) {
        let stream = stream_bytes(&frames);
        let cut = cut.index(stream.len());
        let (mut decoder, mut recorder) = (Decoder::new(), Recorder::default());
        let (result, counted) = deliver_stream(&stream[..cut], &arrivals, &mut decoder, &mut recorder);
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(&recorder.frames[..], &frames[..counted]);
        let between = stream_bytes(&frames[..counted]).len() == cut;
        prop_assert_eq!(decoder.is_reading_frame(), !between);
    }

    #[test]
    fn violation_is_reported_alike_for_any_split(
        frames in proptest::collection::vec(any_frame(), 0..4),
        garbage in proptest::collection::vec(prop_oneof![any::<u8>(), 0..4_u8], 0..60),
        arrivals in any_arrivals(),
    ) {
        let stream = [stream_bytes(&frames), garbage].concat();
        let mut at_once = Recorder::default();
        let whole = Decoder::new().feed(LINK, &stream, &mut at_once);
        let mut in_pieces = Recorder::default();
        let (result, _) = deliver_stream(&stream, &arrivals, &mut Decoder::new(), &mut in_pieces);
        prop_assert_eq!(result.err(), whole.err());
        prop_assert_eq!(in_pieces.frames, at_once.frames);
    }
}
