//! The hello of a stream has one encoding only. If the parser refuses the beginning of a hello, it refuses
//! the whole hello too.

#![no_main]

#[path = "../../engine/tests/wire_checks/mod.rs"]
#[expect(dead_code, reason = "holds the checks of the other targets too")]
mod wire_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    wire_checks::check_hello(input);
});
