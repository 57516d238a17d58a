//! The layout of a frame's first line, and of the lines with further pieces of its payload.
//!
//! A line is 8 words. The header determines which words follow the first word. Payload that fits takes the
//! remaining words, padded with zeros to a whole word:
//!
//! ```text
//!  word 0, from its lowest bit            then, each only if the header has it
//!  +----------+------+-------+-----+     +-------+ - - - +--------+ - - - - +
//!  | sequence | kind | flags | len |     | words         | length | payload |
//!  +----------+------+-------+-----+     +-------+ - - - +--------+ - - - - +
//!   32 bits    8      8       16
//! ```
//!
//! Kind and flags are the header's [form](homespun_engine::wire::Form), which determines how many words the
//! header has. This layout adds two flags, the two highest bits: `OUTSIDE` and `LONG`. It also adds the kind
//! 0, `piece`. A line of this kind has no header. It announces a further piece of payload in the main area,
//! `len` bytes long.
//!
//! Without `OUTSIDE`, a frame's payload is in its first line, and `len` is the length of the payload. With
//! `OUTSIDE`, the first piece of the payload is in the main area, and `len` is the length of this piece.
//! Without `LONG`, this piece is the whole payload. If `len` exceeds the longest piece, the whole payload is
//! in the front area, and the excess is its length. With `LONG`, `length` is the length of the whole payload,
//! and a line of kind `piece` follows for each further piece. Lines give no offsets: in its area, each piece
//! starts where the previous piece ends, rounded up to a unit.
//!
//! The sequence number tells to which lap of the ring a line belongs: in each lap, the producer writes every
//! place once. In a correct ring, each place holds either the line of this lap or the line of the previous
//! lap. Lines have no check: what a header may claim is checked, but a peer that writes a wrong tag into its
//! ring has sent a message with that tag.
//!
//! [`parse_line`] accepts only lines that [`emit_line_returning_first_word`] or [`piece_line_word`] can
//! write.

#[cfg(all(test, not(loom)))]
mod tests;

use homespun_engine::wire::{COMMON_KIND, FLAGS_BITS, Fields, Form, Header, Message, WORDS_MAX, WireError};

use crate::segment::{Area, FRONT_BYTES, LINE_WORDS, LINES};

/// The largest piece of payload in the main area. Pieces are small, so that the consumer copies one piece
/// while the producer copies the next. Pieces are large compared with their lines.
pub(crate) const PIECE_MAX_BYTES: usize = if cfg!(loom) { 8 } else { 32 * 1024 };

/// The smallest piece, except for the last piece of a payload.
pub(crate) const PIECE_MIN_BYTES: usize = if cfg!(loom) { 4 } else { 4096 };

/// The longest payload in the front area.
pub(crate) const FRONT_PIECE_MAX_BYTES: usize = if cfg!(loom) { 28 } else { PIECE_MIN_BYTES };

/// The longest payload that fits into a line. Only a header without words leaves this much room.
pub(crate) const ROOM_MAX_BYTES: usize = (LINE_WORDS - 1) * WORD_BYTES;

const WORD_BYTES: usize = size_of::<u64>();

/// The bit offsets of the fields of the first word.
mod field {
    pub(super) const SEQUENCE: u32 = 0;
    pub(super) const KIND: u32 = 32;
    pub(super) const FLAGS: u32 = 40;
    pub(super) const LEN: u32 = 48;
}

const _: () = assert!(field::KIND == field::SEQUENCE + u32::BITS);
const _: () = assert!(field::FLAGS == field::KIND + u8::BITS && field::LEN == field::FLAGS + u8::BITS);
const _: () = assert!(field::LEN + u16::BITS == u64::BITS);
const _: () = assert!(PIECE_MAX_BYTES + FRONT_PIECE_MAX_BYTES <= u16::MAX as usize);
const _: () = assert!(PIECE_MIN_BYTES < PIECE_MAX_BYTES && FRONT_PIECE_MAX_BYTES <= FRONT_BYTES);
// A line has room for the first word, the words of any header, and the length of a payload in pieces.
const _: () = assert!(WORDS_MAX + 2 <= LINE_WORDS);

/// The kind of a line that announces a further piece. No header has this kind.
const PIECE: u8 = 0;

/// Flag: the payload, or its first piece, is in an area.
const OUTSIDE: u8 = 1 << FLAGS_BITS;

/// Flag: further pieces of the payload follow.
const LONG: u8 = 1 << (FLAGS_BITS + 1);

/// The payload that goes with a header.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// The whole payload, at most [`inline_room_bytes`] long.
    Inline(&'a [u8]),
    /// The area that has the first piece of the payload, and the length of this piece. The front area has
    /// only whole payloads.
    Outside(Area, usize),
}

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A frame, and where its payload is.
    Frame(Header, Found),
    /// The length of a further piece. The caller must check that a frame is unfinished, and that the length
    /// is valid for the rest of its payload.
    Piece(usize),
}

/// The place of a parsed frame's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The length of the whole payload, which is in the caller's buffer.
    Inline(usize),
    /// The area that has the first piece of the payload, and the length of this piece.
    Outside(Area, usize),
}

/// The sequence number of the line at `position`, which counts lines since the ring was created. It is not 0
/// in the first lap, so zeroed memory is not a line.
#[inline(always)]
pub(crate) fn sequence_at(position: u64) -> u32 {
    position.wrapping_add(1) as u32
}

/// The sequence number in a first word.
#[inline(always)]
pub(crate) fn sequence_in_first_word(first: u64) -> u32 {
    (first >> field::SEQUENCE) as u32
}

/// Whether a correct ring may hold this first word in the place of the line at `position`, before that line
/// is published. The word must have the sequence number of the line one lap before, or be zero in the first
/// lap.
pub(crate) fn is_from_previous_lap(first: u64, position: u64) -> bool {
    match position.checked_sub(LINES as u64) {
        Some(before) => sequence_in_first_word(first) == sequence_at(before),
        None => first == 0,
    }
}

/// How much payload fits into a line beside this header.
#[inline(always)]
pub(crate) fn inline_room_bytes(header: &Header) -> usize {
    let mut words = 0;
    header.encode_words(|_| words += 1);
    room_bytes_beside_words(words)
}

#[inline]
fn room_bytes_beside_words(words: usize) -> usize {
    ROOM_MAX_BYTES - words * WORD_BYTES
}

/// Writes the first line of a frame: calls `put` for each word except the first, in order, and returns the
/// first word. `payload` must be inline if it fits into the line. Otherwise it must be a first piece whose
/// length [`is_valid_piece_len`] accepts.
#[inline(always)]
pub(crate) fn emit_line_returning_first_word(
    sequence: u32,
    header: &Header,
    payload: Payload<'_>,
    mut put: impl FnMut(usize, u64),
) -> u64 {
    let mut used = 1;
    let mut push = |word: u64| {
        // The line cannot overflow: `payload` is inline only if it fits. `% LINE_WORDS` saves a bounds
        // check.
        put(used % LINE_WORDS, word);
        used += 1;
    };
    let Fields { form, payload_len_bytes } = header.encode_words(&mut push);
    let mut flags = form.flags();
    let here_bytes = match payload {
        Payload::Inline(bytes) => {
            debug_assert!(
                bytes.len() as u64 == payload_len_bytes && bytes.len() <= inline_room_bytes(header)
            );
            let mut rest = bytes;
            if let Ok(only) = bytes.try_into() {
                push(u64::from_le_bytes(only));
                rest = &[];
            }
            while let Some((word, further)) = rest.split_first_chunk() {
                push(u64::from_le_bytes(*word));
                rest = further;
            }
            if !rest.is_empty() {
                push(rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
            }
            bytes.len()
        }
        Payload::Outside(area, piece_bytes) => {
            debug_assert!(match area {
                Area::Front =>
                    payload_len_bytes == piece_bytes as u64 && piece_bytes <= FRONT_PIECE_MAX_BYTES,
                Area::Main => is_valid_piece_len(piece_bytes, payload_len_bytes),
            });
            debug_assert!(payload_len_bytes > inline_room_bytes(header) as u64);
            flags |= OUTSIDE;
            if (piece_bytes as u64) < payload_len_bytes {
                flags |= LONG;
                push(payload_len_bytes);
            }
            if area == Area::Front { PIECE_MAX_BYTES + piece_bytes } else { piece_bytes }
        }
    };
    build_first_word(sequence, form.kind(), flags, here_bytes)
}

/// The only word of a line that announces a further piece. [`is_valid_piece_len`] must accept the length.
#[inline]
pub(crate) fn piece_line_word(sequence: u32, piece_bytes: usize) -> u64 {
    build_first_word(sequence, PIECE, 0, piece_bytes)
}

#[inline(always)]
fn build_first_word(sequence: u32, kind: u8, flags: u8, len_bytes: usize) -> u64 {
    u64::from(sequence) << field::SEQUENCE
        | u64::from(kind) << field::KIND
        | u64::from(flags) << field::FLAGS
        | (len_bytes as u64) << field::LEN
}

/// Whether a correct producer may write a piece of this length when `left_bytes` of the payload remain.
#[inline]
pub(crate) fn is_valid_piece_len(piece_bytes: usize, left_bytes: u64) -> bool {
    let is_last = piece_bytes as u64 == left_bytes && piece_bytes > 0;
    let is_one_of_many = piece_bytes >= PIECE_MIN_BYTES && (piece_bytes as u64) < left_bytes;
    piece_bytes <= PIECE_MAX_BYTES && (is_last || is_one_of_many)
}

/// Reads the line whose first word is `first`. Calls `word` once for each further word that it needs.
///
/// # Errors
///
/// The line is malformed.
#[inline]
pub(crate) fn parse_line(
    first: u64,
    word: impl Fn(usize) -> u64,
    payload: &mut [u8; ROOM_MAX_BYTES],
) -> Result<Parsed, WireError> {
    let kind = (first >> field::KIND) as u8;
    let flags = (first >> field::FLAGS) as u8;
    let here_bytes = usize::from((first >> field::LEN) as u16);
    // In this common case the kind is a constant, so the compiler can specialise the call.
    if kind == COMMON_KIND && flags & (OUTSIDE | LONG) == 0 {
        let form = Form::new(COMMON_KIND, flags)?;
        return parse_inline_line(form, here_bytes, word, payload);
    }
    if kind == PIECE {
        return if flags == 0 { Ok(Parsed::Piece(here_bytes)) } else { Err(WireError::UnknownFlag) };
    }
    let form = Form::new(kind, flags & !(OUTSIDE | LONG))?;
    match (flags & OUTSIDE != 0, flags & LONG != 0) {
        (false, false) => parse_inline_line(form, here_bytes, word, payload),
        (true, is_long) => parse_outside_line(form, is_long, here_bytes, word),
        // `LONG` without `OUTSIDE`: further pieces follow, but there is no first piece.
        (false, true) => Err(WireError::UnknownFlag),
    }
}

/// The place of the payload of a message that has arrived whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundMessage {
    /// In the line, from this word on.
    Inline { place: usize },
    /// In this area, in one piece.
    Outside(Area),
}

/// Reads the line of a message whose payload has arrived whole, and whose sender awaits no reply. Returns
/// `None` for any other line, also for a malformed one. Unlike [`parse_line`], does not look at the padding
/// of inline payload.
#[inline(always)]
pub(crate) fn parse_plain_message_line(
    first: u64,
    word: impl Fn(usize) -> u64,
) -> Option<(Message, FoundMessage)> {
    let (kind, flags) = ((first >> field::KIND) as u8, (first >> field::FLAGS) as u8);
    if kind != COMMON_KIND {
        return None;
    }
    let here_bytes = usize::from((first >> field::LEN) as u16);
    let is_outside = flags & OUTSIDE != 0;
    let (area, len_bytes) = if is_outside { area_and_len(here_bytes) } else { (Area::Main, here_bytes) };
    let mut used = 0;
    let message = Message::decode_plain(flags & !OUTSIDE, len_bytes as u64, || {
        used += 1;
        word(used)
    })?;
    let fits = len_bytes <= room_bytes_beside_words(used);
    if is_outside {
        let is_sound = !fits && len_bytes <= piece_max_bytes(area);
        is_sound.then_some((message, FoundMessage::Outside(area)))
    } else {
        fits.then_some((message, FoundMessage::Inline { place: 1 + used }))
    }
}

/// Returns the area of a piece, and its length, which may be too long for the area.
#[inline(always)]
fn area_and_len(here_bytes: usize) -> (Area, usize) {
    match here_bytes.checked_sub(PIECE_MAX_BYTES) {
        None | Some(0) => (Area::Main, here_bytes),
        Some(len_bytes) => (Area::Front, len_bytes),
    }
}

#[inline(always)]
fn piece_max_bytes(area: Area) -> usize {
    match area {
        Area::Front => FRONT_PIECE_MAX_BYTES,
        Area::Main => PIECE_MAX_BYTES,
    }
}

/// Copies inline payload out of the words from `place` on.
#[inline(always)]
pub(crate) fn copy_out_inline(place: usize, word: impl Fn(usize) -> u64, into: &mut [u8]) {
    if let Ok(only) = <&mut [u8; WORD_BYTES]>::try_from(&mut *into) {
        *only = word(place).to_le_bytes();
        return;
    }
    for (bytes, at) in into.chunks_mut(WORD_BYTES).zip(place..LINE_WORDS) {
        match <&mut [u8; WORD_BYTES]>::try_from(&mut *bytes) {
            Ok(whole) => *whole = word(at).to_le_bytes(),
            Err(_) => bytes.copy_from_slice(&word(at).to_le_bytes()[..bytes.len()]),
        }
    }
}

/// Reads the line of a frame whose payload is inline.
#[inline(always)]
fn parse_inline_line(
    form: Form,
    here_bytes: usize,
    word: impl Fn(usize) -> u64,
    payload: &mut [u8; ROOM_MAX_BYTES],
) -> Result<Parsed, WireError> {
    let (header, used) = parse_header_words(form, here_bytes as u64, &word)?;
    if here_bytes > room_bytes_beside_words(used) {
        return Err(WireError::ImpossibleLength);
    }
    copy_inline_and_check_padding(here_bytes, 1 + used, word, payload)?;
    Ok(Parsed::Frame(header, Found::Inline(here_bytes)))
}

/// Reads the line of a frame whose payload begins in an area.
#[inline]
fn parse_outside_line(
    form: Form,
    is_long: bool,
    here_bytes: usize,
    word: impl Fn(usize) -> u64,
) -> Result<Parsed, WireError> {
    let (area, piece_bytes) = area_and_len(here_bytes);
    let long_bytes = is_long.then(|| word((1 + form.word_count()) % LINE_WORDS));
    let len_bytes = long_bytes.unwrap_or(piece_bytes as u64);
    let (header, used) = parse_header_words(form, len_bytes, &word)?;
    let is_sound = match area {
        Area::Front => !is_long && piece_bytes <= FRONT_PIECE_MAX_BYTES,
        Area::Main => {
            is_valid_piece_len(piece_bytes, len_bytes) && is_long == ((piece_bytes as u64) < len_bytes)
        }
    } && len_bytes > room_bytes_beside_words(used) as u64;
    if !is_sound {
        return Err(WireError::ImpossibleLength);
    }
    Ok(Parsed::Frame(header, Found::Outside(area, piece_bytes)))
}

/// Reads a header from the words of its line. Also returns how many words the header has.
#[inline(always)]
fn parse_header_words(
    form: Form,
    payload_len_bytes: u64,
    word: impl Fn(usize) -> u64,
) -> Result<(Header, usize), WireError> {
    let mut used = 0;
    let header = Header::decode_words(Fields { form, payload_len_bytes }, || {
        used += 1;
        word(used % LINE_WORDS)
    })?;
    debug_assert_eq!(used, form.word_count());
    Ok((header, used))
}

/// Copies inline payload out of the words from `place` on.
#[inline]
fn copy_inline_and_check_padding(
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
