//! Sample headers of every [`Form`]. The rules of the wire format determine them, so they include new forms.

use homespun_engine::limits::{CONNECTION_DATA_MAX_BYTES, REMOTE_MAX_BYTES};
use homespun_engine::wire::{Form, Header, samples};

/// The values of the words of a header, and the lengths of payloads that the header allows.
const NUMBERS: [usize; 8] = [0, 1, 16, 17, REMOTE_MAX_BYTES, 100, CONNECTION_DATA_MAX_BYTES, 5000];

/// Returns headers of every form.
pub(super) fn sample_headers() -> Vec<Header> {
    let pairs = NUMBERS.into_iter().flat_map(|number| (0..samples::PAIRS).map(move |pair| (number, pair)));
    let headers_of =
        |form| pairs.clone().map(move |(number, pair)| samples::fitting_header(form, number as u64, pair));
    Form::all().flat_map(headers_of).collect()
}
