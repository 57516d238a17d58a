//! Checks that each hello of a TCP stream has only one encoding. If the parser refuses a beginning of a
//! hello, it must also refuse the whole hello.

#![no_main]

#[path = "../../engine/tests/wire_checks/mod.rs"]
#[expect(dead_code, reason = "holds the checks of the other targets too")]
mod wire_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    wire_checks::check_hello(input);
});
