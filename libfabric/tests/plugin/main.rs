//! Loads the plugin as a host does and drives it through its vtables.

mod atomic;
mod av;
mod bursts;
mod connections;
mod counters;
mod cq_memory;
mod eq;
mod host;
mod info;
mod memory;
mod messages;
mod multi_receive;
mod objects;
mod overrun;
mod peek;
mod progress;
mod rma;
mod rx_cq_data;
mod sets;
mod shared_contexts;
mod sources;
mod triggered;
mod vtables;
mod waiting;

use std::env;
use std::process::Command;

/// Runs the tests again over shared memory whose subject differs there. By default tests run over `tcp`. What
/// operations do over either is the subject of `host/tests/semantics.rs`.
#[test]
fn plugin_tests_pass_over_shared_memory() {
    let mut tests = Command::new(env::current_exe().expect("this test's path"));
    tests
        .args([
            "bursts::",
            "connections::",
            "cq_memory::",
            "memory::",
            "overrun::",
            "progress::",
            "sets::",
            "shared_contexts::",
            "triggered::",
            "waiting::",
        ])
        .env("FI_HOMESPUN_DOMAIN", "shm");
    let output = tests.output().expect("this test's program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains(" 0 passed"), "{said}");
}
