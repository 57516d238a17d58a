//! The layout of a frame's first line, and of the lines with further pieces of its payload.
//!
//! A line is 8 words. The first is there in every line; which others follow it depends on the header, and payload takes the
//! words that are left if it fits, filled up with zeros to a whole word:
//!
//! ```text
//!  word 0, from its lowest bit                            then, each only where the header has it
//!  +----------+-------+-------+------+-------+-----+    +-------+-----+------+--------+ - - - - +
//!  | sequence | check | check | kind | flags | len |    | value | tag | data | length | payload |
//!  |          | of    | of    |      |       |     |    |       |     |      |        |         |
//!  |          | this  | words |      |       |     |    |       |     |      |        |         |
//!  +----------+-------+-------+------+-------+-----+    +-------+-----+------+--------+ - - - - +
//!   16 bits    8       8       8      8       16
//!
//!  kind        flags                           value            length
//!  1  message  TAGGED DATA OUTSIDE LONG and    -                if LONG
//!              either of ARRIVAL MATCH
//!  2  ack      -                               count            -
//!  3  request  TAGGED DATA OUTSIDE and either  op               yes
//!              of ARRIVAL MATCH
//!  4  clear    CANNOT_PULL                     op               -
//!  5  data     OUTSIDE LONG                    op               if LONG
//!  6  done     FAULT                           op               -
//!  7  matched  -                               number           -
//!  8  credit   -                               limit in bytes   -
//!  9  fence    MATCH                           -                -
//! 10  fenced   -                               -                -
//! 11  piece    -                               -                -
//! 12  read     -                               op               yes
//! 13  write    DATA OUTSIDE LONG and either    op               if LONG
//!              of DURABLE EVERYTHING
//! 14  offer    DATA OUTSIDE and either of      op               yes
//!              DURABLE EVERYTHING
//! 15  read data  OUTSIDE LONG                  op               if LONG
//! 16  answer   -                               op               -
//! 32  atomic   OUTSIDE LONG                    op               if LONG
//! 40  shown    OUTSIDE                         rights           yes
//! 48  connection  OUTSIDE                      number           -
//! ```
//!
//! Those of kinds 12 to 14, 32 and 40 have key and address, a word each, in the place of the tag; those of kind 32 have their
//! form in the place of the data. An answer's kind has the number of the outcome added, that of a connection the number of
//! the step.
//!
//! `len` is the length of the payload in this line, or with `OUTSIDE`, that of the piece of it which lies in the data
//! area. That is all of the payload unless the header says `LONG`: then `length` is what all pieces make together, and lines
//! of kind `piece` follow, one for each. The length of a request or an offer is that of the message, not of its own payload.
//! Where in the data area a piece lies is not said: it follows the piece before it.
//!
//! The sequence number says which lap of the ring a line is of: in its place there is either the line of this lap, or still
//! that of the lap before. The bytes of the first word, taken together, are always the same ([`is_sound`]), which the first
//! check brings about; the second is [over](homespun_engine::wire::check) value, tag, data and length. So no change of a
//! single byte passes unnoticed, be it in the sequence number: then the line is neither of the two.
//!
//! Every header with its payload has exactly one such form for each length of a first piece: what [`parse`] accepts is what
//! [`emit`] writes.

#[cfg(all(test, not(loom)))]
mod tests;

use bitflags::bitflags;
use homespun_engine::limits::{CONNECTION_DATA_MAX_BYTES, MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use homespun_engine::wire::check::{Check, fold};
use homespun_engine::wire::{
    Atomic, AtomicForm, Awaits, Durable, Handshake, HandshakeStep, Header, Message, Outcome, Rma, RmaKind,
    Shown, WireError,
};

use crate::segment::{LINE_WORDS, LINES};

/// The largest piece of a payload that a line announces. Small enough that the consumer copies one piece while the producer
/// copies the next, and large enough that the lines cost nothing.
pub(crate) const PIECE_MAX_BYTES: usize = if cfg!(loom) { 8 } else { 32 * 1024 };

/// The smallest piece that is not the last of its payload.
pub(crate) const PIECE_MIN_BYTES: usize = if cfg!(loom) { 4 } else { 4096 };

/// The longest payload that any line has room for.
pub(crate) const ROOM_MAX_BYTES: usize = (LINE_WORDS - 1) * WORD_BYTES;

const WORD_BYTES: usize = size_of::<u64>();

/// Where the parts of the first word start, counted in bits.
mod field {
    pub(super) const SEQUENCE: u32 = 0;
    pub(super) const CHECK: u32 = 16;
    pub(super) const WORDS_CHECK: u32 = 24;
    pub(super) const KIND: u32 = 32;
    pub(super) const FLAGS: u32 = 40;
    pub(super) const LEN: u32 = 48;
}

// `First` takes the word apart in this order.
const _: () = assert!(field::SEQUENCE == 0 && field::CHECK == field::SEQUENCE + u16::BITS);
const _: () = assert!(field::WORDS_CHECK == field::CHECK + u8::BITS);
const _: () = assert!(field::KIND == field::WORDS_CHECK + u8::BITS);
const _: () = assert!(field::FLAGS == field::KIND + u8::BITS && field::LEN == field::FLAGS + u8::BITS);
const _: () = assert!(field::LEN + u16::BITS == u64::BITS);
const _: () = assert!(PIECE_MAX_BYTES <= u16::MAX as usize && PIECE_MIN_BYTES < PIECE_MAX_BYTES);
// A message whose payload is in the line spends 24 bytes on its header at most, a request 40, a write 40, and an atomic
// operation 40 as well, so that it has room for the two operands that a compare-and-swap of 8 bytes brings.
const _: () = assert!(ROOM_MAX_BYTES == 56);
// The description of a request is one piece, and so is the data of a connection.
const _: () = assert!(cfg!(loom) || REMOTE_MAX_BYTES < PIECE_MIN_BYTES);
const _: () = assert!(cfg!(loom) || CONNECTION_DATA_MAX_BYTES < PIECE_MIN_BYTES);
// A line of zeros is refused.
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
    pub(super) const PIECE: u8 = 11;
    pub(super) const READ: u8 = 12;
    pub(super) const WRITE: u8 = 13;
    pub(super) const OFFER: u8 = 14;
    pub(super) const READ_DATA: u8 = 15;
    /// With the number of the outcome added.
    pub(super) const ANSWER: u8 = 16;
    pub(super) const ATOMIC: u8 = 32;
    pub(super) const SHOWN: u8 = 40;
    /// With the number of the step added.
    pub(super) const CONNECTION: u8 = 48;
}

bitflags! {
    /// The flags of a line; which of them it may have depends on its kind.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Flags: u8 {
        /// There is a tag.
        const TAGGED = 1 << 0;
        /// There is completion data.
        const DATA = 1 << 1;
        /// The sender waits to hear that it has arrived.
        const ARRIVAL = 1 << 2;
        /// The receiver of a request cannot pull.
        const CANNOT_PULL = 1 << 3;
        /// What was exposed could not be read.
        const FAULT = 1 << 4;
        /// What is written is to be durable.
        const DURABLE = 1 << 3;
        /// So is that, and everything before it.
        const EVERYTHING = 1 << 4;
        /// The payload, or its first piece, lies in the data area.
        const OUTSIDE = 1 << 5;
        /// There are further pieces.
        const LONG = 1 << 6;
        /// The sender waits to hear that it was matched.
        const MATCH = 1 << 7;
    }
}

/// The flags of a message, eager or requested.
const MESSAGE_FLAGS: Flags = Flags::TAGGED.union(Flags::DATA).union(AWAITS_FLAGS);

/// What a sender waits for, of which there is one thing at most.
const AWAITS_FLAGS: Flags = Flags::ARRIVAL.union(Flags::MATCH);

/// The flags of what is written to a region, apart from those of its payload.
const WRITE_FLAGS: Flags = Flags::DATA.union(DURABLE_FLAGS);

/// What is to be durable, of which there is one thing at most.
const DURABLE_FLAGS: Flags = Flags::DURABLE.union(Flags::EVERYTHING);

/// The flags of a payload of any length.
const PAYLOAD_FLAGS: Flags = Flags::OUTSIDE.union(Flags::LONG);

impl Flags {
    #[inline]
    fn of(message: &Message) -> Flags {
        let mut flags = match message.awaits {
            Awaits::Nothing => Flags::empty(),
            Awaits::Arrival => Flags::ARRIVAL,
            Awaits::Match => Flags::MATCH,
        };
        flags.set(Flags::TAGGED, message.tag.is_some());
        flags.set(Flags::DATA, message.data.is_some());
        flags
    }

    fn of_durable(durable: Durable) -> Flags {
        match durable {
            Durable::Nothing => Flags::empty(),
            Durable::Written => Flags::DURABLE,
            Durable::Everything => Flags::EVERYTHING,
        }
    }

    fn durable(self) -> Durable {
        if self.contains(Flags::EVERYTHING) {
            Durable::Everything
        } else if self.contains(Flags::DURABLE) {
            Durable::Written
        } else {
            Durable::Nothing
        }
    }

    #[inline]
    fn awaits(self) -> Awaits {
        // Most messages await nothing.
        if !self.intersects(AWAITS_FLAGS) {
            Awaits::Nothing
        } else if self.contains(Flags::ARRIVAL) {
            Awaits::Arrival
        } else {
            Awaits::Match
        }
    }
}

/// The payload that goes with a header.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// All of it, no longer than [`room_bytes`] says.
    Inline(&'a [u8]),
    /// The length of its first piece, which is in the data area.
    Outside(usize),
}

/// A line as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A frame, and what is there of its payload.
    Frame(Header, Found),
    /// The length of a further piece, which may yet be longer than what is left of the frame, or there may be no frame.
    Piece(usize),
}

/// The payload that was found with a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// All of it, of this length, in the buffer that was given for it.
    Inline(usize),
    /// The length of its first piece, which is in the data area.
    Outside(usize),
}

/// What all bytes of a first word make together. Not zero, so that no memory is taken for a line that never was one.
const FOLDED: u8 = 0xa5;

/// The sequence number of a line with a number since the ring was made. Never that of the line which was there before.
#[inline]
pub(crate) fn sequence(position: u64) -> u16 {
    position.wrapping_add(1) as u16
}

// Two lines of one place are a lap apart, which is not all that a sequence number can count.
const _: () = assert!(LINES < 1 << u16::BITS);

/// The sequence number in a first word.
#[inline]
pub(crate) fn sequence_of(first: u64) -> u16 {
    (first >> field::SEQUENCE) as u16
}

/// Whether a correct producer may have written this first word, as far as it can be told from the word alone.
#[inline]
pub(crate) fn is_sound(first: u64) -> bool {
    fold(first) == FOLDED
}

/// Whether this is what is found in the place of a line that is still to come: the line of the lap before, or nothing yet.
pub(crate) fn is_awaited(first: u64, position: u64) -> bool {
    match position.checked_sub(LINES as u64) {
        Some(before) => sequence_of(first) == sequence(before) && is_sound(first),
        None => first == 0,
    }
}

/// How much payload has room in a line beside this header.
#[inline]
pub(crate) fn room_bytes(header: &Header) -> usize {
    let words = match header {
        Header::Message(message) => words_of(message),
        Header::Request { message, .. } => 2 + words_of(message),
        Header::Rma(rma) => {
            let has_length = !matches!(rma.kind, RmaKind::Write { .. });
            3 + usize::from(rma.kind.data().is_some()) + usize::from(has_length)
        }
        Header::Shown(_) | Header::Atomic(_) => 4,
        Header::Ack { .. }
        | Header::Clear { .. }
        | Header::Data { .. }
        | Header::Done { .. }
        | Header::Matched { .. }
        | Header::Credit { .. }
        | Header::ReadData { .. }
        | Header::Answer { .. }
        | Header::Connection(_) => 1,
        Header::Fence { .. } | Header::Fenced => 0,
    };
    ROOM_MAX_BYTES - words * WORD_BYTES
}

#[inline]
fn words_of(message: &Message) -> usize {
    usize::from(message.tag.is_some()) + usize::from(message.data.is_some())
}

/// Writes the first line of a frame: `put` gets each word but the first, once and in order, and the first is returned.
/// What is said about the payload must be true of the header: a payload that has room is inline, and a first piece is one
/// that [`is_piece`].
#[inline]
pub(crate) fn emit(
    sequence: u16,
    header: &Header,
    payload: Payload<'_>,
    mut put: impl FnMut(usize, u64),
) -> u64 {
    let mut used = 1;
    let mut push = |word: u64| {
        // A line cannot overflow: `room_bytes` has counted the words. The remainder spares the check of it.
        put(used % LINE_WORDS, word);
        used += 1;
    };
    let mut check = Check::default();
    let mut push_checked = |word: u64| {
        push(word);
        check = check.with(word);
    };
    let none = Flags::empty();
    let (kind, mut flags, value, message) = match header {
        Header::Message(message) => (kind::MESSAGE, Flags::of(message), None, Some(message)),
        Header::Ack { received } => (kind::ACK, none, Some(*received), None),
        Header::Request { message, op, .. } => (kind::REQUEST, Flags::of(message), Some(*op), Some(message)),
        Header::Clear { op, cannot_pull } => {
            (kind::CLEAR, if *cannot_pull { Flags::CANNOT_PULL } else { none }, Some(*op), None)
        }
        Header::Data { op, .. } => (kind::DATA, none, Some(*op), None),
        Header::Done { op, fault } => (kind::DONE, if *fault { Flags::FAULT } else { none }, Some(*op), None),
        Header::Matched { number } => (kind::MATCHED, none, Some(*number), None),
        Header::Credit { granted_bytes } => (kind::CREDIT, none, Some(*granted_bytes), None),
        Header::Fence { matched } => (kind::FENCE, if *matched { Flags::MATCH } else { none }, None, None),
        Header::Fenced => (kind::FENCED, none, None, None),
        Header::Rma(Rma { op, kind, durable, .. }) => {
            let number = match kind {
                RmaKind::Read => kind::READ,
                RmaKind::Write { .. } => kind::WRITE,
                RmaKind::Offer { .. } => kind::OFFER,
            };
            let mut flags = Flags::of_durable(*durable);
            flags.set(Flags::DATA, kind.data().is_some());
            (number, flags, Some(*op), None)
        }
        Header::Shown(Shown { access, .. }) => (kind::SHOWN, none, Some(*access), None),
        Header::ReadData { op, .. } => (kind::READ_DATA, none, Some(*op), None),
        Header::Answer { op, outcome } => (kind::ANSWER + outcome.number(), none, Some(*op), None),
        Header::Atomic(Atomic { op, .. }) => (kind::ATOMIC, none, Some(*op), None),
        Header::Connection(Handshake { step, number, .. }) => {
            (kind::CONNECTION + step.number(), none, Some(*number), None)
        }
    };
    if let Some(value) = value {
        push_checked(value);
    }
    if let Some(message) = message {
        if let Some(tag) = message.tag {
            push_checked(tag);
        }
        if let Some(data) = message.data {
            push_checked(data);
        }
    }
    match header {
        Header::Request { message, .. } => push_checked(message.len_bytes),
        Header::Rma(Rma { key, address, len_bytes, kind, .. }) => {
            push_checked(*key);
            push_checked(*address);
            if let Some(data) = kind.data() {
                push_checked(data);
            }
            if !matches!(kind, RmaKind::Write { .. }) {
                push_checked(*len_bytes);
            }
        }
        Header::Shown(Shown { key, address, len_bytes, .. }) => {
            [key, address, len_bytes].into_iter().for_each(|word| push_checked(*word));
        }
        Header::Atomic(Atomic { key, address, form, .. }) => {
            [*key, *address, form.number()].into_iter().for_each(push_checked);
        }
        _ => {}
    }
    let here_bytes = match payload {
        Payload::Inline(bytes) => {
            debug_assert!(bytes.len() as u64 == header.payload_len_bytes());
            debug_assert!(bytes.len() <= room_bytes(header));
            let (whole, rest) = bytes.as_chunks();
            for word in whole {
                push(u64::from_le_bytes(*word));
            }
            if !rest.is_empty() {
                push(rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
            }
            bytes.len()
        }
        Payload::Outside(piece_bytes) => {
            let len_bytes = header.payload_len_bytes();
            debug_assert!(is_piece(piece_bytes, len_bytes) && len_bytes > room_bytes(header) as u64);
            flags |= Flags::OUTSIDE;
            if (piece_bytes as u64) < len_bytes {
                flags |= Flags::LONG;
                push(len_bytes);
                check = check.with(len_bytes);
            }
            piece_bytes
        }
    };
    first(sequence, check, kind, flags, here_bytes)
}

/// The only word of the line of a further piece, which must be one that [`is_piece`].
#[inline]
pub(crate) fn emit_piece(sequence: u16, piece_bytes: usize) -> u64 {
    first(sequence, Check::default(), kind::PIECE, Flags::empty(), piece_bytes)
}

#[inline]
fn first(sequence: u16, check: Check, kind: u8, flags: Flags, len_bytes: usize) -> u64 {
    let words_check = check.finish();
    // What makes `is_sound` true, from the parts, so that it need not wait for the check of the words.
    let halves = sequence ^ len_bytes as u16;
    let check = (halves ^ halves >> 8) as u8 ^ kind ^ flags.bits() ^ FOLDED ^ words_check;
    u64::from(sequence) << field::SEQUENCE
        | u64::from(check) << field::CHECK
        | u64::from(words_check) << field::WORDS_CHECK
        | u64::from(kind) << field::KIND
        | u64::from(flags.bits()) << field::FLAGS
        | (len_bytes as u64) << field::LEN
}

/// A first word as it would be if a correct producer had written it, whatever it says, together with these words.
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) fn sealed(first: u64, word: impl Fn(usize) -> u64) -> u64 {
    let kind = (first >> field::KIND) as u8;
    let flags = Flags::from_bits_retain((first >> field::FLAGS) as u8);
    let is_access = has_key(kind);
    let has = [
        !matches!(kind, kind::MESSAGE | kind::FENCE | kind::FENCED | kind::PIECE),
        is_access || flags.contains(Flags::TAGGED),
        is_access,
        kind == kind::ATOMIC,
        flags.contains(Flags::DATA),
        has_length(kind) || flags.contains(Flags::LONG),
    ];
    let words = has.into_iter().filter(|has| *has).count();
    let check = (1..=words).map(word).fold(Check::default(), Check::with);
    let others = first & !(0xff << field::CHECK) & !(0xff << field::WORDS_CHECK);
    let unchecked = others | u64::from(check.finish()) << field::WORDS_CHECK;
    unchecked | u64::from(fold(unchecked) ^ FOLDED) << field::CHECK
}

/// Whether the lines of a kind have the key and the address of a region.
#[inline]
fn has_key(kind: u8) -> bool {
    matches!(kind, kind::READ | kind::WRITE | kind::OFFER | kind::SHOWN | kind::ATOMIC)
}

/// Whether the lines of a kind always have a length.
#[inline]
fn has_length(kind: u8) -> bool {
    matches!(kind, kind::REQUEST | kind::READ | kind::OFFER | kind::SHOWN)
}

/// The outcome in the kind of an answer.
fn outcome_of(kind: u8) -> Option<Outcome> {
    Outcome::from_number(kind.checked_sub(kind::ANSWER)?)
}

/// The step in the kind of a connection.
fn step_of(kind: u8) -> Option<HandshakeStep> {
    HandshakeStep::from_number(kind.checked_sub(kind::CONNECTION)?)
}

/// Whether a correct producer may make a piece of this length where `left_bytes` of the payload are left.
#[inline]
pub(crate) fn is_piece(piece_bytes: usize, left_bytes: u64) -> bool {
    let is_last = piece_bytes as u64 == left_bytes && piece_bytes > 0;
    let is_one_of_many = piece_bytes >= PIECE_MIN_BYTES && (piece_bytes as u64) < left_bytes;
    piece_bytes <= PIECE_MAX_BYTES && (is_last || is_one_of_many)
}

/// Reads a line of which the first word is known, and the others are asked for once, as far as they are needed.
///
/// # Errors
///
/// What no correct producer writes.
#[inline]
pub(crate) fn parse(
    first: u64,
    word: impl Fn(usize) -> u64,
    payload: &mut [u8; ROOM_MAX_BYTES],
) -> Result<Parsed, WireError> {
    if !is_sound(first) {
        return Err(WireError::WrongCheck);
    }
    let words_check = (first >> field::WORDS_CHECK) as u8;
    let kind = (first >> field::KIND) as u8;
    let flags = Flags::from_bits_retain((first >> field::FLAGS) as u8);
    let here_bytes = usize::from((first >> field::LEN) as u16);
    if kind == kind::MESSAGE && !flags.intersects(PAYLOAD_FLAGS) {
        return parse_small(words_check, flags, here_bytes, word, payload);
    }
    let known = match kind {
        kind::MESSAGE => MESSAGE_FLAGS.union(PAYLOAD_FLAGS),
        kind::REQUEST => MESSAGE_FLAGS.union(Flags::OUTSIDE),
        kind::DATA | kind::READ_DATA | kind::ATOMIC => PAYLOAD_FLAGS,
        kind::WRITE if !flags.contains(DURABLE_FLAGS) => WRITE_FLAGS.union(PAYLOAD_FLAGS),
        kind::OFFER if !flags.contains(DURABLE_FLAGS) => WRITE_FLAGS.union(Flags::OUTSIDE),
        kind::WRITE | kind::OFFER => return Err(WireError::UnknownFlag),
        kind::SHOWN => Flags::OUTSIDE,
        kind::READ => Flags::empty(),
        kind::CLEAR => Flags::CANNOT_PULL,
        kind::DONE => Flags::FAULT,
        kind::ACK | kind::MATCHED | kind::CREDIT | kind::FENCED => Flags::empty(),
        kind::FENCE => Flags::MATCH,
        kind::PIECE if words_check != Check::default().finish() => return Err(WireError::WrongCheck),
        kind::PIECE if flags.is_empty() => return Ok(Parsed::Piece(here_bytes)),
        kind::PIECE => return Err(WireError::UnknownFlag),
        _ if outcome_of(kind).is_some() => Flags::empty(),
        _ if step_of(kind).is_some() => Flags::OUTSIDE,
        _ => return Err(WireError::UnknownKind),
    };
    // Only where there is one piece can there be another.
    let is_contradictory = flags.contains(AWAITS_FLAGS) || flags & PAYLOAD_FLAGS == Flags::LONG;
    if is_contradictory || !known.contains(flags) {
        return Err(WireError::UnknownFlag);
    }

    let mut used = 1;
    let mut check = Check::default();
    let mut next = |is_there: bool| {
        is_there.then(|| {
            let word = word(used);
            used += 1;
            check = check.with(word);
            word
        })
    };
    let value = next(!matches!(kind, kind::MESSAGE | kind::FENCE | kind::FENCED)).unwrap_or_default();
    let tag = next(flags.contains(Flags::TAGGED));
    let is_access = has_key(kind);
    let [key, address] = [next(is_access), next(is_access)].map(Option::unwrap_or_default);
    let form = next(kind == kind::ATOMIC);
    let data = next(flags.contains(Flags::DATA));
    let len_bytes = next(has_length(kind) || flags.contains(Flags::LONG)).unwrap_or(here_bytes as u64);
    if check.finish() != words_check {
        return Err(WireError::WrongCheck);
    }
    if len_bytes > MESSAGE_MAX_BYTES {
        return Err(WireError::ImpossibleLength);
    }
    let message = Message { len_bytes, tag, data, awaits: flags.awaits() };
    let header = match kind {
        kind::ACK => Header::Ack { received: value },
        kind::REQUEST => Header::Request { message, op: value, remote_bytes: remote_bytes(here_bytes)? },
        kind::CLEAR => Header::Clear { op: value, cannot_pull: flags.contains(Flags::CANNOT_PULL) },
        kind::DATA => Header::Data { op: value, len_bytes },
        kind::DONE => Header::Done { op: value, fault: flags.contains(Flags::FAULT) },
        kind::MATCHED => Header::Matched { number: value },
        kind::CREDIT => Header::Credit { granted_bytes: value },
        kind::FENCE => Header::Fence { matched: flags.contains(Flags::MATCH) },
        kind::FENCED => Header::Fenced,
        kind::READ | kind::WRITE | kind::OFFER => {
            let durable = flags.durable();
            let kind = match kind {
                kind::READ => RmaKind::Read,
                kind::WRITE => RmaKind::Write { data },
                _ => RmaKind::Offer { data, remote_bytes: remote_bytes(here_bytes)? },
            };
            Header::Rma(Rma { op: value, key, address, len_bytes, kind, durable })
        }
        kind::SHOWN => {
            let remote_bytes = remote_bytes(here_bytes)?;
            Header::Shown(Shown { key, address, len_bytes, access: value, remote_bytes })
        }
        kind::READ_DATA => Header::ReadData { op: value, len_bytes },
        kind::ATOMIC => {
            let form = AtomicForm::from_number(form.unwrap_or_default())?;
            if form.payload_len_bytes() as u64 != len_bytes {
                return Err(WireError::ImpossibleLength);
            }
            Header::Atomic(Atomic { op: value, key, address, form })
        }
        kind::MESSAGE => Header::Message(message),
        kind::CONNECTION.. => {
            let step = step_of(kind).ok_or(WireError::UnknownKind)?;
            Header::Connection(Handshake { step, number: value, data_bytes: data_bytes(here_bytes, step)? })
        }
        _ => Header::Answer { op: value, outcome: outcome_of(kind).ok_or(WireError::UnknownKind)? },
    };
    let len_bytes = header.payload_len_bytes();
    let room_bytes = room_bytes(&header);
    if flags.contains(Flags::OUTSIDE) {
        let is_long = here_bytes as u64 != len_bytes;
        let is_sound = is_piece(here_bytes, len_bytes)
            && is_long == flags.contains(Flags::LONG)
            && len_bytes > room_bytes as u64;
        return if is_sound {
            Ok(Parsed::Frame(header, Found::Outside(here_bytes)))
        } else {
            Err(WireError::ImpossibleLength)
        };
    }
    if here_bytes as u64 != len_bytes || here_bytes > room_bytes {
        return Err(WireError::ImpossibleLength);
    }
    copy_inline(here_bytes, used, word, payload)?;
    Ok(Parsed::Frame(header, Found::Inline(here_bytes)))
}

/// Reads the line of a message that is all in it, which is what most lines are.
#[inline]
fn parse_small(
    words_check: u8,
    flags: Flags,
    len_bytes: usize,
    word: impl Fn(usize) -> u64,
    payload: &mut [u8; ROOM_MAX_BYTES],
) -> Result<Parsed, WireError> {
    if !MESSAGE_FLAGS.contains(flags) || flags.contains(AWAITS_FLAGS) {
        return Err(WireError::UnknownFlag);
    }
    let mut place = 1;
    let tag = flags.contains(Flags::TAGGED).then(|| word(place));
    place += usize::from(tag.is_some());
    let data = flags.contains(Flags::DATA).then(|| word(place));
    place += usize::from(data.is_some());
    let check = [tag, data].into_iter().flatten().fold(Check::default(), Check::with);
    if check.finish() != words_check {
        return Err(WireError::WrongCheck);
    }
    if len_bytes > (LINE_WORDS - place) * WORD_BYTES {
        return Err(WireError::ImpossibleLength);
    }
    copy_inline(len_bytes, place, word, payload)?;
    let header = Header::Message(Message { len_bytes: len_bytes as u64, tag, data, awaits: flags.awaits() });
    Ok(Parsed::Frame(header, Found::Inline(len_bytes)))
}

/// How long the description is that a request brings.
#[inline]
fn remote_bytes(len_bytes: usize) -> Result<u8, WireError> {
    match u8::try_from(len_bytes) {
        Ok(remote_bytes) if len_bytes <= REMOTE_MAX_BYTES => Ok(remote_bytes),
        _ => Err(WireError::ImpossibleLength),
    }
}

/// How much data of the application's comes with a step of a connection.
fn data_bytes(len_bytes: usize, step: HandshakeStep) -> Result<u16, WireError> {
    match u16::try_from(len_bytes) {
        Ok(data_bytes) if len_bytes <= step.data_max_bytes() => Ok(data_bytes),
        _ => Err(WireError::ImpossibleLength),
    }
}

/// Takes payload out of the words that it has, from `place` on.
#[inline]
fn copy_inline(
    len_bytes: usize,
    place: usize,
    word: impl Fn(usize) -> u64,
    payload: &mut [u8; ROOM_MAX_BYTES],
) -> Result<(), WireError> {
    let (words, _) = payload.as_chunks_mut();
    for (n, into) in words.iter_mut().enumerate() {
        if n * WORD_BYTES >= len_bytes {
            break;
        }
        let word = word(place + n);
        *into = word.to_le_bytes();
        let left_bytes = len_bytes - n * WORD_BYTES;
        if left_bytes < WORD_BYTES && word >> (left_bytes * 8) != 0 {
            return Err(WireError::ReservedNotZero);
        }
    }
    Ok(())
}
