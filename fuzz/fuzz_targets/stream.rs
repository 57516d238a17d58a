//! Checks that a stream of frames decodes to the same frames, however the stream is split.

#![no_main]

#[path = "../../engine/tests/wire_checks/mod.rs"]
#[expect(dead_code, reason = "holds the checks of the other targets too")]
mod wire_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    wire_checks::check_stream(input);
});
