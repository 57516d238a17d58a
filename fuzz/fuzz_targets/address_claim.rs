//! Checks that each record about an address claim (docs/decisions/tcp-claims.md) has only one encoding. A
//! record that parses must encode to the same bytes.

#![no_main]

#[path = "../../engine/tests/wire_checks/mod.rs"]
#[expect(dead_code, reason = "holds the checks of the other targets too")]
mod wire_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    wire_checks::check_claim_record(input);
});
