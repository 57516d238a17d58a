//! The layout of a [`Header`] on a byte stream, all numbers little-endian.
//!
//! ```text
//!  offset  0      1       2       3       4
//!          +------+-------+-------+-------+-------+ - - - +--------+ - - - -
//!          | kind | flags | check | check | words         | length | payload
//!          |      |       | form  | words |               |        |
//!          +------+-------+-------+-------+-------+ - - - +--------+ - - - -
//!  bytes   1      1       1       1       8 each          8, if the header may have payload
//! ```
//!
//! Kind and flags are the header's [form](super::Form). The form determines how many words follow,
//! and whether a payload length follows. Every header has exactly one layout: [`parse`] accepts
//! only bytes that [`emit`] writes.
//!
//! The two checks catch errors that TCP's own checksum misses. The first check covers kind and
//! flags. The header's length depends on kind and flags, so this check comes before the wait for
//! more bytes. The second [check](super::checksum) covers the words and the length. Together, the
//! checks notice every change of a single byte.

use crate::wire::checksum::Checksum;
use crate::wire::error::WireError;
use crate::wire::header::{Header, WORDS_MAX};
use crate::wire::rule::{Fields, Form};

/// The size of the largest header in bytes.
pub const HEADER_MAX_BYTES: usize = FIXED_BYTES + (WORDS_MAX + 1) * WORD_BYTES;

/// Kind, flags and the two checks, each a byte.
const FIXED_BYTES: usize = 4;

const WORD_BYTES: usize = size_of::<u64>();

/// Returns the size of a header on the stream in bytes, without the payload.
pub fn header_len_bytes(header: &Header) -> usize {
    let mut words = 0;
    let fields = header.encode_words(|_| words += 1);
    FIXED_BYTES + (words + usize::from(fields.form.can_have_payload())) * WORD_BYTES
}

/// Writes a header to the start of `buffer`, and returns the header's size in bytes.
pub fn emit(header: &Header, buffer: &mut [u8; HEADER_MAX_BYTES]) -> usize {
    let mut check = Checksum::default();
    let mut end = FIXED_BYTES;
    let mut put = |word: u64| {
        buffer[end..end + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
        check = check.with_word(word);
        end += WORD_BYTES;
    };
    let Fields { form, payload_len_bytes } = header.encode_words(&mut put);
    if form.can_have_payload() {
        put(payload_len_bytes);
    }
    let fixed = [form.kind(), form.flags(), form_checksum(form.kind(), form.flags()), check.finish()];
    buffer[..FIXED_BYTES].copy_from_slice(&fixed);
    end
}

/// Reads the header at the start of `bytes`. Returns the header and its size in bytes, or `None` if
/// the header is incomplete.
///
/// # Errors
///
/// The bytes are not a header. An error in the form is reported as soon as the wrong byte has
/// arrived. Other errors are reported when the header is complete.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, WireError> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
        return check_partial_form(bytes);
    };
    let [kind, flags, check_of_form, check_of_words] = *fixed;
    let form = Form::new(kind, flags)?;
    if check_of_form != form_checksum(kind, flags) {
        return Err(WireError::WrongCheck);
    }
    let count = form.word_count() + usize::from(form.can_have_payload());
    let Some(words) = rest.as_chunks().0.get(..count) else {
        return Ok(None);
    };
    let check =
        words.iter().fold(Checksum::default(), |check, word| check.with_word(u64::from_le_bytes(*word)));
    if check.finish() != check_of_words {
        return Err(WireError::WrongCheck);
    }
    let payload_len_bytes = match words.last() {
        Some(last) if form.can_have_payload() => u64::from_le_bytes(*last),
        _ => 0,
    };
    let mut words = words.iter();
    let word = || words.next().map_or(0, |word| u64::from_le_bytes(*word));
    let header = Header::decode_words(Fields { form, payload_len_bytes }, word)?;
    Ok(Some((header, FIXED_BYTES + count * WORD_BYTES)))
}

/// Refuses an incomplete form if one of its bytes is already wrong.
#[cold]
fn check_partial_form(bytes: &[u8]) -> Result<Option<(Header, usize)>, WireError> {
    match *bytes {
        [] => {}
        // This checks the kind alone: every kind has a form without flags.
        [kind] => _ = Form::new(kind, 0)?,
        [kind, flags] => _ = Form::new(kind, flags)?,
        [kind, flags, check, ..] => {
            Form::new(kind, flags)?;
            if check != form_checksum(kind, flags) {
                return Err(WireError::WrongCheck);
            }
        }
    }
    Ok(None)
}

/// Returns the check of kind and flags. A change of either one changes the check.
fn form_checksum(kind: u8, flags: u8) -> u8 {
    FORM_CHECK_SALT ^ kind ^ flags.rotate_left(4)
}

/// A constant part of the check, so that the check of zero bytes is not zero.
const FORM_CHECK_SALT: u8 = 0xa5;

#[cfg(test)]
mod tests;
