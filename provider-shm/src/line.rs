//! The layout of a frame's first line, and of the lines with further pieces of its payload.
//!
//! A line is 8 words. The first is there in every line; which others follow it depends on the header, and
//! payload takes the words that are left if it fits, filled up with zeros to a whole word:
//!
//! ```text
//!  word 0, from its lowest bit                            then, each only where the header has it
//!  +----------+-------+-------+------+-------+-----+    +-------+ - - - +--------+ - - - - +
//!  | sequence | check | check | kind | flags | len |    | words         | length | payload |
//!  |          | of    | of    |      |       |     |    |               |        |         |
//!  |          | this  | words |      |       |     |    |               |        |         |
//!  +----------+-------+-------+------+-------+-----+    +-------+ - - - +--------+ - - - - +
//!   16 bits    8       8       8      8       16
//! ```
//!
//! Kind and flags are the header's [form](homespun_engine::wire::Form), which determines how many words it
//! has. The two highest bits of the flags are the line's own: `OUTSIDE` and `LONG`. So is kind 0, a `piece`,
//! which is no header.
//!
//! `len` is the length of the payload in this line, or with `OUTSIDE`, that of the piece of it which lies in
//! the data area. That is all of the payload unless the header says `LONG`: then `length` is what all pieces
//! make together, and lines of kind `piece` follow, one for each. Where in the data area a piece lies is not
//! said: it follows the piece before it.
//!
//! The sequence number says which lap of the ring a line is of: in its place there is either the line of this
//! lap, or still that of the lap before. The bytes of the first word, taken together, are always the same
//! ([`is_sound`]), which the first check brings about; the second is [over](homespun_engine::wire::check)
//! words and length. So no change of a single byte passes unnoticed, be it in the sequence number: then the
//! line is neither of the two.
//!
//! Every header with its payload has exactly one such form for each length of a first piece: what [`parse`]
//! accepts is what [`emit`] writes.

#[cfg(all(test, not(loom)))]
mod tests;

use homespun_engine::wire::check::{Check, fold};
use homespun_engine::wire::{COMMON_KIND, FLAGS_BITS, Fields, Form, Header, WORDS_MAX, WireError};

use crate::segment::{LINE_WORDS, LINES};

/// The largest piece of a payload that a line announces. Small enough that the consumer copies one piece
/// while the producer copies the next, and large enough that the lines cost nothing.
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

const _: () = assert!(field::SEQUENCE == 0 && field::CHECK == field::SEQUENCE + u16::BITS);
const _: () = assert!(field::WORDS_CHECK == field::CHECK + u8::BITS);
const _: () = assert!(field::KIND == field::WORDS_CHECK + u8::BITS);
const _: () = assert!(field::FLAGS == field::KIND + u8::BITS && field::LEN == field::FLAGS + u8::BITS);
const _: () = assert!(field::LEN + u16::BITS == u64::BITS);
const _: () = assert!(PIECE_MAX_BYTES <= u16::MAX as usize && PIECE_MIN_BYTES < PIECE_MAX_BYTES);
// The first word, those of the header, and the length of a payload in pieces.
const _: () = assert!(WORDS_MAX + 2 <= LINE_WORDS);

/// The kind of the line of a further piece. No header is of this kind.
const PIECE: u8 = 0;

/// The payload, or its first piece, lies in the data area.
const OUTSIDE: u8 = 1 << FLAGS_BITS;

/// There are further pieces.
const LONG: u8 = 1 << (FLAGS_BITS + 1);

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
    /// The length of a further piece, which may yet be longer than what is left of the frame, or there may be
    /// no frame.
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

/// What all bytes of a first word make together. Not zero, so that no memory is taken for a line that never
/// was one.
const FOLDED: u8 = 0xa5;

/// The sequence number of a line with a number since the ring was made. Never that of the line which was
/// there before.
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

/// Whether this is what is found in the place of a line that is still to come: the line of the lap before, or
/// nothing yet.
pub(crate) fn is_awaited(first: u64, position: u64) -> bool {
    match position.checked_sub(LINES as u64) {
        Some(before) => sequence_of(first) == sequence(before) && is_sound(first),
        None => first == 0,
    }
}

/// How much payload has room in a line beside this header.
#[inline]
pub(crate) fn room_bytes(header: &Header) -> usize {
    let mut words = 0;
    header.lower(|_| words += 1);
    room_beside(words)
}

#[inline]
fn room_beside(words: usize) -> usize {
    ROOM_MAX_BYTES - words * WORD_BYTES
}

/// Writes the first line of a frame: `put` gets each word but the first, once and in order, and the first is
/// returned. What is said about the payload must be true of the header: a payload that has room is inline,
/// and a first piece is one that [`is_piece`].
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
    let Fields { form, payload_len_bytes } = header.lower(|word| {
        push(word);
        check = check.with(word);
    });
    let mut flags = form.flags();
    let here_bytes = match payload {
        Payload::Inline(bytes) => {
            debug_assert!(bytes.len() as u64 == payload_len_bytes && bytes.len() <= room_bytes(header));
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
            debug_assert!(is_piece(piece_bytes, payload_len_bytes));
            debug_assert!(payload_len_bytes > room_bytes(header) as u64);
            flags |= OUTSIDE;
            if (piece_bytes as u64) < payload_len_bytes {
                flags |= LONG;
                push(payload_len_bytes);
                check = check.with(payload_len_bytes);
            }
            piece_bytes
        }
    };
    first(sequence, check, form.kind(), flags, here_bytes)
}

/// The only word of the line of a further piece, which must be one that [`is_piece`].
#[inline]
pub(crate) fn emit_piece(sequence: u16, piece_bytes: usize) -> u64 {
    first(sequence, Check::default(), PIECE, 0, piece_bytes)
}

#[inline]
fn first(sequence: u16, check: Check, kind: u8, flags: u8, len_bytes: usize) -> u64 {
    let words_check = check.finish();
    // What makes `is_sound` true, from the parts, so that it need not wait for the check of the words.
    let halves = sequence ^ len_bytes as u16;
    let check = (halves ^ halves >> 8) as u8 ^ kind ^ flags ^ FOLDED ^ words_check;
    u64::from(sequence) << field::SEQUENCE
        | u64::from(check) << field::CHECK
        | u64::from(words_check) << field::WORDS_CHECK
        | u64::from(kind) << field::KIND
        | u64::from(flags) << field::FLAGS
        | (len_bytes as u64) << field::LEN
}

/// A first word as it would be if a correct producer had written it, whatever it says, together with these
/// words.
#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) fn sealed(first: u64, word: impl Fn(usize) -> u64) -> u64 {
    let (kind, flags) = ((first >> field::KIND) as u8, (first >> field::FLAGS) as u8);
    let header_words = Form::new(kind, flags & !(OUTSIDE | LONG)).map_or(0, Form::words);
    let words = header_words + usize::from(kind != PIECE && flags & LONG != 0);
    let check = (1..=words).map(word).fold(Check::default(), Check::with);
    let others = first & !(0xff << field::CHECK) & !(0xff << field::WORDS_CHECK);
    let unchecked = others | u64::from(check.finish()) << field::WORDS_CHECK;
    unchecked | u64::from(fold(unchecked) ^ FOLDED) << field::CHECK
}

/// Whether a correct producer may make a piece of this length where `left_bytes` of the payload are left.
#[inline]
pub(crate) fn is_piece(piece_bytes: usize, left_bytes: u64) -> bool {
    let is_last = piece_bytes as u64 == left_bytes && piece_bytes > 0;
    let is_one_of_many = piece_bytes >= PIECE_MIN_BYTES && (piece_bytes as u64) < left_bytes;
    piece_bytes <= PIECE_MAX_BYTES && (is_last || is_one_of_many)
}

/// Reads a line of which the first word is known, and the others are asked for once, as far as they are
/// needed.
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
    let flags = (first >> field::FLAGS) as u8;
    let here_bytes = usize::from((first >> field::LEN) as u16);
    // Most lines are these. Here the kind is a constant, and so is what follows from it.
    if kind == COMMON_KIND && flags & (OUTSIDE | LONG) == 0 {
        let form = Form::new(COMMON_KIND, flags)?;
        return parse_inline(form, words_check, here_bytes, word, payload);
    }
    if kind == PIECE {
        return parse_piece(flags, words_check, here_bytes);
    }
    let form = Form::new(kind, flags & !(OUTSIDE | LONG))?;
    match (flags & OUTSIDE != 0, flags & LONG != 0) {
        (false, false) => parse_inline(form, words_check, here_bytes, word, payload),
        (true, is_long) => parse_outside(form, is_long, words_check, here_bytes, word),
        // Only where there is one piece can there be another.
        (false, true) => Err(WireError::UnknownFlag),
    }
}

/// Reads the line of a frame that is all in it.
#[inline(always)]
fn parse_inline(
    form: Form,
    words_check: u8,
    here_bytes: usize,
    word: impl Fn(usize) -> u64,
    payload: &mut [u8; ROOM_MAX_BYTES],
) -> Result<Parsed, WireError> {
    let (header, used) = raise(form, here_bytes as u64, None, words_check, &word)?;
    if here_bytes > room_beside(used) {
        return Err(WireError::ImpossibleLength);
    }
    copy_inline(here_bytes, 1 + used, word, payload)?;
    Ok(Parsed::Frame(header, Found::Inline(here_bytes)))
}

/// Reads the line of a frame whose payload begins in the data area.
#[inline]
fn parse_outside(
    form: Form,
    is_long: bool,
    words_check: u8,
    piece_bytes: usize,
    word: impl Fn(usize) -> u64,
) -> Result<Parsed, WireError> {
    let long_bytes = is_long.then(|| word((1 + form.words()) % LINE_WORDS));
    let len_bytes = long_bytes.unwrap_or(piece_bytes as u64);
    let (header, used) = raise(form, len_bytes, long_bytes, words_check, &word)?;
    let is_sound = is_piece(piece_bytes, len_bytes)
        && is_long == ((piece_bytes as u64) < len_bytes)
        && len_bytes > room_beside(used) as u64;
    if !is_sound {
        return Err(WireError::ImpossibleLength);
    }
    Ok(Parsed::Frame(header, Found::Outside(piece_bytes)))
}

/// Reads the line of a further piece.
#[inline]
fn parse_piece(flags: u8, words_check: u8, piece_bytes: usize) -> Result<Parsed, WireError> {
    if flags != 0 {
        return Err(WireError::UnknownFlag);
    }
    if words_check != Check::default().finish() {
        return Err(WireError::WrongCheck);
    }
    Ok(Parsed::Piece(piece_bytes))
}

/// Puts a header together from the words of its line, and says how many they were. After them may come the
/// length.
#[inline(always)]
fn raise(
    form: Form,
    payload_len_bytes: u64,
    long_bytes: Option<u64>,
    words_check: u8,
    word: impl Fn(usize) -> u64,
) -> Result<(Header, usize), WireError> {
    let mut used = 0;
    let mut check = Check::default();
    let header = Header::raise(Fields { form, payload_len_bytes }, || {
        used += 1;
        let word = word(used % LINE_WORDS);
        check = check.with(word);
        word
    })?;
    debug_assert_eq!(used, form.words());
    if long_bytes.map_or(check, |long_bytes| check.with(long_bytes)).finish() != words_check {
        return Err(WireError::WrongCheck);
    }
    Ok((header, used))
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
