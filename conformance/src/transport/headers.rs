//! Sample headers of every [`Form`]. The rules of the wire format determine them, so they include new forms.

use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::limits::{CONNECTION_DATA_MAX_BYTES, MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use homespun_engine::wire::{AtomicForm, Form, Header, samples};

/// The values of the words of a header.
const NUMBERS: [u64; 4] = [0, 1, u64::MAX, 0x0123_4567_89ab_cdef];

/// The lengths of payloads, if the header allows them.
const PAYLOADS_BYTES: [usize; 8] = [0, 1, 16, 17, REMOTE_MAX_BYTES, 100, CONNECTION_DATA_MAX_BYTES, 5000];

/// Returns headers of every form.
///
/// # Panics
///
/// If no sample suits some form. To repair this, add a pair to [`samples::last_words_and_lengths`].
pub(super) fn sample_headers() -> Vec<Header> {
    let mut headers = Vec::new();
    for form in Form::all() {
        let before = headers.len();
        for number in NUMBERS {
            headers.extend(
                last_header_words_and_payload_lengths(number)
                    .into_iter()
                    .filter_map(|end| samples::sample_header(form, number, end)),
            );
        }
        assert!(headers.len() > before, "no sample is a header of {form:?}");
    }
    headers
}

/// Returns values for the last word of a header, each with a payload length. Every [`Form`] of header
/// accepts some of these pairs. All payloads are short enough for a test.
fn last_header_words_and_payload_lengths(number: u64) -> Vec<(u64, u64)> {
    let lasts = [number, 0, number & 0xff_ffff, MESSAGE_MAX_BYTES];
    let payloads = |last| PAYLOADS_BYTES.map(|len_bytes| (last, len_bytes as u64));
    let atomics = [
        (AtomicKind::Base, AtomicOp::Sum, Datatype::Uint64, 1),
        (AtomicKind::Base, AtomicOp::Band, Datatype::Uint8, 25),
        (AtomicKind::Fetch, AtomicOp::Read, Datatype::DoubleComplex, 7),
        (AtomicKind::Fetch, AtomicOp::Write, Datatype::Int16, Datatype::Int16.count_max()),
        (AtomicKind::Compare, AtomicOp::Cswap, Datatype::Uint64, 1),
        (AtomicKind::Compare, AtomicOp::CswapGt, Datatype::Float, Datatype::Float.count_max()),
    ];
    let atomics = atomics.into_iter().filter_map(|(kind, op, datatype, count)| {
        let form = AtomicForm::new(kind, op, datatype, count)?;
        Some((form.number(), form.payload_len_bytes() as u64))
    });
    let others = samples::last_words_and_lengths(number % PAYLOADS_BYTES[PAYLOADS_BYTES.len() - 1] as u64);
    lasts.into_iter().flat_map(payloads).chain(atomics).chain(others).collect()
}
