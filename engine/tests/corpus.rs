//! Replays the kept inputs of the fuzz targets that concern the wire format.

mod wire_checks;

use std::fs;
use std::path::Path;

/// Runs a check over a target's corpus. Both verdicts must occur in it, or the corpus shows little.
fn replay(target: &str, check: fn(&[u8]) -> bool) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut verdicts = [0, 0];
    for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        let is_acceptable = check(&input);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(!name.starts_with("good-") || is_acceptable, "{name} was refused");
        assert!(!name.starts_with("bad-") || !is_acceptable, "{name} was accepted");
        verdicts[usize::from(is_acceptable)] += 1;
    }
    assert!(verdicts.iter().all(|&count| count > 0), "{target}: refused and accepted: {verdicts:?}");
}

#[test]
fn frame() {
    replay("frame", wire_checks::frame);
}

#[test]
fn hello() {
    replay("hello", wire_checks::hello);
}

#[test]
fn stream() {
    replay("stream", wire_checks::stream);
}
