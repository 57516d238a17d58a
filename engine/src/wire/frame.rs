//! The layout of a [`Header`] on a byte stream, all numbers little-endian.
//!
//! ```text
//!  offset  0      1       2        3          4        12
//!          +------+-------+--------+----------+--------+---------+---------+---------+ - - - -
//!          | kind | flags | remote | reserved | value  | op      | tag     | data    | payload
//!          +------+-------+--------+----------+--------+---------+---------+---------+ - - - -
//!  bytes   1      1       1        1          8        8         8 if      8 if      as long as
//!                                                                TAGGED    DATA      the header says
//!
//!  kind            flags                   remote       value             op
//!  1  message      TAGGED DATA and either  0            message length    -
//!                  of ARRIVAL MATCH
//!  2  ack          -                       0            count             -
//!  3  request      as a message            its length   message length    yes
//!  4  clear        CANNOT_PULL             0            op                -
//!  5  data         -                       0            message length    yes
//!  6  done         FAULT                   0            op                -
//!  7  matched      -                       0            number            -
//!  8  credit       -                       0            limit in bytes    -
//!  9  fence        MATCH                   0            0                 -
//! 10  fenced       -                       0            0                 -
//! ```
//!
//! Every header has exactly one such form: what [`parse`] accepts is what [`emit`] writes, byte for byte.

use bitflags::bitflags;

use crate::limits::{MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use crate::wire::{Awaits, Header, Message, WireError};

/// The size of the largest header in bytes: a request with tag and data.
pub const HEADER_MAX_BYTES: usize = FIXED_BYTES + 3 * WORD_BYTES;

/// The part that every header has.
const FIXED_BYTES: usize = field::VALUE.end;

/// Operation number, tag and data are this long each.
const WORD_BYTES: usize = size_of::<u64>();

mod field {
    use std::ops::Range;

    pub(super) const KIND: usize = 0;
    pub(super) const FLAGS: usize = 1;
    /// The length of the description of exposed payload, which a request has for its own payload.
    pub(super) const REMOTE: usize = 2;
    pub(super) const RESERVED: usize = 3;
    /// A length in bytes, a count, or the number of an operation.
    pub(super) const VALUE: Range<usize> = 4..12;
}

// `Fixed::read` takes the fixed part apart in this order.
const _: () = assert!(field::KIND == 0 && field::FLAGS == 1 && field::REMOTE == 2);
const _: () = assert!(field::RESERVED == 3 && field::VALUE.start == 4);
const _: () = assert!(field::VALUE.end - field::VALUE.start == size_of::<u64>());
const _: () = assert!(FIXED_BYTES == 12 && HEADER_MAX_BYTES == 36);
const _: () = assert!(REMOTE_MAX_BYTES <= u8::MAX as usize);
// Zero is the kind of no frame, so a stream of zeros is refused at its first byte.
const _: () = assert!(kind::MESSAGE != 0);

mod kind {
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
}

bitflags! {
    /// The flags of a header; which of them it may have depends on its kind.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Flags: u8 {
        /// The tag follows the fixed part.
        const TAGGED = 1 << 0;
        /// Completion data follows the tag, or the fixed part where there is no tag.
        const DATA = 1 << 1;
        /// The sender waits to hear that it has arrived.
        const ARRIVAL = 1 << 2;
        /// The receiver of a request cannot pull.
        const CANNOT_PULL = 1 << 3;
        /// What was exposed could not be read.
        const FAULT = 1 << 4;
        /// The sender waits to hear that it was matched.
        const MATCH = 1 << 5;
    }
}

impl Flags {
    fn of(message: &Message) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::TAGGED, message.tag.is_some());
        flags.set(Flags::DATA, message.data.is_some());
        flags.set(Flags::ARRIVAL, message.awaits == Awaits::Arrival);
        flags.set(Flags::MATCH, message.awaits == Awaits::Match);
        flags
    }

    fn awaits(self) -> Awaits {
        if self.contains(Flags::ARRIVAL) {
            Awaits::Arrival
        } else if self.contains(Flags::MATCH) {
            Awaits::Match
        } else {
            Awaits::Nothing
        }
    }

    fn words(self) -> usize {
        usize::from(self.contains(Flags::TAGGED)) + usize::from(self.contains(Flags::DATA))
    }
}

/// The flags of a message, eager or requested.
const MESSAGE_FLAGS: Flags = Flags::TAGGED.union(Flags::DATA).union(AWAITS_FLAGS);

/// What a sender waits for, of which there is one thing at most.
const AWAITS_FLAGS: Flags = Flags::ARRIVAL.union(Flags::MATCH);

/// The size of a header on the stream in bytes, without the payload.
pub fn header_len_bytes(header: &Header) -> usize {
    let words = match header {
        Header::Message(message) => Flags::of(message).words(),
        Header::Request { message, .. } => 1 + Flags::of(message).words(),
        Header::Data { .. } => 1,
        Header::Ack { .. }
        | Header::Clear { .. }
        | Header::Done { .. }
        | Header::Matched { .. }
        | Header::Credit { .. }
        | Header::Fence { .. }
        | Header::Fenced => 0,
    };
    FIXED_BYTES + words * WORD_BYTES
}

/// Writes a header to the start of `buffer` and returns its size in bytes. What follows it in the buffer is
/// left as it is.
///
/// A message longer than [`MESSAGE_MAX_BYTES`] is not for this function to refuse: it must not have been
/// accepted from the application, and every peer refuses it.
pub fn emit(header: &Header, buffer: &mut [u8; HEADER_MAX_BYTES]) -> usize {
    let none = Flags::empty();
    let (kind, flags, remote_bytes, value, words) = match *header {
        Header::Message(message) => {
            debug_assert!(message.len_bytes <= MESSAGE_MAX_BYTES, "a message too long to be sent");
            let words = [None, message.tag, message.data];
            (kind::MESSAGE, Flags::of(&message), 0, message.len_bytes, words)
        }
        Header::Ack { received } => (kind::ACK, none, 0, received, [None; 3]),
        Header::Request { message, op, remote_bytes } => {
            debug_assert!(message.len_bytes <= MESSAGE_MAX_BYTES, "a message too long to be sent");
            let words = [Some(op), message.tag, message.data];
            (kind::REQUEST, Flags::of(&message), remote_bytes, message.len_bytes, words)
        }
        Header::Clear { op, cannot_pull } => {
            (kind::CLEAR, if cannot_pull { Flags::CANNOT_PULL } else { none }, 0, op, [None; 3])
        }
        Header::Data { op, len_bytes } => (kind::DATA, none, 0, len_bytes, [Some(op), None, None]),
        Header::Done { op, fault } => (kind::DONE, if fault { Flags::FAULT } else { none }, 0, op, [None; 3]),
        Header::Matched { number } => (kind::MATCHED, none, 0, number, [None; 3]),
        Header::Credit { granted_bytes } => (kind::CREDIT, none, 0, granted_bytes, [None; 3]),
        Header::Fence { matched } => {
            (kind::FENCE, if matched { Flags::MATCH } else { none }, 0, 0, [None; 3])
        }
        Header::Fenced => (kind::FENCED, none, 0, 0, [None; 3]),
    };
    buffer[field::KIND] = kind;
    buffer[field::FLAGS] = flags.bits();
    buffer[field::REMOTE] = remote_bytes;
    buffer[field::RESERVED] = 0;
    buffer[field::VALUE].copy_from_slice(&value.to_le_bytes());
    let mut end = FIXED_BYTES;
    for word in words.into_iter().flatten() {
        buffer[end..end + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
        end += WORD_BYTES;
    }
    end
}

/// Reads the header at the start of `bytes` and returns it with its size in bytes, or `None` if more bytes
/// are needed to know it.
///
/// # Errors
///
/// The bytes are refused as soon as no continuation could make a header of them, so an incomplete header that
/// is bad is an error, not `None`.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, WireError> {
    let Some((fixed, mut words)) = bytes.split_first_chunk() else {
        return refuse_early(bytes);
    };
    let fixed = Fixed::read(fixed);
    fixed.check()?;
    let len_bytes = fixed.header_len_bytes();
    if bytes.len() < len_bytes {
        return Ok(None);
    }
    let mut word = || {
        let (word, rest) = words.split_first_chunk()?;
        words = rest;
        Some(u64::from_le_bytes(*word))
    };
    let op = if fixed.has_op() { word().unwrap_or_default() } else { 0 };
    let message = Message {
        len_bytes: fixed.value,
        tag: if fixed.flags.contains(Flags::TAGGED) { word() } else { None },
        data: if fixed.flags.contains(Flags::DATA) { word() } else { None },
        awaits: fixed.flags.awaits(),
    };
    let header = match fixed.kind {
        kind::ACK => Header::Ack { received: fixed.value },
        kind::REQUEST => Header::Request { message, op, remote_bytes: fixed.remote_bytes },
        kind::CLEAR => {
            Header::Clear { op: fixed.value, cannot_pull: fixed.flags.contains(Flags::CANNOT_PULL) }
        }
        kind::DATA => Header::Data { op, len_bytes: fixed.value },
        kind::DONE => Header::Done { op: fixed.value, fault: fixed.flags.contains(Flags::FAULT) },
        kind::MATCHED => Header::Matched { number: fixed.value },
        kind::CREDIT => Header::Credit { granted_bytes: fixed.value },
        kind::FENCE => Header::Fence { matched: fixed.flags.contains(Flags::MATCH) },
        kind::FENCED => Header::Fenced,
        _ => Header::Message(message),
    };
    Ok(Some((header, len_bytes)))
}

/// Refuses the start of a fixed part where no continuation of it is acceptable. Beyond the kind, zeros are
/// always acceptable, and as a number's missing upper bytes they make it the smallest that it can still
/// become.
#[cold]
fn refuse_early(bytes: &[u8]) -> Result<Option<(Header, usize)>, WireError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut padded = [0; FIXED_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    Fixed::read(&padded).check()?;
    Ok(None)
}

/// The part that every header has, as it stands.
struct Fixed {
    kind: u8,
    flags: Flags,
    remote_bytes: u8,
    reserved: u8,
    value: u64,
}

impl Fixed {
    fn read(bytes: &[u8; FIXED_BYTES]) -> Fixed {
        let [kind, flags, remote_bytes, reserved, value @ ..] = *bytes;
        Fixed {
            kind,
            flags: Flags::from_bits_retain(flags),
            remote_bytes,
            reserved,
            value: u64::from_le_bytes(value),
        }
    }

    /// Whether a correct peer may send it. Kept apart from reading, so that no checked copy has to be
    /// returned.
    fn check(&self) -> Result<(), WireError> {
        let (known, value_max) = match self.kind {
            kind::MESSAGE | kind::REQUEST => (MESSAGE_FLAGS, MESSAGE_MAX_BYTES),
            kind::ACK | kind::MATCHED | kind::CREDIT => (Flags::empty(), u64::MAX),
            kind::FENCE => (Flags::MATCH, 0),
            kind::FENCED => (Flags::empty(), 0),
            kind::CLEAR => (Flags::CANNOT_PULL, u64::MAX),
            kind::DATA => (Flags::empty(), MESSAGE_MAX_BYTES),
            kind::DONE => (Flags::FAULT, u64::MAX),
            _ => return Err(WireError::UnknownKind),
        };
        if !known.contains(self.flags) || self.flags.contains(AWAITS_FLAGS) {
            return Err(WireError::UnknownFlag);
        }
        let remote_max_bytes = if self.kind == kind::REQUEST { REMOTE_MAX_BYTES } else { 0 };
        if usize::from(self.remote_bytes) > remote_max_bytes {
            return Err(WireError::ImpossibleLength);
        }
        if self.reserved != 0 {
            return Err(WireError::ReservedNotZero);
        }
        if self.value > value_max {
            return Err(WireError::ImpossibleLength);
        }
        Ok(())
    }

    fn has_op(&self) -> bool {
        matches!(self.kind, kind::REQUEST | kind::DATA)
    }

    fn header_len_bytes(&self) -> usize {
        FIXED_BYTES + (usize::from(self.has_op()) + self.flags.words()) * WORD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::testing::any_header;

    fn emitted(header: &Header) -> Vec<u8> {
        let mut buffer = [0xa5; HEADER_MAX_BYTES];
        let len_bytes = emit(header, &mut buffer);
        assert!(buffer[len_bytes..].iter().all(|&byte| byte == 0xa5), "wrote beyond the header");
        buffer[..len_bytes].to_vec()
    }

    #[test]
    fn the_layout_is_what_the_documentation_says() {
        let message = Message {
            len_bytes: 0x0102,
            tag: Some(0x0304),
            data: Some(0x0506 << 48),
            awaits: Awaits::Arrival,
        };
        assert_eq!(
            emitted(&Header::Message(message)),
            [
                1, 7, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, // fixed
                4, 3, 0, 0, 0, 0, 0, 0, // tag
                0, 0, 0, 0, 0, 0, 6, 5, // data
            ],
        );
        assert_eq!(emitted(&Header::Ack { received: u64::MAX - 1 }), {
            [2, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
        });
        assert_eq!(
            emitted(&Header::Request { message, op: 9, remote_bytes: 16 }),
            [
                3, 7, 16, 0, 2, 1, 0, 0, 0, 0, 0, 0, // fixed
                9, 0, 0, 0, 0, 0, 0, 0, // op
                4, 3, 0, 0, 0, 0, 0, 0, // tag
                0, 0, 0, 0, 0, 0, 6, 5, // data
            ],
        );
        let clear = Header::Clear { op: 9, cannot_pull: true };
        assert_eq!(emitted(&clear), [4, 8, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let data = Header::Data { op: 9, len_bytes: 0x0102 };
        assert_eq!(emitted(&data), [5, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let done = Header::Done { op: 9, fault: true };
        assert_eq!(emitted(&done), [6, 16, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(emitted(&Header::Matched { number: 9 }), [7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(emitted(&Header::Credit { granted_bytes: 9 }), [8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(emitted(&Header::Fence { matched: true }), [9, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(emitted(&Header::Fenced), [10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_no_correct_peer_sends_is_refused() {
        let cases: &[(&[u8], WireError)] = &[
            (&[0], WireError::UnknownKind),
            (&[11], WireError::UnknownKind),
            (&[1, 8], WireError::UnknownFlag),
            (&[3, 16], WireError::UnknownFlag),
            (&[1, 36], WireError::UnknownFlag),
            (&[9, 4], WireError::UnknownFlag),
            (&[4, 1], WireError::UnknownFlag),
            (&[4, 16], WireError::UnknownFlag),
            (&[5, 1], WireError::UnknownFlag),
            (&[6, 8], WireError::UnknownFlag),
            (&[2, 1], WireError::UnknownFlag),
            (&[2, 4], WireError::UnknownFlag),
            (&[1, 0, 1], WireError::ImpossibleLength),
            (&[3, 0, 65], WireError::ImpossibleLength),
            (&[5, 0, 1], WireError::ImpossibleLength),
            (&[1, 0, 0, 1], WireError::ReservedNotZero),
            (&[3, 0, 64, 1], WireError::ReservedNotZero),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 2], WireError::ImpossibleLength),
            (&[5, 0, 0, 0, 0, 0, 0, 0, 0, 2], WireError::ImpossibleLength),
            (&[1, 0, 0, 0, 1, 0, 0, 0, 0, 1], WireError::ImpossibleLength),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], WireError::ImpossibleLength),
        ];
        for (bytes, reason) in cases {
            assert_eq!(parse(bytes), Err(*reason), "{bytes:?}");
            let before = &bytes[..bytes.len() - 1];
            assert_eq!(parse(before), Ok(None), "{before:?} is not yet bad");
        }
    }

    #[test]
    fn the_longest_message_is_accepted() {
        let longest =
            Message { len_bytes: MESSAGE_MAX_BYTES, tag: None, data: None, awaits: Awaits::Nothing };
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
        fn every_bit_matters(header in any_header()) {
            let bytes = emitted(&header);
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                if let Ok(Some((parsed, _))) = parse(&flipped) {
                    prop_assert_ne!(parsed, header, "bit {}", bit);
                    prop_assert_eq!(&emitted(&parsed)[..], &flipped[..header_len_bytes(&parsed)]);
                }
            }
        }

        #[test]
        fn any_bytes_are_judged_as_early_as_possible(
            kind in prop_oneof![4 => kind::MESSAGE..=kind::FENCED, 1 => any::<u8>()],
            flags in prop_oneof![0_u8..8, 32_u8..36, any::<u8>()],
            rest in proptest::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..40),
        ) {
            let bytes = [vec![kind, flags], rest].concat();
            let judged = parse(&bytes);
            if let Ok(Some((header, len_bytes))) = judged {
                prop_assert_eq!(&emitted(&header)[..], &bytes[..len_bytes]);
            }
            for end in 0..bytes.len() {
                match parse(&bytes[..end]) {
                    Ok(None) => {
                        let mut continued = bytes[..end].to_vec();
                        continued.resize(continued.len().max(1), kind::MESSAGE);
                        continued.resize(HEADER_MAX_BYTES, 0);
                        prop_assert!(matches!(parse(&continued), Ok(Some(_))), "was bad already");
                    }
                    early => prop_assert_eq!(early, judged),
                }
            }
        }
    }
}
