//! Tests of what the decoder hands over whole, and of violations. `tests/corpus.rs` has the splits.

use super::*;
use crate::transport::{LinkEvent, Space};
use crate::wire::samples::stream_bytes;
use crate::wire::{AwaitedReply, Message};

const LINK: LinkId = LinkId(7);

type Frame = (Header, Vec<u8>);

/// Collects frames. All of them must be handed over whole.
#[derive(Default)]
struct Recorder {
    frames: Vec<Frame>,
}

impl FrameHandler for Recorder {
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        assert_eq!((link, payload.len() as u64), (LINK, header.payload_len_bytes()));
        self.frames.push((*header, payload.to_vec()));
    }

    fn frame_begun(&mut self, _: LinkId, header: &Header) {
        panic!("{header:?} is not whole");
    }

    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        panic!("no frame has begun");
    }

    fn bytes_placed(&mut self, link: LinkId, _: usize) {
        panic!("no frame has begun on {link:?}");
    }

    fn payload_arrived(&mut self, link: LinkId, _: &[u8]) {
        panic!("no frame has begun on {link:?}");
    }

    fn link_event(&mut self, _: LinkId, event: LinkEvent) {
        panic!("a decoder knows nothing of {event:?}");
    }

    fn link_writable(&mut self, link: LinkId) {
        panic!("a decoder knows nothing of {link:?}");
    }
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
    assert_eq!(recorder.frames, frames);
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
    assert_eq!(recorder.frames, [(header, vec![8, 9])]);
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
