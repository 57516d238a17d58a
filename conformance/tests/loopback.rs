//! The contract over the in-process network, without and with faults.

use std::process::ExitCode;

use homespun_conformance::transport::Features;
use homespun_conformance::{Contract, run_tests};
use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, Network};

fn main() -> ExitCode {
    let features = Features::MAPS | Features::SPLITS;
    let flawless = || Network::new(1, Faults::default());
    // Links of small capacity that cut and delay bytes at random, are full at random, and refuse some pulls.
    let choppy = || Network::new(2, Faults::choppy());
    // Links of the smallest capacity. Every read is cut at a random byte.
    let tiny = || {
        let faults = Faults { split_per_mille: 1000, ..Faults::default() };
        Network::new(3, Faults { capacity_bytes: CAPACITY_MIN_BYTES, ..faults })
    };
    // Links that pull payload and never refuse a pull.
    let pulling = || Network::new(4, Faults { pull_min_bytes: Some(1000), ..Faults::default() });
    let mut tests = Contract::new("flawless", flawless, features).tests();
    tests.extend(Contract::new("choppy", choppy, features | Features::PULLS).tests());
    tests.extend(Contract::new("tiny", tiny, features).tests());
    tests.extend(Contract::new("pulling", pulling, features | Features::PULLS).tests());
    run_tests(tests)
}
