//! Replays the kept inputs of the fuzz targets that concern the wire format, and runs their checks on random
//! inputs.

mod wire_checks;

use std::fs;
use std::ops::Range;
use std::path::Path;

use homespun_engine::wire::hello::VERSION;
use homespun_engine::wire::samples::{self, stream_bytes};
use homespun_engine::wire::{Form, Header};
use proptest::prelude::*;

use self::wire_checks::decode_stream;

/// Runs a check on each input of a fuzz target's corpus. The check gets the input's name and bytes, and
/// returns whether they are acceptable. The corpus must have acceptable inputs and others.
fn replay_corpus(target: &str, check: impl Fn(&str, &[u8]) -> bool) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut verdicts = [0, 0];
    for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_acceptable = check(&name, &input);
        assert!(!name.starts_with("good-") || is_acceptable, "{name} was refused");
        assert!(!name.starts_with("bad-") || !is_acceptable, "{name} was accepted");
        verdicts[usize::from(is_acceptable)] += 1;
    }
    assert!(verdicts.iter().all(|&count| count > 0), "{target}: refused and accepted: {verdicts:?}");
}

/// Returns the bytes of a hello with the current version. If the hello had a valid check, the result has
/// one too.
fn with_current_version(hello: &[u8]) -> Vec<u8> {
    const VERSION_AT: Range<usize> = 8..10;
    let mut current = hello.to_vec();
    if hello.starts_with(b"homespun") {
        current[VERSION_AT].copy_from_slice(&VERSION.to_le_bytes());
    }
    match (hello.first_chunk(), current.first_chunk()) {
        (Some(before), Some(now)) if wire_checks::with_check(*before) == *before => {
            wire_checks::with_check(*now).to_vec()
        }
        _ => current,
    }
}

#[test]
fn frame_corpus_inputs_are_accepted_or_refused_as_named() {
    replay_corpus("frame", |name, input| {
        let is_acceptable = wire_checks::check_frame(input);
        // An input that breaks a rule must be refused for that, and not for a wrong check.
        let has_right_checks = wire_checks::with_checks(input) == input;
        assert!(name.contains("check") || has_right_checks, "{name} has wrong checks");
        is_acceptable
    });
}

#[test]
fn hello_corpus_inputs_are_accepted_or_refused_as_named() {
    // Other inputs get the current version, so that they are refused only for their own fault.
    replay_corpus("hello", |name, input| {
        let shows_version = name.contains("version");
        wire_checks::check_hello(&if shows_version { input.to_vec() } else { with_current_version(input) })
    });
}

#[test]
fn claim_corpus_inputs_are_accepted_or_refused_as_named() {
    replay_corpus("address_claim", |_, input| wire_checks::check_claim_record(input));
}

#[test]
fn stream_corpus_inputs_are_accepted_or_refused_as_named() {
    replay_corpus("stream", |_, input| wire_checks::check_stream(input));
}

type Frame = (Header, Vec<u8>);

fn any_frame() -> impl Strategy<Value = Frame> {
    let forms = prop::sample::select(Form::all().collect::<Vec<_>>());
    (forms, 0..100_u64, 0..samples::PAIRS, any::<u8>()).prop_map(|(form, number, pair, first)| {
        let header = samples::fitting_header(form, number, pair);
        let payload = (0..header.payload_len_bytes()).map(|at| first.wrapping_add(at as u8)).collect();
        (header, payload)
    })
}

proptest! {
    #[test]
    fn frames_decode_alike_for_any_split(
        frames in prop::collection::vec(any_frame(), 1..12),
        arrivals in prop::collection::vec(any::<u8>(), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let stream = stream_bytes(&frames);
        let whole = decode_stream(&stream, &arrivals);
        prop_assert_eq!(&whole.frames, &frames);
        prop_assert!(whole.refused.is_none() && !whole.is_reading_frame);
        // A decoder is in the middle of a frame after a cut inside it.
        let cut = cut.index(stream.len());
        let is_between = (0..frames.len()).any(|count| stream_bytes(&frames[..count]).len() == cut);
        prop_assert_eq!(decode_stream(&stream[..cut], &arrivals).is_reading_frame, !is_between);
    }

    #[test]
    fn violation_is_reported_alike_for_any_split(
        frames in prop::collection::vec(any_frame(), 0..4),
        garbage in prop::collection::vec(prop_oneof![any::<u8>(), 0..4_u8], 0..60),
        arrivals in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let stream = [stream_bytes(&frames), garbage].concat();
        wire_checks::check_stream(&[&[arrivals.len() as u8], &arrivals[..], &stream].concat());
    }

    #[test]
    fn accepted_bytes_are_the_only_layout_of_their_header(
        (kind, flags) in prop_oneof![4 => (0..30_u8, 0..16_u8), 1 => any::<(u8, u8)>()],
        words in prop::collection::vec(prop_oneof![3 => 0..70_u64, 1 => any::<u64>()], 0..7),
        cut_bytes in prop_oneof![3 => Just(0), 1 => 0..60_usize],
    ) {
        let mut bytes = vec![kind, flags, 0, 0];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.truncate(bytes.len().saturating_sub(cut_bytes));
        wire_checks::check_frame(&bytes);
    }
}
