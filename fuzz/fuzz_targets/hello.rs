//! Checks that the hello of a TCP stream has one encoding only. Also checks that the parser refuses a hello
//! if it refuses a beginning of that hello.

#![no_main]

#[path = "../../engine/tests/wire_checks/mod.rs"]
#[expect(dead_code, reason = "holds the checks of the other targets too")]
mod wire_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    wire_checks::check_hello(input);
});
