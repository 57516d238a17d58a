//! Replays the kept inputs of the fuzz targets that concern the wire format.

mod wire_checks;

use std::fs;
use std::ops::Range;
use std::path::Path;

use homespun_engine::wire::hello::VERSION;

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
        assert!(
            name.contains("check") || wire_checks::with_checks(input) == input,
            "{name} has wrong checks"
        );
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
