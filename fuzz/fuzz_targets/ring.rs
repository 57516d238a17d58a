//! Checks that both ends of a ring stay safe although the fuzzer overwrites the ring's memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    homespun_shm::fuzzing::run_ring_program(input);
});
