//! Headers for the tests and fuzz targets of layouts and transports. The rules determine the headers, so the
//! tests also cover a new header.

use super::frame::{self, HEADER_MAX_BYTES};
use super::headers::AtomicForm;
use super::rule::{Fields, Form};
use super::{Header, WORDS_MAX};
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::limits::{CONNECTION_DATA_MAX_BYTES, MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};

/// The number of pairs that [`last_words_and_lengths`] returns.
pub const PAIRS: usize = 6;

/// Returns pairs of a header's last word and its payload length, made from a number. For any number, every
/// form accepts at least one pair. If a new header restricts its last word in a new way, add a pair.
pub fn last_words_and_lengths(number: u64) -> [(u64, u64); PAIRS] {
    let len_bytes = number % (MESSAGE_MAX_BYTES + 1);
    let up_to = |max_bytes: usize| number % (max_bytes as u64 + 1);
    let atomic = sample_atomic_form(number);
    [
        (len_bytes, len_bytes),
        (len_bytes, up_to(REMOTE_MAX_BYTES)),
        (len_bytes, up_to(CONNECTION_DATA_MAX_BYTES)),
        (number, 0),
        (len_bytes, 0),
        (atomic.number(), atomic.payload_len_bytes() as u64),
    ]
}

/// Returns the header with this form, last word and payload length. Its other words are `number` and
/// `!number` in turn. Returns `None` if no correct peer sends this header.
pub fn sample_header(form: Form, number: u64, last_word_and_length: (u64, u64)) -> Option<Header> {
    let mut words = [number, !number].into_iter().cycle();
    let words: [u64; WORDS_MAX] = std::array::from_fn(|_| words.next().unwrap_or_default());
    header_with_last_word(form, &words, last_word_and_length)
}

/// Returns the header with this form and these words, but with the given last word. Returns `None` if no
/// correct peer sends this header.
///
/// # Panics
///
/// If there are fewer words than the form has.
pub fn header_with_last_word(
    form: Form,
    words: &[u64],
    (last_word, payload_len_bytes): (u64, u64),
) -> Option<Header> {
    let mut at = 0;
    let word = || {
        at += 1;
        if at == form.word_count() { last_word } else { words[at - 1] }
    };
    Header::decode_words(Fields { form, payload_len_bytes }, word).ok()
}

/// Returns a header with this form, made from this number. Its end is the first of the
/// [pairs](last_words_and_lengths) that the form accepts, counted from the pair `first_pair`.
///
/// # Panics
///
/// If the form accepts no pair. To repair this, add a pair to [`last_words_and_lengths`].
pub fn fitting_header(form: Form, number: u64, first_pair: usize) -> Header {
    let ends = last_words_and_lengths(number);
    let mut found = (0..PAIRS).filter_map(|n| sample_header(form, number, ends[(first_pair + n) % PAIRS]));
    found.next().unwrap_or_else(|| panic!("no pair suits {form:?}"))
}

/// Returns an operation that depends on the number.
fn sample_atomic_form(number: u64) -> AtomicForm {
    /// Takes the lowest digit from `number`, and returns the element of `all` at that digit.
    fn pick_by_digit<T: Copy>(all: &[T], number: &mut u64) -> T {
        let count = all.len() as u64;
        let one = all[(*number % count) as usize];
        *number /= count;
        one
    }
    let mut number = number;
    let datatype = pick_by_digit(&Datatype::ALL, &mut number);
    let op = pick_by_digit(&AtomicOp::ALL, &mut number);
    let kind = pick_by_digit(&AtomicKind::ALL, &mut number);
    let (kind, op) =
        if kind.can_apply(op, datatype) { (kind, op) } else { (AtomicKind::Fetch, AtomicOp::Read) };
    let count = 1 + (number % datatype.count_max() as u64) as usize;
    AtomicForm::new(kind, op, datatype, count).expect("every datatype can be read")
}

/// Returns the bytes of these frames, one after the other: each has a header and its payload.
pub fn stream_bytes(frames: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (header, payload) in frames {
        let mut buffer = [0; HEADER_MAX_BYTES];
        let len_bytes = frame::emit(header, &mut buffer);
        stream.extend_from_slice(&buffer[..len_bytes]);
        stream.extend_from_slice(payload);
    }
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_accepts_a_last_word_and_length_for_any_number() {
        for number in [0, 1, 64, 5000, 0x0123_4567_89ab_cdef, u64::MAX].into_iter().chain(300..2000) {
            for form in Form::all() {
                let made = fitting_header(form, number, 0).encode_words(drop::<u64>).form;
                assert_eq!((made.kind(), made.flags()), (form.kind(), form.flags()), "{number}");
            }
        }
    }
}
