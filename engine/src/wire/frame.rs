//! The layout of a [`Header`] on a byte stream, all numbers little-endian.
//!
//! ```text
//!  offset  0      1        2       3       4        12
//!          +------+--------+-------+-------+--------+---------+---------+---------+ - - - -
//!          | form | remote | check | check | value  | op      | tag     | data    | payload
//!          |      |        | form  | words |        |         |         |         |
//!          +------+--------+-------+-------+--------+---------+---------+---------+ - - - -
//!  bytes   1      1        1       1       8        8         8 if      8 if      as long as
//!                                                             TAGGED    DATA      the header says
//!
//!  rma, shown and atomic have key and address, 8 bytes each, in the place of the tag; a connection has its number
//!  in the place of op
//!
//!  form: kind, low 4 bits   and flags, high 4 bits   remote       value             op
//!  1  message               TAGGED DATA and either   0            message length    -
//!                           of ARRIVAL MATCH
//!  2  ack                   -                        0            count             -
//!  3  request               as a message             its length   message length    yes
//!  4  clear                 CANNOT_PULL              0            op                -
//!  5  data                  -                        0            message length    yes
//!  6  done                  FAULT                    0            op                -
//!  7  matched               -                        0            number            -
//!  8  credit                -                        0            limit in bytes    -
//!  9  fence                 MATCH                    0            0                 -
//! 10  fenced                -                        0            0                 -
//! 11  rma                   READ, or DATA OFFERED    its length   length            yes
//!                           and DURABLE, with READ   if OFFERED
//!                           for EVERYTHING
//! 11  shown                 READ and OFFERED         its length   length            rights
//! 12  read data             -                        0            length            yes
//! 13  answer                a number: the outcome    0            op                -
//! 14  atomic                -                        0            form              yes
//! 15  connection            a number: the step       0            data length       yes
//! ```
//!
//! Every header has exactly one such form: what [`parse`] accepts is what [`emit`] writes, byte for byte.
//!
//! The two checks are there for what TCP's own sum lets through, and for peers that are out of step. The first says that
//! form and remote are right: how long the header is depends on them, so they are judged before anything is waited for
//! because of them. The second is [over](super::check) value, op, tag and data. No change of a single byte passes unnoticed.

use bitflags::bitflags;

use crate::limits::{CONNECTION_DATA_MAX_BYTES, MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use crate::wire::check::Check;
use crate::wire::{
    Atomic, AtomicForm, Awaits, Durable, Handshake, HandshakeStep, Header, Message, Outcome, Rma, RmaKind,
    Shown, WireError,
};

/// The size of the largest header in bytes: a write with data.
pub const HEADER_MAX_BYTES: usize = FIXED_BYTES + WORDS_MAX * WORD_BYTES;

/// How many words follow the fixed part at most.
const WORDS_MAX: usize = 4;

/// The part that every header has.
const FIXED_BYTES: usize = field::VALUE.end;

/// Operation number, tag and data are this long each.
const WORD_BYTES: usize = size_of::<u64>();

mod field {
    use std::ops::Range;

    /// Kind and flags.
    pub(super) const FORM: usize = 0;
    /// The length of the description of exposed payload, which a request has for its own payload.
    pub(super) const REMOTE: usize = 1;
    pub(super) const FORM_CHECK: usize = 2;
    pub(super) const WORDS_CHECK: usize = 3;
    /// A length in bytes, a count, or the number of an operation.
    pub(super) const VALUE: Range<usize> = 4..12;
}

// `Fixed::read` takes the fixed part apart in this order.
const _: () = assert!(field::FORM == 0 && field::REMOTE == 1 && field::FORM_CHECK == 2);
const _: () = assert!(field::WORDS_CHECK == 3 && field::VALUE.start == 4);
const _: () = assert!(field::VALUE.end - field::VALUE.start == size_of::<u64>());
const _: () = assert!(FIXED_BYTES == 12 && HEADER_MAX_BYTES == 44);
const _: () = assert!(REMOTE_MAX_BYTES <= u8::MAX as usize);
const _: () = assert!(CONNECTION_DATA_MAX_BYTES <= u16::MAX as usize);
// Zero is the kind of no frame, so a stream of zeros is refused at its first byte.
const _: () = assert!(kind::MESSAGE != 0);

mod kind {
    /// The bits of a form that are the kind. The others are flags.
    pub(super) const MASK: u8 = 0x0f;

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
    pub(super) const RMA: u8 = 11;
    pub(super) const READ_DATA: u8 = 12;
    pub(super) const ANSWER: u8 = 13;
    pub(super) const ATOMIC: u8 = 14;
    pub(super) const CONNECTION: u8 = 15;
}

bitflags! {
    /// The flags of a header; which of them it may have depends on its kind, and what they mean where they share a bit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Flags: u8 {
        /// The tag follows the fixed part.
        const TAGGED = 1 << 4;
        /// Completion data follows the tag, or the fixed part where there is no tag.
        const DATA = 1 << 5;
        /// The sender waits to hear that it has arrived.
        const ARRIVAL = 1 << 6;
        /// The receiver of a request cannot pull.
        const CANNOT_PULL = 1 << 6;
        /// What was exposed could not be read.
        const FAULT = 1 << 6;
        /// The sender waits to hear that it was matched.
        const MATCH = 1 << 7;
        /// A region is read, not written.
        const READ = 1 << 4;
        /// What is to be written is to be fetched.
        const OFFERED = 1 << 6;
        /// What is written is to be durable.
        const DURABLE = 1 << 7;
        /// And so is everything before it.
        const EVERYTHING = Flags::DURABLE.bits() | Flags::READ.bits();
        /// The bits of an outcome, or of a step, which are a number.
        const NUMBER = 0xf0;
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

    fn of_rma(kind: RmaKind, durable: Durable) -> Flags {
        let mut flags = match durable {
            Durable::Nothing => Flags::empty(),
            Durable::Written => Flags::DURABLE,
            Durable::Everything => Flags::EVERYTHING,
        };
        flags.set(Flags::READ, kind == RmaKind::Read || durable == Durable::Everything);
        flags.set(Flags::DATA, kind.data().is_some());
        flags.set(Flags::OFFERED, matches!(kind, RmaKind::Offer { .. }));
        flags
    }

    fn of_outcome(outcome: Outcome) -> Flags {
        Flags::from_bits_retain(outcome.number() << NUMBER_SHIFT)
    }

    fn outcome(self) -> Option<Outcome> {
        Outcome::from_number(self.bits() >> NUMBER_SHIFT)
    }

    fn of_step(step: HandshakeStep) -> Flags {
        Flags::from_bits_retain(step.number() << NUMBER_SHIFT)
    }

    fn step(self) -> Option<HandshakeStep> {
        HandshakeStep::from_number(self.bits() >> NUMBER_SHIFT)
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

    fn durable(self) -> Durable {
        if self.contains(Flags::EVERYTHING) {
            Durable::Everything
        } else if self.contains(Flags::DURABLE) {
            Durable::Written
        } else {
            Durable::Nothing
        }
    }

    fn words(self) -> usize {
        usize::from(self.contains(Flags::TAGGED)) + usize::from(self.contains(Flags::DATA))
    }
}

/// The flags of a message, eager or requested.
const MESSAGE_FLAGS: Flags = Flags::TAGGED.union(Flags::DATA).union(AWAITS_FLAGS);

/// The flags of an access to a region.
const RMA_FLAGS: Flags = Flags::READ.union(Flags::DATA).union(Flags::OFFERED).union(Flags::DURABLE);

/// The flags of a region that is shown: what is both read and offered.
const SHOWN_FLAGS: Flags = Flags::READ.union(Flags::OFFERED);

/// Where the number of an outcome, or of a step, starts among the flags.
const NUMBER_SHIFT: u32 = 4;

/// What a sender waits for, of which there is one thing at most.
const AWAITS_FLAGS: Flags = Flags::ARRIVAL.union(Flags::MATCH);

/// The size of a header on the stream in bytes, without the payload.
pub fn header_len_bytes(header: &Header) -> usize {
    let words = match header {
        Header::Message(message) => Flags::of(message).words(),
        Header::Request { message, .. } => 1 + Flags::of(message).words(),
        Header::Rma(rma) => 3 + usize::from(rma.kind.data().is_some()),
        Header::Shown(_) | Header::Atomic(_) => 3,
        Header::Data { .. } | Header::ReadData { .. } | Header::Connection(_) => 1,
        Header::Ack { .. }
        | Header::Clear { .. }
        | Header::Done { .. }
        | Header::Matched { .. }
        | Header::Credit { .. }
        | Header::Fence { .. }
        | Header::Fenced
        | Header::Answer { .. } => 0,
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
            let words = [None, None, message.tag, message.data];
            (kind::MESSAGE, Flags::of(&message), 0, message.len_bytes, words)
        }
        Header::Ack { received } => (kind::ACK, none, 0, received, [None; WORDS_MAX]),
        Header::Request { message, op, remote_bytes } => {
            debug_assert!(message.len_bytes <= MESSAGE_MAX_BYTES, "a message too long to be sent");
            let words = [Some(op), None, message.tag, message.data];
            (kind::REQUEST, Flags::of(&message), remote_bytes, message.len_bytes, words)
        }
        Header::Clear { op, cannot_pull } => {
            (kind::CLEAR, if cannot_pull { Flags::CANNOT_PULL } else { none }, 0, op, [None; WORDS_MAX])
        }
        Header::Data { op, len_bytes } => (kind::DATA, none, 0, len_bytes, [Some(op), None, None, None]),
        Header::Done { op, fault } => {
            (kind::DONE, if fault { Flags::FAULT } else { none }, 0, op, [None; WORDS_MAX])
        }
        Header::Matched { number } => (kind::MATCHED, none, 0, number, [None; WORDS_MAX]),
        Header::Credit { granted_bytes } => (kind::CREDIT, none, 0, granted_bytes, [None; WORDS_MAX]),
        Header::Fence { matched } => {
            (kind::FENCE, if matched { Flags::MATCH } else { none }, 0, 0, [None; WORDS_MAX])
        }
        Header::Fenced => (kind::FENCED, none, 0, 0, [None; WORDS_MAX]),
        Header::Rma(Rma { op, key, address, len_bytes, kind, durable }) => {
            debug_assert!(durable == Durable::Nothing || kind != RmaKind::Read, "a read is not durable");
            debug_assert!(len_bytes <= MESSAGE_MAX_BYTES, "an access too long to be sent");
            let remote_bytes = if let RmaKind::Offer { remote_bytes, .. } = kind { remote_bytes } else { 0 };
            let words = [Some(op), Some(key), Some(address), kind.data()];
            (kind::RMA, Flags::of_rma(kind, durable), remote_bytes, len_bytes, words)
        }
        Header::Shown(Shown { key, address, len_bytes, access, remote_bytes }) => {
            let words = [Some(access), Some(key), Some(address), None];
            (kind::RMA, SHOWN_FLAGS, remote_bytes, len_bytes, words)
        }
        Header::ReadData { op, len_bytes } => {
            (kind::READ_DATA, none, 0, len_bytes, [Some(op), None, None, None])
        }
        Header::Answer { op, outcome } => {
            (kind::ANSWER, Flags::of_outcome(outcome), 0, op, [None; WORDS_MAX])
        }
        Header::Atomic(Atomic { op, key, address, form }) => {
            (kind::ATOMIC, none, 0, form.number(), [Some(op), Some(key), Some(address), None])
        }
        Header::Connection(Handshake { step, number, data_bytes }) => {
            debug_assert!(usize::from(data_bytes) <= step.data_max_bytes(), "more data than a peer takes");
            let words = [Some(number), None, None, None];
            (kind::CONNECTION, Flags::of_step(step), 0, u64::from(data_bytes), words)
        }
    };
    let form = kind | flags.bits();
    buffer[field::FORM] = form;
    buffer[field::REMOTE] = remote_bytes;
    buffer[field::FORM_CHECK] = form_check(form, remote_bytes);
    buffer[field::VALUE].copy_from_slice(&value.to_le_bytes());
    let mut check = Check::default().with(value);
    let mut end = FIXED_BYTES;
    for word in words.into_iter().flatten() {
        buffer[end..end + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
        check = check.with(word);
        end += WORD_BYTES;
    }
    buffer[field::WORDS_CHECK] = check.finish();
    end
}

/// Reads the header at the start of `bytes` and returns it with its size in bytes, or `None` if more bytes
/// are needed to know it.
///
/// # Errors
///
/// Each byte is judged as soon as it is there, so an incomplete header that is bad is an error, not `None`. Only the check of
/// the words has to wait for them, and the form of an atomic operation for its last byte.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, WireError> {
    let Some((fixed, mut words)) = bytes.split_first_chunk() else {
        return refuse_early(bytes);
    };
    let fixed = Fixed::read(fixed);
    fixed.check()?;
    // Only the whole number tells what is to be done. What any of its beginnings may become is not judged before.
    let form = if fixed.kind == kind::ATOMIC { Some(AtomicForm::from_number(fixed.value)?) } else { None };
    let len_bytes = fixed.header_len_bytes();
    if bytes.len() < len_bytes {
        return Ok(None);
    }
    let mut check = Check::default().with(fixed.value);
    let mut word = || {
        let (word, rest) = words.split_first_chunk()?;
        words = rest;
        let word = u64::from_le_bytes(*word);
        check = check.with(word);
        Some(word)
    };
    let op = if fixed.has_op() { word().unwrap_or_default() } else { 0 };
    let is_access = fixed.has_key();
    // The flags of an answer and of a connection are a number.
    let has = |flag| fixed.flags.contains(flag) && !matches!(fixed.kind, kind::ANSWER | kind::CONNECTION);
    let [key, address] = if is_access { [word(), word()].map(Option::unwrap_or_default) } else { [0; 2] };
    let message = Message {
        len_bytes: fixed.value,
        tag: if has(Flags::TAGGED) && !is_access { word() } else { None },
        data: if has(Flags::DATA) { word() } else { None },
        awaits: fixed.flags.awaits(),
    };
    if check.finish() != fixed.words_check {
        return Err(WireError::WrongCheck);
    }
    if let Some(form) = form {
        return Ok(Some((Header::Atomic(Atomic { op, key, address, form }), len_bytes)));
    }
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
        kind::RMA if fixed.flags == SHOWN_FLAGS => {
            let (len_bytes, remote_bytes) = (fixed.value, fixed.remote_bytes);
            Header::Shown(Shown { key, address, len_bytes, access: op, remote_bytes })
        }
        kind::RMA => {
            let durable = fixed.flags.durable();
            let kind = if durable == Durable::Nothing && fixed.flags.contains(Flags::READ) {
                RmaKind::Read
            } else if fixed.flags.contains(Flags::OFFERED) {
                RmaKind::Offer { data: message.data, remote_bytes: fixed.remote_bytes }
            } else {
                RmaKind::Write { data: message.data }
            };
            Header::Rma(Rma { op, key, address, len_bytes: fixed.value, kind, durable })
        }
        kind::READ_DATA => Header::ReadData { op, len_bytes: fixed.value },
        kind::ANSWER => {
            let outcome = fixed.flags.outcome().ok_or(WireError::UnknownFlag)?;
            Header::Answer { op: fixed.value, outcome }
        }
        kind::CONNECTION => {
            let step = fixed.flags.step().ok_or(WireError::UnknownFlag)?;
            let data_bytes = u16::try_from(fixed.value).map_err(|_| WireError::ImpossibleLength)?;
            Header::Connection(Handshake { step, number: op, data_bytes })
        }
        _ => Header::Message(message),
    };
    Ok(Some((header, len_bytes)))
}

/// Refuses the start of a fixed part where one of its bytes is wrong already. Beyond the form and its check, zeros are
/// always acceptable, and as a number's missing upper bytes they make it the smallest that it can still
/// become.
#[cold]
fn refuse_early(bytes: &[u8]) -> Result<Option<(Header, usize)>, WireError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut padded = [0; FIXED_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    if bytes.len() <= field::FORM_CHECK {
        padded[field::FORM_CHECK] = form_check(padded[field::FORM], padded[field::REMOTE]);
    }
    Fixed::read(&padded).check()?;
    Ok(None)
}

/// The part that every header has, as it stands.
struct Fixed {
    kind: u8,
    flags: Flags,
    remote_bytes: u8,
    form_check: u8,
    words_check: u8,
    value: u64,
}

impl Fixed {
    fn read(bytes: &[u8; FIXED_BYTES]) -> Fixed {
        let [form, remote_bytes, form_check, words_check, value @ ..] = *bytes;
        Fixed {
            kind: form & kind::MASK,
            flags: Flags::from_bits_retain(form & !kind::MASK),
            remote_bytes,
            form_check,
            words_check,
            value: u64::from_le_bytes(value),
        }
    }

    /// Whether a correct peer may send it, as far as that does not depend on what follows. Kept apart from reading, so that
    /// no checked copy has to be returned. The order is that of the bytes: whichever is wrong first is the reason, however
    /// many of them there are.
    fn check(&self) -> Result<(), WireError> {
        let (known, value_max) = match self.kind {
            kind::MESSAGE | kind::REQUEST => (MESSAGE_FLAGS, MESSAGE_MAX_BYTES),
            kind::ACK | kind::MATCHED | kind::CREDIT => (Flags::empty(), u64::MAX),
            kind::FENCE => (Flags::MATCH, 0),
            kind::FENCED => (Flags::empty(), 0),
            kind::CLEAR => (Flags::CANNOT_PULL, u64::MAX),
            kind::DATA | kind::READ_DATA => (Flags::empty(), MESSAGE_MAX_BYTES),
            kind::DONE => (Flags::FAULT, u64::MAX),
            kind::RMA => (RMA_FLAGS, MESSAGE_MAX_BYTES),
            kind::ANSWER => (Flags::NUMBER, u64::MAX),
            kind::ATOMIC => (Flags::empty(), u64::MAX),
            kind::CONNECTION => {
                let data_max_bytes = self.flags.step().map_or(0, HandshakeStep::data_max_bytes);
                (Flags::NUMBER, data_max_bytes as u64)
            }
            _ => return Err(WireError::UnknownKind),
        };
        let is_contradictory = match self.kind {
            kind::RMA => {
                let is_read = self.flags.contains(Flags::READ) && !self.flags.contains(Flags::DURABLE);
                is_read && ![Flags::READ, SHOWN_FLAGS].contains(&self.flags)
            }
            kind::ANSWER => self.flags.outcome().is_none(),
            kind::CONNECTION => self.flags.step().is_none(),
            _ => self.flags.contains(AWAITS_FLAGS),
        };
        if !known.contains(self.flags) || is_contradictory {
            return Err(WireError::UnknownFlag);
        }
        let is_described = match self.kind {
            kind::REQUEST => true,
            kind::RMA => self.flags.contains(Flags::OFFERED),
            _ => false,
        };
        let remote_max_bytes = if is_described { REMOTE_MAX_BYTES } else { 0 };
        if usize::from(self.remote_bytes) > remote_max_bytes {
            return Err(WireError::ImpossibleLength);
        }
        if self.form_check != form_check(self.kind | self.flags.bits(), self.remote_bytes) {
            return Err(WireError::WrongCheck);
        }
        if self.value > value_max {
            return Err(WireError::ImpossibleLength);
        }
        Ok(())
    }

    fn has_op(&self) -> bool {
        matches!(
            self.kind,
            kind::REQUEST | kind::DATA | kind::RMA | kind::READ_DATA | kind::ATOMIC | kind::CONNECTION
        )
    }

    /// Whether key and address of a region follow.
    fn has_key(&self) -> bool {
        matches!(self.kind, kind::RMA | kind::ATOMIC)
    }

    fn header_len_bytes(&self) -> usize {
        let words = match self.kind {
            kind::RMA => 2 + usize::from(self.flags.contains(Flags::DATA)),
            kind::ATOMIC => 2,
            kind::ANSWER | kind::CONNECTION => 0,
            _ => self.flags.words(),
        };
        FIXED_BYTES + (usize::from(self.has_op()) + words) * WORD_BYTES
    }
}

/// The check of the first two bytes. It differs wherever one of them does.
fn form_check(form: u8, remote_bytes: u8) -> u8 {
    FORM_CHECK_SALT ^ form ^ remote_bytes.rotate_left(4)
}

/// What keeps runs of one byte from being their own check.
const FORM_CHECK_SALT: u8 = 0xa5;

#[cfg(test)]
mod tests;
