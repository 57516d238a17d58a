mod large_frames;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::LazyLock;

use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Full, Sent};
use homespun_engine::wire::{AwaitedReply, Form, Header, Message, WireError, samples};
use proptest::prelude::*;

use super::recorder::{LINK, Recorder};
use super::*;
use crate::line::{self, PIECE_MAX_BYTES, PIECE_MIN_BYTES, ROOM_MAX_BYTES, sequence_at};
use crate::segment::Segment;
use crate::sync::Ordering;
use crate::ways::Ways;

/// The size of the larger main area.
const DATA_MAX_BYTES: usize = DataArea::LARGE.bytes();

/// More rounds than any of these tests needs.
const ROUNDS_MAX: usize = 100_000;

/// Both ends of a ring, each with its own mapping, as in two processes.
fn make_ring() -> (Producer, Consumer) {
    make_ring_at(DataArea::LARGE, 0, 0)
}

fn make_ring_at(data: DataArea, lines: u64, bytes: u64) -> (Producer, Consumer) {
    let (segment, file) = Segment::create(data).unwrap();
    segment.consumed_lines().store(lines, Ordering::Relaxed);
    segment.consumed_bytes().store(bytes, Ordering::Relaxed);
    segment.consumed_front_bytes().store(bytes, Ordering::Relaxed);
    for before in lines.saturating_sub(LINES as u64)..lines {
        segment.line(before)[0].store(line::piece_line_word(sequence_at(before), 1), Ordering::Relaxed);
    }
    let other = Segment::map(&file).unwrap();
    let consumer = Consumer::starting_at(other, Ways::ring_only(), lines, bytes);
    (Producer::starting_at(segment, lines, bytes), consumer)
}

fn make_message(len_bytes: usize, tag: Option<u64>, data: Option<u64>) -> Header {
    Header::Message(Message { tag, data, ..Message::of_len(len_bytes as u64) })
}

/// Payload without repeated sequences, different for each salt.
fn make_payload(len_bytes: usize, salt: usize) -> Vec<u8> {
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..4 * DATA_MAX_BYTES as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
    });
    PATTERN[salt..salt + len_bytes].to_vec()
}

fn split_in_three_slices(payload: &[u8]) -> [IoSlice<'_>; 3] {
    let (start, rest) = payload.split_at(payload.len() / 3);
    let (middle, end) = rest.split_at(rest.len() / 7);
    [IoSlice::new(start), IoSlice::new(middle), IoSlice::new(end)]
}

/// Sends frames in order, as a correct caller does.
#[derive(Default)]
struct Sender {
    frames: VecDeque<(Header, Vec<u8>)>,
    taken_bytes: Option<usize>,
}

impl Sender {
    /// Sends until no frame is left, the ring is full, or `calls_max` calls were made. Returns whether the
    /// ring has taken anything.
    fn send_until_full(&mut self, ring: &mut Producer, calls_max: usize) -> bool {
        let mut has_sent = false;
        for _ in 0..calls_max {
            let Some((header, payload)) = self.frames.front() else { break };
            let taken_bytes = self.taken_bytes.unwrap_or(0);
            let sent = match self.taken_bytes {
                None if payload.len() <= INLINE_MAX_BYTES && payload.len().is_multiple_of(2) => {
                    ring.send_inline(header, payload).map_or(Sent::Full, |()| Sent::Whole)
                }
                None => ring.send(header, &split_in_three_slices(payload)),
                Some(taken_bytes) => ring.resume(&split_in_three_slices(&payload[taken_bytes..])),
            };
            match sent {
                Sent::Full => break,
                Sent::Partial(count_bytes) => {
                    assert!(count_bytes > 0 && taken_bytes + count_bytes < payload.len());
                    assert!(ring.is_mid_frame());
                    self.taken_bytes = Some(taken_bytes + count_bytes);
                }
                Sent::Whole => {
                    assert!(!ring.is_mid_frame());
                    self.taken_bytes = None;
                    self.frames.pop_front();
                }
            }
            has_sent = true;
        }
        has_sent
    }
}

/// Sizes around every boundary.
fn any_size() -> impl Strategy<Value = usize> {
    let boundary = prop::sample::select(vec![
        0,
        8,
        ROOM_MAX_BYTES - 16,
        ROOM_MAX_BYTES - 8,
        ROOM_MAX_BYTES,
        DATA_UNIT_BYTES,
        2 * DATA_UNIT_BYTES,
        FRAME_MAX_BYTES,
        INLINE_MAX_BYTES,
        PIECE_MIN_BYTES,
        PIECE_MAX_BYTES,
        PIECE_MAX_BYTES + PIECE_MIN_BYTES,
        2 * PIECE_MAX_BYTES,
        DataArea::SMALL.bytes(),
        DATA_MAX_BYTES,
    ]);
    prop_oneof![
        8 => 0..=ROOM_MAX_BYTES + 10,
        8 => (boundary, -1_isize..=1).prop_map(|(size, by)| size.saturating_add_signed(by)),
        1 => 0..3 * DATA_MAX_BYTES,
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    let awaits =
        prop::sample::select(vec![AwaitedReply::Nothing, AwaitedReply::Arrival, AwaitedReply::Match]);
    (0..=MESSAGE_MAX_BYTES, any::<Option<u64>>(), any::<Option<u64>>(), awaits)
        .prop_map(|(len_bytes, tag, data, awaits)| Message { len_bytes, tag, data, awaits })
}

fn max_kind() -> u8 {
    Form::all().map(Form::kind).max().unwrap()
}

/// Any form of header that can have payload, or any that cannot.
fn any_form(has_payload: bool) -> impl Strategy<Value = Form> {
    let forms: Vec<_> = Form::all().filter(|form| form.can_have_payload() == has_payload).collect();
    prop::sample::select(forms)
}

/// Any header, and the length of its payload.
fn any_frame() -> impl Strategy<Value = (Header, usize)> {
    prop_oneof![
        8 => (any_message(), any_size()).prop_map(|(message, size)| {
            (Header::Message(Message { len_bytes: size as u64, ..message }), size)
        }),
        8 => (any_form(false), any::<u64>(), 0..samples::PAIRS)
            .prop_map(|(form, number, end)| (samples::fitting_header(form, number, end), 0)),
        8 => (any_form(true), any_size(), 0..samples::PAIRS).prop_map(|(form, size, end)| {
            let header = samples::fitting_header(form, size as u64, end);
            (header, header.payload_len_bytes() as usize)
        }),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Post(Header, usize),
    Send(usize),
    Receive(u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any_frame().prop_map(|(header, size)| Step::Post(header, size)),
        1 => (1_usize..8).prop_map(Step::Send),
        1 => (1_u32..20).prop_map(Step::Receive),
    ]
}

proptest! {
    #[test]
    fn frames_arrive_whole_and_in_order(
        steps in prop::collection::vec(any_step(), 1..100),
        start_lines in prop_oneof![Just(0), Just((1 << 32) - 3 * LINES as u64), 0..1_u64 << 32],
        start_units in 0_u64..10_000,
        data in prop::sample::select(DataArea::ALL.to_vec()),
    ) {
        let start_lines = start_lines.next_multiple_of(LINES as u64);
        let start_bytes = start_units * DATA_UNIT_BYTES as u64;
        let (mut producer, mut consumer) = make_ring_at(data, start_lines, start_bytes);
        let mut model = Vec::new();
        let mut sender = Sender::default();
        let mut recorder = Recorder::default();
        for (step, salt) in steps.into_iter().zip(0..) {
            match step {
                Step::Post(header, size) => {
                    sender.frames.push_back((header, make_payload(size, salt)));
                    model.push((header, make_payload(size, salt)));
                }
                Step::Send(calls) => _ = sender.send_until_full(&mut producer, calls),
                Step::Receive(budget_frames) => {
                    let count = consumer.receive(LINK, budget_frames, &mut recorder).unwrap();
                    prop_assert!(count <= budget_frames);
                }
            }
        }
        for _ in 0..ROUNDS_MAX {
            if recorder.frames.len() == model.len() {
                break;
            }
            let has_sent = sender.send_until_full(&mut producer, usize::MAX);
            let count = consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
            prop_assert!(has_sent || count > 0, "an empty ring always has room");
        }
        prop_assert_eq!(recorder.frames, model);
        prop_assert!(consumer.is_empty() && !producer.is_broken());
        prop_assert_eq!(consumer.ring_end(), RingEnd::Open);
        producer.finish();
        prop_assert_eq!(consumer.ring_end(), RingEnd::Finished);
    }

    /// Overwrites the next line with arbitrary words, between frames or inside a frame.
    #[test]
    fn scribbled_line_is_refused_or_one_frame(
        is_mid_frame: bool,
        words in prop::array::uniform8(prop_oneof![Just(0_u64), Just(u64::MAX), 0_u64..100, any::<u64>()]),
        kind in 0..=max_kind() + 1,
        flags in prop_oneof![Just(0_u8), 0_u8..128, any::<u8>()],
        len in 0_u16..100,
        is_plausible: bool,
    ) {
        let (mut producer, mut consumer) = make_ring();
        let mut recorder = Recorder::default();
        if is_mid_frame {
            let long = make_payload(3 * DATA_MAX_BYTES, 1);
            let sent = producer.send(&make_message(long.len(), None, None), &split_in_three_slices(&long));
            prop_assert!(matches!(sent, Sent::Partial(_)), "{sent:?}");
            consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        }
        let position = consumer.line_position();
        let mut words = words;
        let form = u64::from(kind) << 32 | u64::from(flags) << 40 | u64::from(len) << 48;
        let rest = if is_plausible { form } else { words[0] << 32 };
        words[0] = rest | u64::from(sequence_at(position));
        for (place, word) in producer.segment().line(position).iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        let result = consumer.receive(LINK, 2, &mut recorder);
        prop_assert!(matches!(result, Err(_) | Ok(1)), "{result:?}");
    }
}

#[test]
fn ring_with_all_lines_used_is_full_until_progress_is_published() {
    let (mut producer, mut consumer) = make_ring();
    let header = make_message(8, None, None);
    for _ in 0..LINES {
        producer.send_inline(&header, &[1; 8]).unwrap();
    }
    assert_eq!(producer.send_inline(&header, &[2; 8]), Err(Full));
    assert_eq!(producer.send(&header, &[IoSlice::new(&[2; 8])]), Sent::Full);
    assert!(producer.request_room_if_full());

    let mut recorder = Recorder::default();
    assert_eq!(consumer.receive(LINK, PUBLISH_LINES as u32 - 1, &mut recorder), Ok(PUBLISH_LINES as u32 - 1));
    assert!(!consumer.take_room_request(), "progress is not yet published");
    assert!(producer.request_room_if_full());
    assert_eq!(consumer.receive(LINK, 1, &mut recorder), Ok(1));
    assert!(consumer.take_room_request());
    assert!(!consumer.take_room_request(), "once for each request");
    assert!(!producer.request_room_if_full());
    for _ in 0..PUBLISH_LINES {
        producer.send_inline(&header, &[3; 8]).unwrap();
    }
    assert_eq!(producer.send_inline(&header, &[4; 8]), Err(Full));
}

#[test]
fn take_wake_request_is_true_once_per_sleep() {
    let (mut producer, mut consumer) = make_ring();
    let header = make_message(0, None, None);
    producer.send_inline(&header, &[]).unwrap();
    assert!(!producer.take_wake_request(), "a new ring is polled");
    assert_eq!(consumer.request_wake_if_empty(), Ok(false), "the ring has a line");
    let mut recorder = Recorder::default();
    consumer.receive(LINK, 5, &mut recorder).unwrap();
    assert_eq!(consumer.request_wake_if_empty(), Ok(true));
    assert!(!producer.take_wake_request(), "nothing was published since");
    producer.send_inline(&header, &[]).unwrap();
    assert!(producer.take_wake_request());
    producer.send_inline(&header, &[]).unwrap();
    assert!(!producer.take_wake_request(), "the request was taken");
    consumer.receive(LINK, 5, &mut recorder).unwrap();
    assert_eq!(consumer.request_wake_if_empty(), Ok(true));
    consumer.cancel_wake_request();
    producer.send_inline(&header, &[]).unwrap();
    assert!(!producer.take_wake_request(), "the ring is polled again");
}

#[test]
fn impossible_progress_breaks_the_ring() {
    let claims: [(u64, u64); 5] = [
        (LINES as u64 + 1, 0),
        (u64::MAX, 0),
        (0, DATA_UNIT_BYTES as u64),
        (0, u64::MAX),
        // Consumed bytes are a multiple of the unit.
        (1, 1),
    ];
    for (lines, bytes) in claims {
        let (mut producer, _consumer) = make_ring();
        let header = make_message(0, None, None);
        while producer.send_inline(&header, &[]).is_ok() {}
        producer.segment().consumed_lines().store(lines, Ordering::Relaxed);
        producer.segment().consumed_bytes().store(bytes, Ordering::Relaxed);
        assert!(!producer.is_broken());
        assert!(!producer.request_room_if_full(), "a broken ring must not be slept on");
        assert!(producer.is_broken());
        producer.segment().consumed_lines().store(LINES as u64, Ordering::Relaxed);
        producer.segment().consumed_bytes().store(0, Ordering::Relaxed);
        assert_eq!(producer.send_inline(&header, &[]), Err(Full));
        assert_eq!(producer.send(&make_message(9, None, None), &split_in_three_slices(&[1; 9])), Sent::Full);
    }
}

#[test]
fn decreasing_progress_breaks_the_ring() {
    let (mut producer, mut consumer) = make_ring();
    let header = make_message(0, None, None);
    while producer.send_inline(&header, &[]).is_ok() {}
    consumer.receive(LINK, u32::MAX, &mut Recorder::default()).unwrap();
    while producer.send_inline(&header, &[]).is_ok() {}
    assert!(!producer.is_broken());
    producer.segment().consumed_lines().store(LINES as u64 - 1, Ordering::Relaxed);
    assert_eq!(producer.send_inline(&header, &[]), Err(Full));
    assert!(producer.is_broken());
}

/// If `send` finds impossible progress while it looks for room, the ring takes nothing of the frame.
#[test]
fn ring_broken_while_sending_answers_full() {
    let (mut producer, _consumer) = make_ring();
    let bytes = make_payload(DATA_MAX_BYTES - DATA_UNIT_BYTES, 1);
    let header = make_message(bytes.len(), None, None);
    assert_eq!(producer.send(&header, &split_in_three_slices(&bytes)), Sent::Whole);
    producer.segment().consumed_bytes().store(1, Ordering::Relaxed);
    assert_eq!(producer.send(&header, &split_in_three_slices(&bytes)), Sent::Full);
    assert!(producer.is_broken() && !producer.is_mid_frame());
}

#[test]
fn ring_end_compares_consumed_lines_with_finished_at() {
    let (mut producer, mut consumer) = make_ring();
    let mut recorder = Recorder::default();
    assert_eq!(consumer.ring_end(), RingEnd::Open);
    let bytes = make_payload(2 * DATA_MAX_BYTES, 1);
    let header = make_message(bytes.len(), None, None);
    let Sent::Partial(taken_bytes) = producer.send(&header, &split_in_three_slices(&bytes)) else {
        panic!("it is too long")
    };
    consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
    assert_eq!(consumer.ring_end(), RingEnd::Cut, "inside a frame");
    assert_eq!(producer.resume(&split_in_three_slices(&bytes[taken_bytes..])), Sent::Whole);
    consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
    assert_eq!(consumer.ring_end(), RingEnd::Open);
    producer.finish();
    assert_eq!(consumer.ring_end(), RingEnd::Finished);
    for elsewhere in [1, u64::MAX] {
        producer.segment().finished_at().store(elsewhere, Ordering::Relaxed);
        assert_eq!(consumer.ring_end(), RingEnd::Cut);
    }
}

#[test]
fn stray_pieces_wrong_lengths_and_nested_frames_are_refused() {
    /// Kinds and flags, at their bits of a first word.
    const MESSAGE: u64 = 1 << 32;
    const PIECE: u64 = 0;
    const OUTSIDE_AND_LONG: u64 = 0b11 << 46;

    let put = |producer: &Producer, position, kind_and_flags, piece_bytes: usize| {
        let line = producer.segment().line(position);
        let first = u64::from(sequence_at(position)) | kind_and_flags | (piece_bytes as u64) << 48;
        line[1].store(2 * PIECE_MIN_BYTES as u64, Ordering::Relaxed);
        line[0].store(first, Ordering::Release);
    };
    let (producer, mut consumer) = make_ring();
    put(&producer, 0, PIECE, 100);
    let stray = consumer.receive(LINK, 5, &mut Recorder::default());
    assert_eq!(stray, Err(WireError::UnknownKind), "a piece of no frame");

    for bad_bytes in [0, 1, PIECE_MIN_BYTES - 1, PIECE_MIN_BYTES + 1, PIECE_MAX_BYTES + 1] {
        let (producer, mut consumer) = make_ring();
        put(&producer, 0, MESSAGE | OUTSIDE_AND_LONG, PIECE_MIN_BYTES);
        put(&producer, 1, PIECE, bad_bytes);
        let mut recorder = Recorder::default();
        assert_eq!(consumer.receive(LINK, 5, &mut recorder), Ok(1), "the frame before it is reported");
        assert!(recorder.is_mid_frame());
        assert_eq!(consumer.receive(LINK, 5, &mut recorder), Err(WireError::ImpossibleLength), "{bad_bytes}");
    }
    let (producer, mut consumer) = make_ring();
    put(&producer, 0, MESSAGE | OUTSIDE_AND_LONG, PIECE_MIN_BYTES);
    put(&producer, 1, MESSAGE | OUTSIDE_AND_LONG, PIECE_MIN_BYTES);
    let mut recorder = Recorder::default();
    assert_eq!(consumer.receive(LINK, 5, &mut recorder), Ok(1));
    let nested = consumer.receive(LINK, 5, &mut recorder);
    assert_eq!(nested, Err(WireError::UnknownKind), "a frame inside a frame");
}
