use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::limits::{ATOMIC_MAX_BYTES, CONNECTION_DATA_MAX_BYTES, MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use crate::wire::testing::sample_headers;
use crate::wire::{
    Atomic, AtomicForm, AwaitedReply, CountedWrite, Durable, HandshakeHeader, HandshakeStep, MappableRegion,
    Message, Outcome, Refusal, Rma, RmaKind, samples,
};

fn encoded_header(header: &Header) -> Vec<u8> {
    let mut buffer = [0xa5; HEADER_MAX_BYTES];
    let len_bytes = emit(header, &mut buffer);
    assert!(buffer[len_bytes..].iter().all(|&byte| byte == 0xa5), "wrote beyond the header");
    buffer[..len_bytes].to_vec()
}

/// Returns the bytes of a header with this kind, these flags and these words. A payload length
/// counts as a word.
fn raw_frame_bytes(kind: u8, flags: u8, words: &[u64]) -> Vec<u8> {
    let rotated = words.iter().fold(0_u64, |all, word| all.rotate_left(3) ^ word);
    let words_check = rotated.to_le_bytes().into_iter().fold(0x5a, |check, byte| check ^ byte);
    let mut bytes = vec![kind, flags, 0xa5 ^ kind ^ flags.rotate_left(4), words_check];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn rma_header(kind: RmaKind, durable: Durable) -> Header {
    Header::Rma(Rma { op: 9, key: 5, address: 6, len_bytes: 2, kind, durable })
}

fn counted_write_header(data: Option<u64>) -> Header {
    Header::CountedWrite(CountedWrite { key: 5, address: 6, len_bytes: 2, data })
}

fn handshake_header(step: HandshakeStep, data_bytes: u16) -> Header {
    Header::Connection(HandshakeHeader { step, number: 9, data_bytes })
}

#[test]
fn frame_layout_is_as_documented() {
    let header = Header::Ack { received: 0x0102 };
    assert_eq!(encoded_header(&header), [2, 0, 0xa5 ^ 2, 0x5a ^ 1 ^ 2, 2, 1, 0, 0, 0, 0, 0, 0]);
    let message = Message { tag: Some(4 << 56), awaits: AwaitedReply::Match, ..Message::of_len(3) };
    let expected = [1, 9, 0xa5 ^ 1 ^ 0x90, 0x5a ^ 4 << 3 ^ 3, 0, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(encoded_header(&Header::Message(message)), expected);
}

/// A change here needs a new [`VERSION`](crate::wire::hello::VERSION).
#[test]
fn every_header_keeps_its_number_flags_and_words() {
    let both = Message { len_bytes: 0x0102, tag: Some(0x0304), data: Some(5), awaits: AwaitedReply::Arrival };
    let form = AtomicForm::new(AtomicKind::Fetch, AtomicOp::Prod, Datatype::Uint16, 0x0102).unwrap();
    let fetch = Atomic { op: 9, key: 5, address: 6, form };
    let region = MappableRegion { key: 5, address: 6, len_bytes: 2, access: 9, remote_bytes: 16 };
    let refused = Outcome::Refused(Refusal::Range);
    let data_and_match = Message { tag: None, awaits: AwaitedReply::Match, ..both };
    let write = |data| RmaKind::Write { data };
    let offer = RmaKind::Offer { data: Some(7), remote_bytes: 16 };
    // Each case has a header, its kind, its flags and its words.
    let cases: &[(Header, u8, u8, &[u64])] = &[
        (Header::Message(both), 1, 0b0111, &[0x0304, 5, 0x0102]),
        (Header::Message(data_and_match), 1, 0b1010, &[5, 0x0102]),
        (Header::Ack { received: u64::MAX - 1 }, 2, 0, &[u64::MAX - 1]),
        (Header::Request { message: both, op: 9, remote_bytes: 16 }, 3, 0b0111, &[9, 0x0304, 5, 0x0102, 16]),
        (Header::Clear { op: 9, cannot_pull: true }, 4, 1, &[9]),
        (Header::Data { op: 9, len_bytes: 0x0102 }, 5, 0, &[9, 0x0102]),
        (Header::Done { op: 9, fault: true }, 6, 1, &[9]),
        (Header::Matched { number: 9 }, 7, 0, &[9]),
        (Header::Credit { granted_bytes: 9 }, 8, 0, &[9]),
        (Header::Fence { matched: false }, 9, 0, &[]),
        (Header::Fence { matched: true }, 9, 1, &[]),
        (Header::Fenced, 10, 0, &[]),
        (rma_header(RmaKind::Read, Durable::Nothing), 11, 0, &[9, 5, 6, 2]),
        (rma_header(write(None), Durable::Everything), 12, 0b100, &[9, 5, 6, 2]),
        (rma_header(write(Some(7)), Durable::Written), 12, 0b011, &[9, 5, 6, 7, 2]),
        (rma_header(offer, Durable::Nothing), 13, 0b001, &[9, 5, 6, 7, 2, 16]),
        (Header::ReadData { op: 9, len_bytes: 0x0102 }, 14, 0, &[9, 0x0102]),
        (Header::Answer { op: 9, outcome: Outcome::Done }, 15, 0, &[9]),
        (Header::Answer { op: 9, outcome: refused }, 15, 3, &[9]),
        (Header::Answer { op: 9, outcome: Outcome::NotDurable }, 15, 6, &[9]),
        (Header::Atomic(fetch), 16, 0, &[9, 5, 6, 0x0001_0303_0000_0102, 0x0204]),
        (Header::MappableRegion(region), 17, 0, &[9, 5, 6, 2, 16]),
        (handshake_header(HandshakeStep::Request, 0x0100), 18, 0, &[9, 0x0100]),
        (handshake_header(HandshakeStep::Shutdown, 0), 18, 4, &[9, 0]),
        (counted_write_header(None), 19, 0, &[5, 6, 2]),
        (counted_write_header(Some(7)), 19, 1, &[5, 6, 7, 2]),
        (Header::Written { count: 9, outcome: Outcome::Done }, 20, 0, &[9]),
        (Header::Written { count: 9, outcome: refused }, 20, 3, &[9]),
        (rma_header(RmaKind::Flush, Durable::Nothing), 21, 0, &[9, 5, 6, 2]),
        (rma_header(RmaKind::Flush, Durable::Written), 21, 0b010, &[9, 5, 6, 2]),
    ];
    let kinds: BTreeSet<u8> = cases.iter().map(|(_, kind, ..)| *kind).collect();
    assert_eq!(kinds, Form::all().map(Form::kind).collect(), "each kind has a line here");
    for &(header, kind, flags, words) in cases {
        let bytes = raw_frame_bytes(kind, flags, words);
        assert_eq!(encoded_header(&header), bytes, "{header:?}");
        assert_eq!(parse(&bytes), Ok(Some((header, bytes.len()))));
    }
}

#[test]
fn kinds_and_flags_that_no_header_has_are_refused_at_once() {
    let kinds: BTreeSet<u8> = Form::all().map(Form::kind).collect();
    for kind in (0..=u8::MAX).filter(|kind| !kinds.contains(kind)) {
        assert_eq!(parse(&[kind]), Err(WireError::UnknownKind), "{kind}");
    }
    let refused: &[(u8, &[u8])] = &[
        (1, &[0b1100, 1 << 4]),
        (2, &[1]),
        (3, &[0b1100]),
        (4, &[2]),
        (5, &[1]),
        (6, &[2]),
        (7, &[1]),
        (8, &[1]),
        (9, &[2]),
        (10, &[1]),
        (11, &[1]),
        (12, &[0b110, 1 << 3]),
        (13, &[0b110]),
        (14, &[1]),
        (15, &[7]),
        (16, &[1]),
        (17, &[1]),
        (18, &[5]),
        (19, &[1 << 1]),
        (20, &[7]),
        (21, &[1, 1 << 2]),
    ];
    let refused_kinds: BTreeSet<u8> = refused.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(refused_kinds, kinds, "each kind has a line here");
    let all = refused.iter().flat_map(|(kind, flags)| flags.iter().map(move |flags| (*kind, *flags)));
    for (kind, flags) in all.chain(kinds.iter().flat_map(|kind| [(*kind, 1 << 6), (*kind, 1 << 7)])) {
        assert_eq!(parse(&[kind]), Ok(None), "{kind}");
        assert_eq!(parse(&[kind, flags]), Err(WireError::UnknownFlag), "{kind} with {flags:#b}");
    }
    assert_eq!(parse(&[1, 1, 0xa5 ^ 1 ^ 0x10]), Ok(None));
    assert_eq!(parse(&[1, 1, 0xa5 ^ 1]), Err(WireError::WrongCheck));
}

#[test]
fn headers_with_impossible_fields_are_refused() {
    const TOO_LONG: u64 = MESSAGE_MAX_BYTES + 1;
    const REMOTE_TOO_LONG: u64 = REMOTE_MAX_BYTES as u64 + 1;
    let complex = 10 << 32;
    let cases: &[(u8, u8, &[u64], WireError)] = &[
        (1, 0, &[TOO_LONG], WireError::ImpossibleLength),
        (3, 0, &[9, TOO_LONG, 0], WireError::ImpossibleLength),
        (3, 0, &[9, 0, REMOTE_TOO_LONG], WireError::ImpossibleLength),
        (5, 0, &[9, TOO_LONG], WireError::ImpossibleLength),
        (11, 0, &[9, 5, 6, TOO_LONG], WireError::ImpossibleLength),
        (12, 0, &[9, 5, 6, TOO_LONG], WireError::ImpossibleLength),
        (13, 0, &[9, 5, 6, TOO_LONG, 0], WireError::ImpossibleLength),
        (13, 0, &[9, 5, 6, 0, REMOTE_TOO_LONG], WireError::ImpossibleLength),
        (14, 0, &[9, u64::MAX], WireError::ImpossibleLength),
        (17, 0, &[9, 5, 6, TOO_LONG, 0], WireError::ImpossibleLength),
        (17, 0, &[9, 5, 6, 0, REMOTE_TOO_LONG], WireError::ImpossibleLength),
        (18, 0, &[9, CONNECTION_DATA_MAX_BYTES as u64 + 1], WireError::ImpossibleLength),
        (18, 3, &[9, 1], WireError::ImpossibleLength),
        (18, 4, &[9, 1], WireError::ImpossibleLength),
        // An unknown datatype, operation and kind, and bits that belong to no field.
        (16, 0, &[9, 5, 6, 16 << 32 | 1, 1], WireError::UnknownOperation),
        (16, 0, &[9, 5, 6, 19 << 40 | 1, 1], WireError::UnknownOperation),
        (16, 0, &[9, 5, 6, 3 << 48 | 2 << 40 | 1, 1], WireError::UnknownOperation),
        (16, 0, &[9, 5, 6, 1 << 56 | 2 << 40 | 1, 1], WireError::UnknownOperation),
        // The minimum of complex numbers, a comparison that fetches nothing, and a bitwise
        // operation on a floating-point number.
        (16, 0, &[9, 5, 6, complex | 1, 8], WireError::UnknownOperation),
        (16, 0, &[9, 5, 6, 12 << 40 | 1, 1], WireError::UnknownOperation),
        (16, 0, &[9, 5, 6, 6 << 40 | 8 << 32 | 1, 4], WireError::UnknownOperation),
        // Too many elements, and a payload that is longer than the elements.
        (16, 0, &[9, 5, 6, 2 << 40 | (ATOMIC_MAX_BYTES as u64 + 1), 0], WireError::ImpossibleLength),
        (16, 0, &[9, 5, 6, 2 << 40 | 1, 2], WireError::ImpossibleLength),
    ];
    for (kind, flags, words, reason) in cases {
        let bytes = raw_frame_bytes(*kind, *flags, words);
        assert_eq!(parse(&bytes), Err(*reason), "{kind}, {flags:#b}, {words:x?}");
        assert_eq!(parse(&bytes[..bytes.len() - 1]), Ok(None), "{kind}, {flags:#b}, {words:x?}");
    }
}

#[test]
fn sample_headers_with_any_changed_byte_are_refused() {
    for header in sample_headers() {
        let bytes = encoded_header(&header);
        for at in 0..bytes.len() {
            for byte in (0..=u8::MAX).filter(|byte| *byte != bytes[at]) {
                let mut changed = bytes.clone();
                changed[at] = byte;
                let judged = parse(&changed);
                assert!(judged.is_err(), "byte {at} of {header:?} became {byte}: {judged:?}");
            }
        }
    }
}

#[test]
fn longest_message_is_accepted() {
    let longest = Message::of_len(MESSAGE_MAX_BYTES);
    let bytes = encoded_header(&Header::Message(longest));
    assert_eq!(parse(&bytes), Ok(Some((Header::Message(longest), bytes.len()))));
}

#[test]
fn largest_header_is_an_offer_with_data() {
    let offer = rma_header(RmaKind::Offer { data: Some(1), remote_bytes: 0 }, Durable::Nothing);
    assert_eq!((header_len_bytes(&offer), HEADER_MAX_BYTES), (52, 52));
}

proptest! {
    #[test]
    fn header_round_trips_before_other_bytes(
        form in prop::sample::select(Form::all().collect::<Vec<_>>()),
        number in prop_oneof![0..100_u64, any::<u64>()],
        pair in 0..samples::PAIRS,
        rest in proptest::collection::vec(any::<u8>(), 0..32),
    ) {
        let header = samples::fitting_header(form, number, pair);
        let mut bytes = encoded_header(&header);
        let len_bytes = bytes.len();
        prop_assert_eq!(len_bytes, header_len_bytes(&header));
        for end in 0..len_bytes {
            prop_assert_eq!(parse(&bytes[..end]), Ok(None), "cut at {}", end);
        }
        bytes.extend(rest);
        prop_assert_eq!(parse(&bytes), Ok(Some((header, len_bytes))));
    }
}
