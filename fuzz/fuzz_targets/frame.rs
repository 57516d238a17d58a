//! Checks that each header of a frame has only one encoding. Also parses each beginning of a header. The
//! parser must give the same answer as for the whole header, or ask for more bytes.

#![no_main]

#[path = "../../engine/tests/wire_checks/mod.rs"]
#[expect(dead_code, reason = "holds the checks of the other targets too")]
mod wire_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    wire_checks::check_frame(input);
});
