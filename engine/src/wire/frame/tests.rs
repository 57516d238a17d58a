use proptest::prelude::*;

use super::*;
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::wire::Refusal;
use crate::wire::Shown;
use crate::wire::testing::any_header;

fn emitted(header: &Header) -> Vec<u8> {
    let mut buffer = [0xa5; HEADER_MAX_BYTES];
    let len_bytes = emit(header, &mut buffer);
    assert!(buffer[len_bytes..].iter().all(|&byte| byte == 0xa5), "wrote beyond the header");
    buffer[..len_bytes].to_vec()
}

#[test]
fn the_layout_is_what_the_documentation_says() {
    let message =
        Message { len_bytes: 0x0102, tag: Some(0x0304), data: Some(0x0506 << 48), awaits: Awaits::Arrival };
    // The checks are in the place of the third and fourth byte: one over the two before, one over the words that follow.
    let cases: [(Header, &[u8]); 15] = [
        (
            Header::Message(message),
            &[
                0x71,
                0,
                0xa5 ^ 0x71,
                WORDS,
                2,
                1,
                0,
                0,
                0,
                0,
                0,
                0, // fixed
                4,
                3,
                0,
                0,
                0,
                0,
                0,
                0, // tag
                0,
                0,
                0,
                0,
                0,
                0,
                6,
                5, // data
            ],
        ),
        (
            Header::Ack { received: u64::MAX - 1 },
            &[2, 0, 0xa5 ^ 2, 0x5b, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ),
        (
            Header::Request { message, op: 9, remote_bytes: 16 },
            &[
                0x73,
                16,
                0xa5 ^ 0x73 ^ 1,
                WORDS_OF_REQUEST,
                2,
                1,
                0,
                0,
                0,
                0,
                0,
                0, // fixed
                9,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // op
                4,
                3,
                0,
                0,
                0,
                0,
                0,
                0, // tag
                0,
                0,
                0,
                0,
                0,
                0,
                6,
                5, // data
            ],
        ),
        (Header::Clear { op: 9, cannot_pull: true }, &[0x44, 0, 0xe1, 0x53, 9, 0, 0, 0, 0, 0, 0, 0]),
        (
            Header::Data { op: 9, len_bytes: 0x0102 },
            &[5, 0, 0xa0, 0x5a ^ (3 << 3) ^ 9, 2, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        ),
        (Header::Done { op: 9, fault: true }, &[0x46, 0, 0xe3, 0x53, 9, 0, 0, 0, 0, 0, 0, 0]),
        (Header::Matched { number: 9 }, &[7, 0, 0xa2, 0x53, 9, 0, 0, 0, 0, 0, 0, 0]),
        (Header::Credit { granted_bytes: 9 }, &[8, 0, 0xad, 0x53, 9, 0, 0, 0, 0, 0, 0, 0]),
        (Header::Fence { matched: true }, &[0x89, 0, 0x2c, 0x5a, 0, 0, 0, 0, 0, 0, 0, 0]),
        (Header::Fenced, &[10, 0, 0xaf, 0x5a, 0, 0, 0, 0, 0, 0, 0, 0]),
        (
            Header::Rma(Rma {
                op: 9,
                key: 5,
                address: 6,
                len_bytes: 2,
                kind: RmaKind::Offer { data: Some(7), remote_bytes: 16 },
                durable: Durable::Nothing,
            }),
            &[
                0x6b,
                16,
                0xa5 ^ 0x6b ^ 1,
                WORDS_OF_RMA,
                2,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // fixed
                9,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // op
                5,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // key
                6,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // address
                7,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // data
            ],
        ),
        (
            Header::ReadData { op: 9, len_bytes: 0x0102 },
            &[12, 0, 0xa9, 0x5a ^ (3 << 3) ^ 9, 2, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Header::Answer { op: 9, outcome: Outcome::Refused(Refusal::Range) },
            &[0x3d, 0, 0x98, 0x53, 9, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Header::Atomic(Atomic {
                op: 9,
                key: 5,
                address: 6,
                form: AtomicForm::new(AtomicKind::Fetch, AtomicOp::Prod, Datatype::Uint16, 0x0102).unwrap(),
            }),
            &[
                14,
                0,
                0xa5 ^ 14,
                WORDS_OF_ATOMIC,
                2,
                1,
                0,
                0,
                3,
                3,
                1,
                0, // fixed
                9,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // op
                5,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // key
                6,
                0,
                0,
                0,
                0,
                0,
                0,
                0, // address
            ],
        ),
        (
            Header::Connection(Handshake { step: HandshakeStep::Reject, number: 9, data_bytes: 0x0100 }),
            &[0x2f, 0, 0x8a, 0x5a ^ (1 << 3) ^ 9, 0, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        ),
    ];
    for (header, bytes) in cases {
        assert_eq!(emitted(&header), bytes, "{header:?}");
    }
    /// The bytes of each word, all taken together, and turned by 3 bits for each word after it.
    const WORDS: u8 = 0x5a ^ 3_u8.rotate_left(6) ^ 7_u8.rotate_left(3) ^ 3;
    const WORDS_OF_RMA: u8 =
        0x5a ^ 2_u8.rotate_left(12) ^ 9_u8.rotate_left(9) ^ 5_u8.rotate_left(6) ^ 6_u8.rotate_left(3) ^ 7;
    const WORDS_OF_ATOMIC: u8 = 0x5a ^ 2_u8.rotate_left(9) ^ 9_u8.rotate_left(6) ^ 5_u8.rotate_left(3) ^ 6;
    const WORDS_OF_REQUEST: u8 = 0x5a ^ 3_u8.rotate_left(9) ^ 9_u8.rotate_left(6) ^ 7_u8.rotate_left(3) ^ 3;
}

/// The start of a header, with the check that its first two bytes have.
fn with_check(start: &[u8]) -> Vec<u8> {
    let mut bytes = start.to_vec();
    if let [form, remote_bytes, check, ..] = &mut bytes[..] {
        *check = form_check(*form, *remote_bytes);
    }
    bytes
}

#[test]
fn what_no_correct_peer_sends_is_refused() {
    let cases: &[(&[u8], WireError)] = &[
        (&[0], WireError::UnknownKind),
        (&[0xc1], WireError::UnknownFlag),
        (&[0xc3], WireError::UnknownFlag),
        (&[0x49], WireError::UnknownFlag),
        (&[0x14], WireError::UnknownFlag),
        (&[0x84], WireError::UnknownFlag),
        (&[0x15], WireError::UnknownFlag),
        (&[0x26], WireError::UnknownFlag),
        (&[0x12], WireError::UnknownFlag),
        (&[0x42], WireError::UnknownFlag),
        (&[0x87], WireError::UnknownFlag),
        (&[0x48], WireError::UnknownFlag),
        (&[0x8a], WireError::UnknownFlag),
        (&[0x3b], WireError::UnknownFlag),
        (&[0x7b], WireError::UnknownFlag),
        (&[0x1c], WireError::UnknownFlag),
        (&[0x7d], WireError::UnknownFlag),
        (&[0x8d], WireError::UnknownFlag),
        (&[0x5f], WireError::UnknownFlag),
        (&[0xff], WireError::UnknownFlag),
        (&[0x1e], WireError::UnknownFlag),
        (&[14, 1], WireError::ImpossibleLength),
        // Of one byte each: a datatype, an operation and a kind that there is not, and bits that nothing has.
        (&[14, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0], WireError::UnknownOperation),
        (&[14, 0, 0, 0, 1, 0, 0, 0, 0, 19, 0, 0], WireError::UnknownOperation),
        (&[14, 0, 0, 0, 1, 0, 0, 0, 0, 2, 3, 0], WireError::UnknownOperation),
        (&[14, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 1], WireError::UnknownOperation),
        // The least complex number, a comparison that fetches nothing, and bits of a number that is no integer.
        (&[14, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0], WireError::UnknownOperation),
        (&[14, 0, 0, 0, 1, 0, 0, 0, 0, 12, 0, 0], WireError::UnknownOperation),
        (&[14, 0, 0, 0, 1, 0, 0, 0, 8, 6, 0, 0], WireError::UnknownOperation),
        // More elements than there may be.
        (&[14, 0, 0, 0, 1, 8, 0, 0, 7, 2, 0, 0], WireError::ImpossibleLength),
        (&[14, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0], WireError::ImpossibleLength),
        (&[11, 1], WireError::ImpossibleLength),
        (&[0x4b, 65], WireError::ImpossibleLength),
        (&[0x5b, 65], WireError::ImpossibleLength),
        (&[0x1b, 1], WireError::ImpossibleLength),
        (&[11, 0, 0, 0, 0, 0, 0, 0, 0, 2], WireError::ImpossibleLength),
        (&[12, 0, 0, 0, 0, 0, 0, 0, 0, 2], WireError::ImpossibleLength),
        (&[13, 1], WireError::ImpossibleLength),
        (&[15, 1], WireError::ImpossibleLength),
        (&[15, 0, 0, 0, 1, 1], WireError::ImpossibleLength),
        (&[15, 0, 0, 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[0x3f, 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[0x4f, 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[1, 1], WireError::ImpossibleLength),
        (&[3, 65], WireError::ImpossibleLength),
        (&[5, 1], WireError::ImpossibleLength),
        (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 2], WireError::ImpossibleLength),
        (&[5, 0, 0, 0, 0, 0, 0, 0, 0, 2], WireError::ImpossibleLength),
        (&[1, 0, 0, 0, 1, 0, 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[9, 0, 0, 0, 1], WireError::ImpossibleLength),
        (&[10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], WireError::ImpossibleLength),
    ];
    for (bytes, reason) in cases {
        let bytes = with_check(bytes);
        assert_eq!(parse(&bytes), Err(*reason), "{bytes:?}");
        let before = &bytes[..bytes.len() - 1];
        assert_eq!(parse(before), Ok(None), "{before:?} is not yet bad");
    }
}

/// Headers of every kind, with every flag, and with numbers of which each byte is something else.
fn samples() -> Vec<Header> {
    const NUMBER: u64 = 0x0123_4567_89ab_cdef;
    let mut headers = vec![Header::Fenced];
    for number in [0, 1, NUMBER, u64::MAX] {
        headers.push(Header::Ack { received: number });
        headers.push(Header::Matched { number });
        headers.push(Header::Credit { granted_bytes: number });
        headers.extend(
            (0..).map_while(Outcome::from_number).map(|outcome| Header::Answer { op: number, outcome }),
        );
        for step in HandshakeStep::ALL {
            for data_bytes in [0, step.data_max_bytes() as u16 / 2 + 1, step.data_max_bytes() as u16] {
                let data_bytes = data_bytes.min(step.data_max_bytes() as u16);
                headers.push(Header::Connection(Handshake { step, number, data_bytes }));
            }
        }
        for is_so in [false, true] {
            headers.push(Header::Clear { op: number, cannot_pull: is_so });
            headers.push(Header::Done { op: number, fault: is_so });
            headers.push(Header::Fence { matched: is_so });
        }
        for datatype in Datatype::ALL {
            let ops = AtomicOp::ALL.into_iter().flat_map(|op| AtomicKind::ALL.map(|kind| (kind, op)));
            let forms = ops.filter_map(|(kind, op)| AtomicForm::new(kind, op, datatype, 0x0102));
            // A few of them: there are many.
            for form in forms.step_by(5) {
                headers.push(Header::Atomic(Atomic { op: number, key: !number, address: number, form }));
            }
        }
        for len_bytes in [0, 0x01_2345, MESSAGE_MAX_BYTES] {
            headers.push(Header::Data { op: number, len_bytes });
            headers.push(Header::ReadData { op: number, len_bytes });
            let mut kinds = vec![RmaKind::Read];
            for data in [None, Some(number)] {
                kinds.push(RmaKind::Write { data });
                let remotes = [0, 1, REMOTE_MAX_BYTES as u8];
                kinds.extend(remotes.map(|remote_bytes| RmaKind::Offer { data, remote_bytes }));
            }
            for remote_bytes in [0, 1, REMOTE_MAX_BYTES as u8] {
                let (key, address, access) = (!number, number, number);
                headers.push(Header::Shown(Shown { key, address, len_bytes, access, remote_bytes }));
            }
            for kind in kinds {
                let [op, key, address] = [number, !number, number];
                for durable in [Durable::Nothing, Durable::Written, Durable::Everything] {
                    if durable == Durable::Nothing || kind != RmaKind::Read {
                        headers.push(Header::Rma(Rma { op, key, address, len_bytes, kind, durable }));
                    }
                }
            }
            for awaits in [Awaits::Nothing, Awaits::Arrival, Awaits::Match] {
                for (tag, data) in
                    [(None, None), (Some(number), None), (None, Some(number)), (Some(!number), Some(number))]
                {
                    let message = Message { len_bytes, tag, data, awaits };
                    headers.push(Header::Message(message));
                    for remote_bytes in [0, 1, REMOTE_MAX_BYTES as u8] {
                        headers.push(Header::Request { message, op: number, remote_bytes });
                    }
                }
            }
        }
    }
    headers
}

#[test]
fn no_change_of_a_byte_passes_unnoticed_whatever_follows() {
    for header in samples() {
        let bytes = emitted(&header);
        for at in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                if byte == bytes[at] {
                    continue;
                }
                let mut changed = bytes.clone();
                changed[at] = byte;
                // As soon as all of the header is there: what follows changes nothing, and nothing need follow.
                let judged = parse(&changed);
                assert!(judged.is_err(), "byte {at} of {header:?} became {byte}: {judged:?}");
            }
        }
    }
}

#[test]
fn what_is_missing_is_waited_for() {
    for header in samples() {
        let bytes = emitted(&header);
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{header:?} cut at {end}");
        }
    }
}

#[test]
fn the_longest_message_is_accepted() {
    let longest = Message { len_bytes: MESSAGE_MAX_BYTES, tag: None, data: None, awaits: Awaits::Nothing };
    let bytes = emitted(&Header::Message(longest));
    assert_eq!(parse(&bytes), Ok(Some((Header::Message(longest), bytes.len()))));
}

proptest! {
    #[test]
    fn a_header_comes_back_whatever_follows(
        header in any_header(),
        rest in proptest::collection::vec(any::<u8>(), 0..32),
    ) {
        let mut bytes = emitted(&header);
        let len_bytes = bytes.len();
        prop_assert_eq!(len_bytes, header_len_bytes(&header));
        bytes.extend(rest);
        prop_assert_eq!(parse(&bytes), Ok(Some((header, len_bytes))));
    }

    #[test]
    fn the_start_of_a_header_is_incomplete(header in any_header()) {
        let bytes = emitted(&header);
        for end in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..end]), Ok(None), "cut at {}", end);
        }
    }

    #[test]
    fn every_byte_matters(header in any_header(), change in 1..=u8::MAX) {
        let bytes = emitted(&header);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            prop_assert!(parse(&changed).is_err(), "byte {}", at);
        }
    }

    #[test]
    fn any_bytes_are_judged_as_early_as_possible(
        form in prop_oneof![4 => (kind::MESSAGE..=kind::CONNECTION, 0_u8..16).prop_map(|(kind, flags)| kind | flags << 4), 1 => any::<u8>()],
        rest in proptest::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..48),
        is_checked: bool,
    ) {
        let mut bytes = [vec![form], rest].concat();
        if is_checked {
            bytes = with_check(&bytes);
        }
        let judged = parse(&bytes);
        if let Ok(Some((header, len_bytes))) = judged {
            prop_assert_eq!(&emitted(&header)[..], &bytes[..len_bytes]);
        }
        for end in 0..bytes.len() {
            match parse(&bytes[..end]) {
                // Of an atomic operation only the whole number says what it is.
                Ok(None) if form & kind::MASK == kind::ATOMIC => {}
                // All but the check of the words can be continued with zeros.
                Ok(None) => {
                    let mut continued = bytes[..end].to_vec();
                    continued.resize(continued.len().max(1), kind::MESSAGE);
                    continued.resize(HEADER_MAX_BYTES, 0);
                    let continued = with_check(&continued);
                    let is_sound = (0..=u8::MAX).any(|check| {
                        let mut continued = continued.clone();
                        continued[field::WORDS_CHECK] = check;
                        matches!(parse(&continued), Ok(Some(_)))
                    });
                    prop_assert!(is_sound, "was bad already");
                }
                early => prop_assert_eq!(early, judged),
            }
        }
    }
}
