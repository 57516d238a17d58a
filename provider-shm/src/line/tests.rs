use std::collections::BTreeSet;

use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::limits::{ATOMIC_MAX_BYTES, MESSAGE_MAX_BYTES};
use homespun_engine::wire::Header::{
    Ack, Answer, Clear, Connection, Credit, Data, Done, Fence, Fenced, Matched, ReadData, Request,
};
use homespun_engine::wire::{
    Atomic, AtomicForm, AwaitedReply, CountedWrite, Durable, HandshakeHeader, HandshakeStep, MappableRegion,
    Message, Outcome, Refusal, Rma, RmaKind,
};
use proptest::prelude::*;

use super::*;

const SEQUENCE: u32 = 0xdead_beef;

fn make_message(len_bytes: usize, tag: Option<u64>, data: Option<u64>, awaits: AwaitedReply) -> Message {
    Message { tag, data, awaits, ..Message::of_len(len_bytes as u64) }
}

/// Parses a line, and asserts that `parse_line` reads each of these words once and no other word. Returns
/// the parsed line and its inline payload.
fn parse_words_once(words: &[u64]) -> Result<(Parsed, Vec<u8>), WireError> {
    let asked = std::cell::RefCell::new(vec![0; words.len()]);
    let word = |n: usize| {
        asked.borrow_mut()[n] += 1;
        words[n]
    };
    let found = parse_with_payload(words[0], word)?;
    assert!(asked.borrow()[1..].iter().all(|&times| times == 1), "asked for {asked:?}");
    Ok(found)
}

/// The words of a frame's first line. Asserts that `emit_line_returning_first_word` writes them in order.
fn emit_words(sequence: u32, header: &Header, payload: Payload<'_>) -> Vec<u64> {
    let mut words = vec![0];
    let first = emit_line_returning_first_word(sequence, header, payload, |place, word| {
        assert_eq!(place, words.len());
        words.push(word);
    });
    words[0] = first;
    words
}

fn parse_with_payload(
    first_word: u64,
    word_at: impl Fn(usize) -> u64,
) -> Result<(Parsed, Vec<u8>), WireError> {
    let mut payload = [0; ROOM_MAX_BYTES];
    let parsed = parse_line(first_word, word_at, &mut payload)?;
    let len_bytes = match parsed {
        Parsed::Frame(_, Found::Inline(len_bytes)) => len_bytes,
        Parsed::Frame(_, Found::Outside(..)) | Parsed::Piece(_) => 0,
    };
    Ok((parsed, payload[..len_bytes].to_vec()))
}

#[test]
fn line_layout_is_as_documented() {
    use Payload::{Inline, Outside};

    let both = make_message(10, Some(0x0304), Some(0x0506), AwaitedReply::Arrival);
    let plain = |len_bytes| Header::Message(make_message(len_bytes, None, None, AwaitedReply::Nothing));
    let offer = make_rma(10, RmaKind::Offer { data: None, remote_bytes: 1 });
    let write = make_rma(2, RmaKind::Write { data: Some(3) });
    let refused = Outcome::Refused(Refusal::Access);
    let handshake = |step, data_bytes| Connection(HandshakeHeader { step, number: 9, data_bytes });
    let region = MappableRegion { key: 5, address: 6, len_bytes: 10, access: 9, remote_bytes: 1 };
    let counted = CountedWrite { key: 5, address: 6, len_bytes: 1, data: Some(3) };
    let product = make_atomic(AtomicKind::Fetch, AtomicOp::Prod, Datatype::Uint16, 1);
    let long_write = make_atomic(AtomicKind::Base, AtomicOp::Write, Datatype::Int8, ATOMIC_MAX_BYTES);
    let none = Inline(&[]);
    let cases: Vec<(Header, Payload<'_>, &[u64])> = vec![
        (
            Header::Message(both),
            Inline(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            &[0x000a_0701_dead_beef, 0x0304, 0x0506, 0x0807_0605_0403_0201, 0x0a09],
        ),
        (plain(0), none, &[0x0000_0001_dead_beef]),
        (plain(57), Outside(Area::Main, 57), &[0x0039_4001_dead_beef]),
        (plain(57), Outside(Area::Front, 57), &[0x8039_4001_dead_beef]),
        (
            Header::Message(make_message(0x0001_0000, Some(5), None, AwaitedReply::Match)),
            Outside(Area::Main, PIECE_MAX_BYTES),
            &[0x8000_c901_dead_beef, 5, 0x0001_0000],
        ),
        (Ack { received: u64::MAX }, none, &[0x0000_0002_dead_beef, u64::MAX]),
        (
            Request { message: both, op: 9, remote_bytes: 2 },
            Inline(&[7, 8]),
            &[0x0002_0703_dead_beef, 9, 0x0304, 0x0506, 10, 0x0807],
        ),
        (Clear { op: 9, cannot_pull: true }, none, &[0x0000_0104_dead_beef, 9]),
        (Data { op: 9, len_bytes: 1 }, Inline(&[6]), &[0x0001_0005_dead_beef, 9, 6]),
        (Done { op: 9, fault: true }, none, &[0x0000_0106_dead_beef, 9]),
        (Matched { number: 9 }, none, &[0x0000_0007_dead_beef, 9]),
        (Credit { granted_bytes: 9 }, none, &[0x0000_0008_dead_beef, 9]),
        (Fence { matched: true }, none, &[0x0000_0109_dead_beef]),
        (Fenced, none, &[0x0000_000a_dead_beef]),
        (make_rma(10, RmaKind::Read), none, &[0x0000_000b_dead_beef, 9, 5, 6, 10]),
        (make_rma(10, RmaKind::Flush), none, &[0x0000_0015_dead_beef, 9, 5, 6, 10]),
        (write, Inline(&[7, 8]), &[0x0002_010c_dead_beef, 9, 5, 6, 3, 0x0807]),
        (offer, Inline(&[7]), &[0x0001_000d_dead_beef, 9, 5, 6, 10, 7]),
        (
            with_durability(write, Durable::Written),
            Inline(&[7, 8]),
            &[0x0002_030c_dead_beef, 9, 5, 6, 3, 0x0807],
        ),
        (with_durability(offer, Durable::Everything), Inline(&[7]), &[0x0001_040d_dead_beef, 9, 5, 6, 10, 7]),
        (Header::MappableRegion(region), Inline(&[7]), &[0x0001_0011_dead_beef, 9, 5, 6, 10, 7]),
        (ReadData { op: 9, len_bytes: 1 }, Inline(&[6]), &[0x0001_000e_dead_beef, 9, 6]),
        (Answer { op: 9, outcome: refused }, none, &[0x0000_020f_dead_beef, 9]),
        (Header::CountedWrite(counted), Inline(&[7]), &[0x0001_0113_dead_beef, 5, 6, 3, 7]),
        (Header::Written { count: 9, outcome: refused }, none, &[0x0000_0214_dead_beef, 9]),
        (product, Inline(&[7, 8]), &[0x0002_0010_dead_beef, 9, 5, 6, 0x0001_0303_0000_0001, 0x0807]),
        (
            long_write,
            Outside(Area::Main, PIECE_MIN_BYTES),
            &[0x1000_c010_dead_beef, 9, 5, 6, 0x0000_0b00_0000_4000, 0x4000],
        ),
        (handshake(HandshakeStep::Reject, 2), Inline(&[7, 8]), &[0x0002_0212_dead_beef, 9, 0x0807]),
        (handshake(HandshakeStep::Request, 256), Outside(Area::Main, 256), &[0x0100_4012_dead_beef, 9]),
    ];
    let kinds: BTreeSet<u8> =
        cases.iter().map(|(header, ..)| header.encode_words(drop::<u64>).form.kind()).collect();
    assert_eq!(kinds, Form::all().map(Form::kind).collect(), "each kind has a line here");
    for (header, payload, expected) in cases {
        let words = emit_words(SEQUENCE, &header, payload);
        assert_eq!(words, expected, "{header:?}");
        let (found, inline) = match payload {
            Payload::Inline(bytes) => (Found::Inline(bytes.len()), bytes),
            Payload::Outside(area, piece_bytes) => (Found::Outside(area, piece_bytes), &[][..]),
        };
        assert_eq!(parse_words_once(&words), Ok((Parsed::Frame(header, found), inline.to_vec())));
    }
    let piece = piece_line_word(SEQUENCE, 0x1234);
    assert_eq!(piece, 0x1234_0000_dead_beef);
    assert_eq!(parse_words_once(&[piece]), Ok((Parsed::Piece(0x1234), vec![])));
    assert_eq!(sequence_in_first_word(piece), SEQUENCE);
}

fn make_atomic(kind: AtomicKind, op: AtomicOp, datatype: Datatype, count: usize) -> Header {
    let form = AtomicForm::new(kind, op, datatype, count).unwrap();
    Header::Atomic(Atomic { op: 9, key: 5, address: 6, form })
}

fn make_rma(len_bytes: u64, kind: RmaKind) -> Header {
    Header::Rma(Rma { op: 9, key: 5, address: 6, len_bytes, kind, durable: Durable::Nothing })
}

fn with_durability(header: Header, durable: Durable) -> Header {
    let Header::Rma(rma) = header else { panic!("{header:?} writes nothing") };
    Header::Rma(Rma { durable, ..rma })
}

#[test]
fn parse_refuses_malformed_lines() {
    let (least, most) = (PIECE_MIN_BYTES as u64, PIECE_MAX_BYTES as u64);
    let line = |len: u64, flags: u8, kind: u64| len << 48 | u64::from(flags) << 40 | kind << 32;
    let (tag_and_data, piece, pieces) = (0b11, OUTSIDE, OUTSIDE | LONG);
    let cases: &[(&[u64], WireError)] = &[
        // Unknown kinds and flags.
        (&[u64::MAX], WireError::UnknownKind),
        (&[line(0, 0, 31)], WireError::UnknownKind),
        (&[line(60, piece, 31)], WireError::UnknownKind),
        (&[line(0, 0, 32)], WireError::UnknownKind),
        (&[line(0, 0b1_0000, 1)], WireError::UnknownFlag),
        (&[line(0, 0b1100, 1)], WireError::UnknownFlag),
        (&[line(100, piece | 0b1100, 1)], WireError::UnknownFlag),
        (&[line(0, 1, 2), 0], WireError::UnknownFlag),
        (&[line(60, piece | 1, 2), 0], WireError::UnknownFlag),
        (&[line(0, 5, 18), 0], WireError::UnknownFlag),
        // A piece has no flags.
        (&[line(100, 1, 0)], WireError::UnknownFlag),
        (&[line(100, piece, 0)], WireError::UnknownFlag),
        // `LONG` without `OUTSIDE`: further pieces follow, but there is no first piece.
        (&[line(8, LONG, 1), 0], WireError::UnknownFlag),
        (&[line(8, LONG, 12), 0], WireError::UnknownFlag),
        // Payload after a header that has none.
        (&[line(1, 0, 2), 0, 0], WireError::ImpossibleLength),
        (&[line(1, 1, 9), 0], WireError::ImpossibleLength),
        (&[line(64, piece, 11), 0, 0, 0, 0], WireError::ImpossibleLength),
        (&[line(least, pieces, 15), 0, 2 * least], WireError::ImpossibleLength),
        (&[line(1, 3, 18), 0, 0], WireError::ImpossibleLength),
        // Payload that is too long for the line, or payload outside the line that would fit into it.
        (&[line(57, 0, 1)], WireError::ImpossibleLength),
        (&[line(49, 0, 5), 0], WireError::ImpossibleLength),
        (&[line(25, tag_and_data, 3), 0, 0, 0, 0], WireError::ImpossibleLength),
        (&[line(25, 1, 12), 0, 0, 0, 0], WireError::ImpossibleLength),
        (&[line(24, piece | 1, 12), 0, 0, 0, 0], WireError::ImpossibleLength),
        (&[line(56, piece, 1)], WireError::ImpossibleLength),
        (&[line(0, piece, 1)], WireError::ImpossibleLength),
        // Values that the header does not allow.
        (&[line(65, piece, 3), 0, 0], WireError::ImpossibleLength),
        (&[line(256, piece, 3), 0, 0], WireError::ImpossibleLength),
        (&[line(least, pieces, 3), 0, 0, 2 * least], WireError::ImpossibleLength),
        (&[line(0, 0, 3), 0, MESSAGE_MAX_BYTES + 1], WireError::ImpossibleLength),
        (&[line(0, 0, 11), 0, 0, 0, MESSAGE_MAX_BYTES + 1], WireError::ImpossibleLength),
        (&[line(most, pieces, 1), MESSAGE_MAX_BYTES + 1], WireError::ImpossibleLength),
        (&[line(257, piece, 18), 0], WireError::ImpossibleLength),
        // First pieces that are too large or too small, or that are the only piece despite `LONG`.
        (&[line(most + 1, piece, 1)], WireError::ImpossibleLength),
        (&[line(most + least + 1, piece, 1)], WireError::ImpossibleLength),
        (&[line(most + least, pieces, 1), most], WireError::ImpossibleLength),
        (&[line(least - 1, pieces, 1), 2 * most], WireError::ImpossibleLength),
        (&[line(least, pieces, 1), least], WireError::ImpossibleLength),
        (&[line(least, pieces, 1), least - 1], WireError::ImpossibleLength),
        // Padding that is not zero.
        (&[line(1, 0, 1), 0x0100], WireError::ReservedNotZero),
        // Unknown atomic operations, and payloads of the wrong length.
        (&[line(0, 0, 16), 0, 0, 0, 16 << 32 | 1], WireError::UnknownOperation),
        (&[line(2, 0, 16), 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[line(1, 0, 16), 0, 0, 0, 1 << 48 | 10 << 40 | 1], WireError::ImpossibleLength),
        (&[line(25, 0, 16), 0, 0, 0, 25], WireError::ImpossibleLength),
        (&[line(24, piece, 16), 0, 0, 0, 24], WireError::ImpossibleLength),
        (&[line(least, pieces, 16), 0, 0, 0, least + 2, least + 1], WireError::ImpossibleLength),
    ];
    for (words, reason) in cases {
        // Some cases have fewer words than their header claims. The missing words read as 0.
        let word = |n: usize| words.get(n).copied().unwrap_or(0);
        assert_eq!(parse_with_payload(words[0], word), Err(*reason), "{words:#x?}");
    }
}

#[test]
fn unpublished_line_holds_zero_or_the_sequence_number_of_the_previous_lap() {
    let lap = LINES as u64;
    assert!(is_from_previous_lap(0, 0) && is_from_previous_lap(0, lap - 1));
    assert!(!is_from_previous_lap(0, lap));
    for bit in 0..u64::BITS {
        assert!(!is_from_previous_lap(1 << bit, 0), "bit {bit}");
    }
    for position in [lap, 2 * lap - 1, 5 * lap + 3, 1 << 16, (1 << 32) - 1, (1 << 32) + lap - 1] {
        let before = piece_line_word(sequence_at(position - lap), 5);
        assert!(is_from_previous_lap(before, position));
        for bit in 0..u32::BITS {
            assert!(!is_from_previous_lap(before ^ 1 << bit, position), "bit {bit}");
        }
        let next = piece_line_word(sequence_at(position), 5);
        assert!(!is_from_previous_lap(next, position));
        assert_ne!(sequence_in_first_word(before), sequence_in_first_word(next));
    }
}

fn max_kind() -> u64 {
    Form::all().map(|form| u64::from(form.kind())).max().unwrap()
}

fn any_words() -> impl Strategy<Value = [u64; LINE_WORDS]> {
    let word = prop_oneof![Just(0), 0_u64..100, 0..=2 * PIECE_MAX_BYTES as u64, any::<u64>()];
    prop::array::uniform8(word)
}

/// A line of a message, most often.
fn any_first_word() -> impl Strategy<Value = u64> {
    let flags = prop_oneof![4 => 0_u64..4, 1 => 0_u64..64];
    let payload_flags = prop::sample::select(vec![0, OUTSIDE, OUTSIDE | LONG]);
    let len = prop_oneof![0_u64..100, 0..=u64::from(u16::MAX)];
    (prop_oneof![9 => Just(u64::from(COMMON_KIND)), 1 => 0_u64..256], flags, payload_flags, len).prop_map(
        |(kind, flags, payload_flags, len)| {
            let flags = flags | u64::from(payload_flags);
            len << field::LEN | flags << field::FLAGS | kind << field::KIND
        },
    )
}

proptest! {
    #[test]
    fn line_of_plain_message_is_parsed_as_any_line(first in any_first_word(), words in any_words()) {
        let word = |n: usize| if n == 0 { first } else { words[n] };
        let plain = parse_plain_message_line(first, word);
        // Only the padding of inline payload is not looked at.
        let parsed = parse_with_payload(first, word).ok();
        match (plain, parsed) {
            (Some((message, FoundMessage::Outside(area))), parsed) => {
                let len_bytes = message.len_bytes as usize;
                let found = Found::Outside(area, len_bytes);
                prop_assert_eq!(parsed, Some((Parsed::Frame(Header::Message(message), found), vec![])));
            }
            (Some((message, FoundMessage::Inline { place })), Some((parsed, payload))) => {
                let found = Found::Inline(message.len_bytes as usize);
                prop_assert_eq!(parsed, Parsed::Frame(Header::Message(message), found));
                let mut copied = vec![0; payload.len()];
                copy_out_inline(place, word, &mut copied);
                prop_assert_eq!(copied, payload);
            }
            (None, Some((Parsed::Frame(Header::Message(message), found), _))) => {
                let is_begun =
                    matches!(found, Found::Outside(_, bytes) if (bytes as u64) < message.len_bytes);
                prop_assert!(message.awaits != AwaitedReply::Nothing || is_begun, "{:?}", message);
            }
            _ => {}
        }
    }

    #[test]
    fn parsed_line_reemits_the_same_words(
        words in any_words(),
        kind in prop_oneof![9 => 0..=max_kind() + 1, 1 => 0_u64..256],
        flags in prop_oneof![4 => 0_u64..16, 1 => 0_u64..64],
        payload_flags in prop::sample::select(vec![0, 0, OUTSIDE, OUTSIDE | LONG, LONG]),
        len in prop_oneof![0_u64..100, 0..=u64::from(u16::MAX)],
    ) {
        let flags = flags | u64::from(payload_flags);
        let sequence = words[0] as u32;
        let form = flags << field::FLAGS | kind << field::KIND;
        let first = len << field::LEN | form | u64::from(sequence) << field::SEQUENCE;
        let word = |n: usize| if n == 0 { first } else { words[n] };
        let Ok((parsed, payload)) = parse_with_payload(first, word) else { return Ok(()) };
        prop_assert_eq!(sequence_in_first_word(first), sequence);
        let emitted = match &parsed {
            Parsed::Frame(header, Found::Inline(_)) => {
                emit_words(sequence, header, Payload::Inline(&payload))
            }
            Parsed::Frame(header, Found::Outside(area, piece_bytes)) => {
                emit_words(sequence, header, Payload::Outside(*area, *piece_bytes))
            }
            Parsed::Piece(piece_bytes) => vec![piece_line_word(sequence, *piece_bytes)],
        };
        for (n, &emitted) in emitted.iter().enumerate() {
            prop_assert_eq!(emitted, word(n), "word {}", n);
        }
    }
}
