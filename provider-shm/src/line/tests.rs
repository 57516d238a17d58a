use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::limits::ATOMIC_MAX_BYTES;
use homespun_engine::wire::Header::{
    Ack, Answer, Clear, Connection, Credit, Data, Done, Fence, Fenced, Matched, ReadData, Request,
};
use homespun_engine::wire::Refusal;
use proptest::prelude::*;

use super::*;

const SEQUENCE: u16 = 0xbeef;

fn message(len_bytes: usize, tag: Option<u64>, data: Option<u64>, awaits: Awaits) -> Message {
    Message { len_bytes: len_bytes as u64, tag, data, awaits }
}

/// Parses words, all of which must be asked for once and none beyond them. With what was found comes the payload, if that
/// is in the line.
fn parsed(words: &[u64]) -> Result<(Parsed, Vec<u8>), WireError> {
    let asked = std::cell::RefCell::new(vec![0; words.len()]);
    let word = |n: usize| {
        asked.borrow_mut()[n] += 1;
        words[n]
    };
    let found = found(words[0], word)?;
    assert!(asked.borrow()[1..].iter().all(|&times| times == 1), "asked for {asked:?}");
    Ok(found)
}

/// The words of a frame's first line, which come in order.
fn emitted(sequence: u16, header: &Header, payload: Payload<'_>) -> Vec<u64> {
    let mut words = vec![0];
    let first = emit(sequence, header, payload, |place, word| {
        assert_eq!(place, words.len());
        words.push(word);
    });
    words[0] = first;
    words
}

fn found(first: u64, word: impl Fn(usize) -> u64) -> Result<(Parsed, Vec<u8>), WireError> {
    let mut payload = [0; ROOM_MAX_BYTES];
    let parsed = parse(first, word, &mut payload)?;
    let len_bytes = match parsed {
        Parsed::Frame(_, Found::Inline(len_bytes)) => len_bytes,
        Parsed::Frame(_, Found::Outside(_)) | Parsed::Piece(_) => 0,
    };
    Ok((parsed, payload[..len_bytes].to_vec()))
}

#[test]
fn the_layout_is_what_the_documentation_says() {
    let both = message(10, Some(0x0304), Some(0x0506), Awaits::Arrival);
    let cases: [(Header, Payload<'_>, &[u64]); 25] = [
        (
            Header::Message(both),
            Payload::Inline(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            &[0x000a_0701_0000_beef, 0x0304, 0x0506, 0x0807_0605_0403_0201, 0x0a09],
        ),
        (
            Header::Message(message(0, None, None, Awaits::Nothing)),
            Payload::Inline(&[]),
            &[0x0000_0001_0000_beef],
        ),
        (
            Header::Message(message(57, None, None, Awaits::Nothing)),
            Payload::Outside(57),
            &[0x0039_2001_0000_beef],
        ),
        (
            Header::Message(message(0x0001_0000, Some(5), None, Awaits::Match)),
            Payload::Outside(PIECE_MAX_BYTES),
            &[0x8000_e101_0000_beef, 5, 0x0001_0000],
        ),
        (Ack { received: u64::MAX }, Payload::Inline(&[]), &[0x0000_0002_0000_beef, u64::MAX]),
        (
            Request { message: both, op: 9, remote_bytes: 2 },
            Payload::Inline(&[7, 8]),
            &[0x0002_0703_0000_beef, 9, 0x0304, 0x0506, 10, 0x0807],
        ),
        (Clear { op: 9, cannot_pull: true }, Payload::Inline(&[]), &[0x0000_0804_0000_beef, 9]),
        (Data { op: 9, len_bytes: 1 }, Payload::Inline(&[6]), &[0x0001_0005_0000_beef, 9, 6]),
        (Done { op: 9, fault: true }, Payload::Inline(&[]), &[0x0000_1006_0000_beef, 9]),
        (Matched { number: 9 }, Payload::Inline(&[]), &[0x0000_0007_0000_beef, 9]),
        (Credit { granted_bytes: 9 }, Payload::Inline(&[]), &[0x0000_0008_0000_beef, 9]),
        (Fence { matched: true }, Payload::Inline(&[]), &[0x0000_8009_0000_beef]),
        (Fenced, Payload::Inline(&[]), &[0x0000_000a_0000_beef]),
        (rma(10, RmaKind::Read), Payload::Inline(&[]), &[0x0000_000c_0000_beef, 9, 5, 6, 10]),
        (
            rma(2, RmaKind::Write { data: Some(3) }),
            Payload::Inline(&[7, 8]),
            &[0x0002_020d_0000_beef, 9, 5, 6, 3, 0x0807],
        ),
        (
            rma(10, RmaKind::Offer { data: None, remote_bytes: 1 }),
            Payload::Inline(&[7]),
            &[0x0001_000e_0000_beef, 9, 5, 6, 10, 7],
        ),
        (
            durable(rma(2, RmaKind::Write { data: Some(3) }), Durable::Written),
            Payload::Inline(&[7, 8]),
            &[0x0002_0a0d_0000_beef, 9, 5, 6, 3, 0x0807],
        ),
        (
            durable(rma(10, RmaKind::Offer { data: None, remote_bytes: 1 }), Durable::Everything),
            Payload::Inline(&[7]),
            &[0x0001_100e_0000_beef, 9, 5, 6, 10, 7],
        ),
        (
            Header::Shown(Shown { key: 5, address: 6, len_bytes: 10, access: 9, remote_bytes: 1 }),
            Payload::Inline(&[7]),
            &[0x0001_0028_0000_beef, 9, 5, 6, 10, 7],
        ),
        (ReadData { op: 9, len_bytes: 1 }, Payload::Inline(&[6]), &[0x0001_000f_0000_beef, 9, 6]),
        (
            Answer { op: 9, outcome: Outcome::Refused(Refusal::Access) },
            Payload::Inline(&[]),
            &[0x0000_0012_0000_beef, 9],
        ),
        (
            atomic(AtomicKind::Fetch, AtomicOp::Prod, Datatype::Uint16, 1),
            Payload::Inline(&[7, 8]),
            &[0x0002_0020_0000_beef, 9, 5, 6, 0x0001_0303_0000_0001, 0x0807],
        ),
        (
            atomic(AtomicKind::Base, AtomicOp::Write, Datatype::Int8, ATOMIC_MAX_BYTES),
            Payload::Outside(PIECE_MIN_BYTES),
            &[0x1000_6020_0000_beef, 9, 5, 6, 0x0000_0b00_0000_4000, 0x4000],
        ),
        (
            Connection(Handshake { step: HandshakeStep::Reject, number: 9, data_bytes: 2 }),
            Payload::Inline(&[7, 8]),
            &[0x0002_0032_0000_beef, 9, 0x0807],
        ),
        (
            Connection(Handshake { step: HandshakeStep::Request, number: 9, data_bytes: 256 }),
            Payload::Outside(256),
            &[0x0100_2030_0000_beef, 9],
        ),
    ];
    for (header, payload, unchecked) in cases {
        let mut words = emitted(SEQUENCE, &header, payload);
        let header_words = LINE_WORDS - 1 - room_bytes(&header) / WORD_BYTES;
        let header_words =
            header_words + usize::from(unchecked[0] & 0x60 << field::FLAGS == 0x60 << field::FLAGS);
        let [check, words_check] = [field::CHECK, field::WORDS_CHECK].map(|at| (words[0] >> at) as u8);
        let expected = words[1..=header_words].iter().fold(0_u64, |check, word| check.rotate_left(3) ^ word);
        assert_eq!(words_check, expected.to_le_bytes().into_iter().fold(0x5a, |check, byte| check ^ byte));
        assert_eq!(
            words[0].to_le_bytes().into_iter().fold(0, |check, byte| check ^ byte),
            0xa5,
            "{check:#x}"
        );
        assert_eq!(parsed(&words).map(|(parsed, _)| matches!(parsed, Parsed::Frame(..))), Ok(true));
        words[0] &= !(0xffff << field::CHECK);
        assert_eq!(words, unchecked, "{header:?}");
        let words = &emitted(SEQUENCE, &header, payload)[..];
        let (found, inline) = match payload {
            Payload::Inline(bytes) => (Found::Inline(bytes.len()), bytes),
            Payload::Outside(piece_bytes) => (Found::Outside(piece_bytes), &[][..]),
        };
        assert_eq!(parsed(words), Ok((Parsed::Frame(header, found), inline.to_vec())));
    }
    let piece = emit_piece(SEQUENCE, 0x1234);
    // The check of no words, and what makes all bytes of this word 0xa5.
    assert_eq!(piece, 0x1234_000b_5a83_beef);
    assert_eq!(parsed(&[piece]), Ok((Parsed::Piece(0x1234), vec![])));
    assert_eq!(sequence_of(piece), SEQUENCE);
}

fn atomic(kind: AtomicKind, op: AtomicOp, datatype: Datatype, count: usize) -> Header {
    let form = AtomicForm::new(kind, op, datatype, count).unwrap();
    Header::Atomic(Atomic { op: 9, key: 5, address: 6, form })
}

#[test]
fn two_operands_of_a_compare_and_swap_are_in_its_line() {
    let swap = atomic(AtomicKind::Compare, AtomicOp::Cswap, Datatype::Uint64, 1);
    assert_eq!((room_bytes(&swap), swap.payload_len_bytes()), (24, 16));
}

fn rma(len_bytes: u64, kind: RmaKind) -> Header {
    Header::Rma(Rma { op: 9, key: 5, address: 6, len_bytes, kind, durable: Durable::Nothing })
}

fn durable(header: Header, durable: Durable) -> Header {
    let Header::Rma(rma) = header else { panic!("{header:?} writes nothing") };
    Header::Rma(Rma { durable, ..rma })
}

#[test]
fn a_tagged_message_leaves_room_for_48_bytes() {
    let room = |tag, data| room_bytes(&Header::Message(message(0, tag, data, Awaits::Nothing)));
    assert_eq!([room(None, None), room(Some(1), None), room(Some(1), Some(1))], [56, 48, 40]);
}

#[test]
fn what_no_correct_producer_writes_is_refused() {
    let (least, most) = (PIECE_MIN_BYTES as u64, PIECE_MAX_BYTES as u64);
    let word = |len: u64, flags: u64, kind: u64| len << 48 | flags << 40 | kind << 32;
    let cases: [(&[u64], WireError); 73] = [
        (&[0], WireError::UnknownKind),
        (&[u64::MAX], WireError::UnknownKind),
        (&[word(0, 0, 23)], WireError::UnknownKind),
        (&[word(0, 0, 47)], WireError::UnknownKind),
        (&[word(0, 0, 53)], WireError::UnknownKind),
        (&[word(0, 8, 1)], WireError::UnknownFlag),
        (&[word(0, 0x10, 1)], WireError::UnknownFlag),
        (&[word(0, 1, 2)], WireError::UnknownFlag),
        (&[word(60, 0x20, 2)], WireError::UnknownFlag),
        (&[word(0, 0x40, 3)], WireError::UnknownFlag),
        (&[word(64, 0x60, 3)], WireError::UnknownFlag),
        (&[word(0, 0x10, 4)], WireError::UnknownFlag),
        (&[word(0, 4, 5)], WireError::UnknownFlag),
        (&[word(0, 8, 6)], WireError::UnknownFlag),
        (&[word(0, 0x80, 7)], WireError::UnknownFlag),
        (&[word(0, 1, 8)], WireError::UnknownFlag),
        (&[word(0, 4, 9)], WireError::UnknownFlag),
        (&[word(0, 0x80, 10)], WireError::UnknownFlag),
        (&[word(100, 1, 11)], WireError::UnknownFlag),
        (&[word(0, 2, 12)], WireError::UnknownFlag),
        (&[word(64, 0x20, 12)], WireError::UnknownFlag),
        (&[word(0, 1, 13)], WireError::UnknownFlag),
        (&[word(0, 0x80, 14)], WireError::UnknownFlag),
        (&[word(0, 0x40, 14)], WireError::UnknownFlag),
        (&[word(0, 2, 15)], WireError::UnknownFlag),
        (&[word(0, 2, 16)], WireError::UnknownFlag),
        (&[word(0, 0x20, 20)], WireError::UnknownFlag),
        (&[word(0, 1, 48)], WireError::UnknownFlag),
        (&[word(0, 0x40, 49)], WireError::UnknownFlag),
        // Who waits, waits for one thing.
        (&[word(0, 0x84, 1)], WireError::UnknownFlag),
        (&[word(100, 0xa4, 1)], WireError::UnknownFlag),
        (&[word(0, 0x84, 3), 0, 0], WireError::UnknownFlag),
        (&[word(0, 0x84, 9)], WireError::UnknownFlag),
        // And so is there one thing to be durable.
        (&[word(0, 0x18, 13)], WireError::UnknownFlag),
        (&[word(0, 0x18, 14)], WireError::UnknownFlag),
        // There are further pieces only after a first.
        (&[word(8, 0x40, 1), 0], WireError::UnknownFlag),
        // Payload where there is none.
        (&[word(1, 0, 2), 0, 0], WireError::ImpossibleLength),
        (&[word(1, 0, 4), 0, 0], WireError::ImpossibleLength),
        (&[word(1, 0, 6), 0, 0], WireError::ImpossibleLength),
        (&[word(1, 0, 7), 0, 0], WireError::ImpossibleLength),
        (&[word(1, 0x80, 9), 0], WireError::ImpossibleLength),
        (&[word(1, 0, 12)], WireError::ImpossibleLength),
        (&[word(1, 0, 17)], WireError::ImpossibleLength),
        (&[word(1, 0, 51), 0, 0], WireError::ImpossibleLength),
        (&[word(1, 0, 52), 0, 0], WireError::ImpossibleLength),
        (&[word(257, 0x20, 48), 0], WireError::ImpossibleLength),
        // More than there is room for, or outside although there is room.
        (&[word(57, 0, 1)], WireError::ImpossibleLength),
        (&[word(49, 0, 5), 0], WireError::ImpossibleLength),
        (&[word(25, 7, 3), 0, 0, 0, 0], WireError::ImpossibleLength),
        (&[word(25, 2, 13)], WireError::ImpossibleLength),
        (&[word(24, 0x22, 13)], WireError::ImpossibleLength),
        (&[word(56, 0x20, 1)], WireError::ImpossibleLength),
        (&[word(0, 0x20, 1)], WireError::ImpossibleLength),
        // Descriptions and messages that are too long.
        (&[word(65, 0x20, 3), 0, 0], WireError::ImpossibleLength),
        (&[word(256, 0x20, 3), 0, 0], WireError::ImpossibleLength),
        (&[word(0, 0, 3), 0, MESSAGE_MAX_BYTES + 1], WireError::ImpossibleLength),
        (&[word(0, 0, 12), 0, 0, 0, MESSAGE_MAX_BYTES + 1], WireError::ImpossibleLength),
        (&[word(most, 0x60, 1), MESSAGE_MAX_BYTES + 1], WireError::ImpossibleLength),
        // Pieces that are too large or too small, or not the first of several.
        (&[word(most + 1, 0x20, 1)], WireError::ImpossibleLength),
        (&[word(least - 1, 0x60, 1), 2 * most], WireError::ImpossibleLength),
        (&[word(least, 0x60, 1), least], WireError::ImpossibleLength),
        // What is not payload is zero.
        (&[word(1, 0, 1), 0x0100], WireError::ReservedNotZero),
        // Atomic operations that there are not, and such whose payload is of another length.
        (&[word(0, 2, 32)], WireError::UnknownFlag),
        (&[word(0, 0, 32), 0, 0, 0, 16 << 32 | 1], WireError::UnknownOperation),
        (&[word(0, 0, 32), 0, 0, 0, 19 << 40 | 1], WireError::UnknownOperation),
        (&[word(0, 0, 32), 0, 0, 0, 3 << 48 | 1], WireError::UnknownOperation),
        (&[word(0, 0, 32), 0, 0, 0, 10 << 40 | 1], WireError::UnknownOperation),
        (&[word(0, 0, 32), 0, 0, 0, ATOMIC_MAX_BYTES as u64 + 1], WireError::ImpossibleLength),
        (&[word(2, 0, 32), 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[word(1, 0, 32), 0, 0, 0, 1 << 48 | 10 << 40 | 1], WireError::ImpossibleLength),
        (&[word(25, 0, 32), 0, 0, 0, 25], WireError::ImpossibleLength),
        (&[word(24, 0x20, 32), 0, 0, 0, 24], WireError::ImpossibleLength),
        (&[word(least, 0x60, 32), 0, 0, 0, least + 2, least + 1], WireError::ImpossibleLength),
    ];
    for (words, reason) in cases {
        // Not all of them have the words that they say they have.
        let word = |n: usize| words.get(n).copied().unwrap_or(0);
        let first = sealed(words[0], word);
        assert_eq!(found(first, word), Err(reason), "{words:#x?}");
    }
}

fn any_message(len_bytes: impl Strategy<Value = u64>) -> impl Strategy<Value = Message> {
    let awaits = prop::sample::select(vec![Awaits::Nothing, Awaits::Arrival, Awaits::Match]);
    (len_bytes, any::<Option<u64>>(), any::<Option<u64>>(), awaits)
        .prop_map(|(len_bytes, tag, data, awaits)| Message { len_bytes, tag, data, awaits })
}

fn any_header() -> impl Strategy<Value = Header> {
    let any_len = || prop_oneof![0_u64..100, 0..=3 * PIECE_MAX_BYTES as u64, 0..=MESSAGE_MAX_BYTES];
    prop_oneof![
        3 => any_message(any_len()).prop_map(Header::Message),
        1 => any::<u64>().prop_map(|received| Ack { received }),
        2 => (any_message(any_len()), any::<u64>(), 0..=REMOTE_MAX_BYTES as u8)
            .prop_map(|(message, op, remote_bytes)| Request { message, op, remote_bytes }),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(op, cannot_pull)| Clear { op, cannot_pull }),
        2 => (any::<u64>(), any_len()).prop_map(|(op, len_bytes)| Data { op, len_bytes }),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(op, fault)| Done { op, fault }),
        1 => any::<u64>().prop_map(|number| Matched { number }),
        1 => any::<u64>().prop_map(|granted_bytes| Credit { granted_bytes }),
        1 => any::<bool>().prop_map(|matched| Fence { matched }),
        1 => Just(Fenced),
        3 => any_atomic(),
        3 => (any::<[u64; 3]>(), any_len(), any_rma_kind(), any_durable()).prop_map(
            |([op, key, address], len_bytes, kind, durable)| {
                let durable = if kind == RmaKind::Read { Durable::Nothing } else { durable };
                Header::Rma(Rma { op, key, address, len_bytes, kind, durable })
            },
        ),
        1 => (any::<u64>(), any_len()).prop_map(|(op, len_bytes)| ReadData { op, len_bytes }),
        1 => (any::<u64>(), 0..7_u8)
            .prop_map(|(op, number)| Answer { op, outcome: Outcome::from_number(number).unwrap() }),
        1 => (prop::sample::select(HandshakeStep::ALL.to_vec()), any::<u64>(), any::<u16>()).prop_map(
            |(step, number, choice)| {
                let data_bytes = choice % (step.data_max_bytes() as u16 + 1);
                Connection(Handshake { step, number, data_bytes })
            },
        ),
    ]
}

fn any_atomic() -> impl Strategy<Value = Header> {
    let may_be =
        (any::<[u64; 3]>(), 0..3_u32, 0..19_u32, 0..16_u32, prop_oneof![1..4_usize, 1..=ATOMIC_MAX_BYTES]);
    may_be.prop_filter_map(
        "there is no such operation",
        |([op, key, address], kind, what, datatype, count)| {
            let (kind, what) = (AtomicKind::from_number(kind)?, AtomicOp::from_number(what)?);
            let form = AtomicForm::new(kind, what, Datatype::from_number(datatype)?, count)?;
            Some(Header::Atomic(Atomic { op, key, address, form }))
        },
    )
}

fn any_durable() -> impl Strategy<Value = Durable> {
    prop_oneof![Just(Durable::Nothing), Just(Durable::Written), Just(Durable::Everything)]
}

fn any_rma_kind() -> impl Strategy<Value = RmaKind> {
    prop_oneof![
        Just(RmaKind::Read),
        any::<Option<u64>>().prop_map(|data| RmaKind::Write { data }),
        (any::<Option<u64>>(), 0..=REMOTE_MAX_BYTES as u8)
            .prop_map(|(data, remote_bytes)| RmaKind::Offer { data, remote_bytes }),
    ]
}

/// Lines of every kind, with every flag, and with numbers of which each byte is something else.
fn samples() -> Vec<Vec<u64>> {
    const NUMBER: u64 = 0x0123_4567_89ab_cdef;
    const SHORT: [u8; 8] = [0x80; 8];
    let mut lines = vec![];
    let mut add = |header: Header, payload: Payload<'_>| {
        for sequence in [0, SEQUENCE, u16::MAX] {
            lines.push(emitted(sequence, &header, payload));
        }
    };
    let none = Payload::Inline(&[]);
    add(Fenced, none);
    for number in [0, 1, NUMBER, u64::MAX] {
        add(Ack { received: number }, none);
        add(Matched { number }, none);
        add(Credit { granted_bytes: number }, none);
        for outcome in (0..).map_while(Outcome::from_number) {
            add(Answer { op: number, outcome }, none);
        }
        for step in HandshakeStep::ALL {
            add(Connection(Handshake { step, number, data_bytes: 0 }), none);
            if step.data_max_bytes() > 0 {
                let handshake = |data_bytes| Connection(Handshake { step, number, data_bytes });
                add(handshake(8), Payload::Inline(&SHORT));
                add(handshake(256), Payload::Outside(256));
            }
        }
        for is_so in [false, true] {
            add(Clear { op: number, cannot_pull: is_so }, none);
            add(Done { op: number, fault: is_so }, none);
            add(Fence { matched: is_so }, none);
        }
        let mut atomic = |kind, what, datatype, count, payload| {
            let form = AtomicForm::new(kind, what, datatype, count).unwrap();
            add(Header::Atomic(Atomic { op: number, key: !number, address: number, form }), payload);
        };
        atomic(AtomicKind::Fetch, AtomicOp::Read, Datatype::LongDouble, 300, none);
        atomic(AtomicKind::Base, AtomicOp::Sum, Datatype::Int16, 4, Payload::Inline(&SHORT));
        atomic(AtomicKind::Compare, AtomicOp::Mswap, Datatype::Uint32, 1, Payload::Inline(&SHORT));
        atomic(AtomicKind::Fetch, AtomicOp::Bxor, Datatype::Uint8, 100, Payload::Outside(100));
        let halves = Payload::Outside(ATOMIC_MAX_BYTES);
        atomic(AtomicKind::Compare, AtomicOp::CswapGe, Datatype::Double, ATOMIC_MAX_BYTES / 8, halves);
        for (len_bytes, payload) in [
            (0, none),
            (SHORT.len(), Payload::Inline(&SHORT)),
            (100, Payload::Outside(100)),
            (PIECE_MAX_BYTES, Payload::Outside(PIECE_MAX_BYTES)),
            (1 << 40, Payload::Outside(PIECE_MIN_BYTES)),
        ] {
            let len = len_bytes as u64;
            add(Data { op: number, len_bytes: len }, payload);
            add(ReadData { op: number, len_bytes: len }, payload);
            let rma = |kind, durable| {
                let [op, key, address] = [number, !number, number];
                Header::Rma(Rma { op, key, address, len_bytes: len, kind, durable })
            };
            add(rma(RmaKind::Read, Durable::Nothing), none);
            let shown = |remote_bytes| {
                Header::Shown(Shown {
                    key: !number,
                    address: number,
                    len_bytes: len,
                    access: number,
                    remote_bytes,
                })
            };
            add(shown(8), Payload::Inline(&SHORT));
            add(shown(64), Payload::Outside(64));
            let durable = [Durable::Nothing, Durable::Written, Durable::Everything];
            for (data, durable) in
                [None, Some(number)].into_iter().flat_map(|data| durable.map(|it| (data, it)))
            {
                add(rma(RmaKind::Write { data }, durable), payload);
                add(rma(RmaKind::Offer { data, remote_bytes: 8 }, durable), Payload::Inline(&SHORT));
                add(rma(RmaKind::Offer { data, remote_bytes: 64 }, durable), Payload::Outside(64));
            }
            for awaits in [Awaits::Nothing, Awaits::Arrival, Awaits::Match] {
                for (tag, data) in
                    [(None, None), (Some(number), None), (None, Some(number)), (Some(!number), Some(number))]
                {
                    let message = message(len_bytes, tag, data, awaits);
                    add(Header::Message(message), payload);
                    add(Request { message, op: number, remote_bytes: 8 }, Payload::Inline(&SHORT));
                    add(Request { message, op: number, remote_bytes: 64 }, Payload::Outside(64));
                }
            }
        }
    }
    for piece_bytes in [1, PIECE_MIN_BYTES, PIECE_MAX_BYTES] {
        lines.push(vec![emit_piece(SEQUENCE, piece_bytes)]);
    }
    lines
}

#[test]
fn no_change_of_a_byte_of_a_header_passes_unnoticed() {
    for line in samples() {
        let (parsed, _) = parsed(&line).unwrap();
        let header_words = match parsed {
            Parsed::Frame(_, Found::Inline(len_bytes)) => line.len() - len_bytes.div_ceil(WORD_BYTES),
            Parsed::Frame(_, Found::Outside(_)) | Parsed::Piece(_) => line.len(),
        };
        for at in 0..header_words * WORD_BYTES {
            for change in 1..=u64::from(u8::MAX) {
                let mut changed = line.clone();
                changed[at / WORD_BYTES] ^= change << (at % WORD_BYTES * 8);
                // What other lines have left behind the line may be anything.
                let word = |n: usize| changed.get(n).copied().unwrap_or(0x5555_5555_5555_5555);
                let found = found(changed[0], word);
                assert!(found.is_err(), "byte {at} of {parsed:?}, changed by {change:#x}: {found:?}");
                assert!(at >= WORD_BYTES || !is_sound(changed[0]));
            }
        }
    }
}

#[test]
fn what_is_in_the_place_of_a_line_that_is_still_to_come_is_known() {
    let lap = LINES as u64;
    assert!(is_awaited(0, 0) && is_awaited(0, lap - 1));
    assert!(!is_awaited(0, lap) && !is_awaited(1, 0));
    for position in [lap, 2 * lap - 1, 5 * lap + 3, 1 << 16, (1 << 32) - 1] {
        let before = emit_piece(sequence(position - lap), 5);
        assert!(is_awaited(before, position));
        for bit in 0..u64::BITS {
            assert!(!is_awaited(before ^ 1 << bit, position), "bit {bit}");
        }
        let next = emit_piece(sequence(position), 5);
        assert_ne!(sequence_of(before), sequence_of(next));
        for at in 0..2 {
            for change in 1..=u64::from(u8::MAX) {
                assert!(!is_awaited(next ^ change << (8 * at), position), "its sequence number was changed");
            }
        }
    }
}

proptest! {
    #[test]
    fn a_frame_comes_back(
        header in any_header(),
        bytes in prop::collection::vec(any::<u8>(), ROOM_MAX_BYTES),
        piece_bytes in PIECE_MIN_BYTES..=PIECE_MAX_BYTES,
        sequence: u16,
    ) {
        let len_bytes = header.payload_len_bytes();
        let (payload, found, inline) = if len_bytes <= room_bytes(&header) as u64 {
            let bytes = &bytes[..len_bytes as usize];
            (Payload::Inline(bytes), Found::Inline(bytes.len()), bytes)
        } else {
            let piece_bytes = piece_bytes.min(usize::try_from(len_bytes).unwrap());
            (Payload::Outside(piece_bytes), Found::Outside(piece_bytes), &[][..])
        };
        let emitted = emitted(sequence, &header, payload);
        prop_assert_eq!(sequence_of(emitted[0]), sequence);
        prop_assert_eq!(parsed(&emitted), Ok((Parsed::Frame(header, found), inline.to_vec())));
    }

    /// What is accepted is what would have been written.
    #[test]
    fn there_is_one_form_of_everything(
        words in prop::array::uniform8(prop_oneof![Just(0_u64), 0_u64..100, 0..=2 * PIECE_MAX_BYTES as u64, any::<u64>()]),
        (kind, flags) in (prop_oneof![6 => 1_u64..22, 1 => Just(32), 1 => 48_u64..54], prop_oneof![Just(0_u64), Just(0x20), Just(0x60), Just(0x80), 0_u64..256]),
        len in prop_oneof![0_u64..100, 0..=u64::from(u16::MAX)],
        is_sealed in prop_oneof![9 => Just(true), 1 => Just(false)],
    ) {
        let first = len << field::LEN | flags << field::FLAGS | kind << field::KIND | words[0] & u64::from(u32::MAX);
        let first = if is_sealed { sealed(first, |n| words[n]) } else { first };
        let word = |n: usize| if n == 0 { first } else { words[n] };
        let Ok((parsed, payload)) = found(first, word) else { return Ok(()) };
        let sequence = sequence_of(first);
        let emitted = match &parsed {
            Parsed::Frame(header, Found::Inline(_)) => emitted(sequence, header, Payload::Inline(&payload)),
            Parsed::Frame(header, Found::Outside(piece_bytes)) => {
                emitted(sequence, header, Payload::Outside(*piece_bytes))
            }
            Parsed::Piece(piece_bytes) => vec![emit_piece(sequence, *piece_bytes)],
        };
        for (n, &emitted) in emitted.iter().enumerate() {
            prop_assert_eq!(emitted, word(n), "word {}", n);
        }
    }
}
