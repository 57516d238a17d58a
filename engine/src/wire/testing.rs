//! Headers of every kind for the tests of this module. The rules determine the headers, so the tests also
//! cover a new header.

use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::limits::MESSAGE_MAX_BYTES;
use crate::wire::{AtomicForm, Form, Header, samples};

/// Returns the header with this form, these words, and this pair of last word and payload length. Returns
/// `None` if no correct peer sends this header.
fn valid_header(form: Form, words: &[u64], end: (u64, u64)) -> Option<Header> {
    let header = samples::header_with_last_word(form, words, end)?;
    let encoded = header.encode_words(drop::<u64>).form;
    assert_eq!((encoded.kind(), encoded.flags()), (form.kind(), form.flags()), "a flag is not raised");
    Some(header)
}

fn all_atomic_forms(count: usize) -> Vec<AtomicForm> {
    let operations = AtomicOp::ALL.into_iter().flat_map(|op| AtomicKind::ALL.map(|kind| (kind, op)));
    let all = operations.flat_map(|(kind, op)| Datatype::ALL.map(|datatype| (kind, op, datatype)));
    all.filter_map(|(kind, op, datatype)| AtomicForm::new(kind, op, datatype, count)).collect()
}

/// Returns headers of every form, also with numbers whose bytes all differ.
pub(super) fn sample_headers() -> Vec<Header> {
    const NUMBER: u64 = 0x0123_4567_89ab_cdef;
    // More pairs of last word and payload length than `samples` has.
    let mut ends = vec![
        (NUMBER, 0),
        (0, 1),
        (0x01_2345, 0),
        (0x01_2345, 64),
        (MESSAGE_MAX_BYTES, 0x01_2345),
        (0, MESSAGE_MAX_BYTES),
    ];
    let forms = all_atomic_forms(0x0102).into_iter().step_by(20);
    ends.extend(forms.map(|form| (form.number(), form.payload_len_bytes() as u64)));
    let mut headers = Vec::new();
    for form in Form::all() {
        let before = headers.len();
        for number in [0, NUMBER, u64::MAX] {
            let words = [number, !number, number, !number, number, !number];
            let all = ends.iter().copied().chain(samples::last_words_and_lengths(number));
            headers.extend(all.filter_map(|end| valid_header(form, &words, end)));
        }
        assert!(headers.len() > before, "no sample is a header of {form:?}");
    }
    headers
}
