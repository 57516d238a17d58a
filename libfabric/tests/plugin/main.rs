//! Loads the plugin as a host does and drives it through its vtables.

mod atomic;
mod av;
mod connections;
mod entries;
mod events;
mod host;
mod info;
mod memory;
mod objects;
mod posts;
mod shared_contexts;
mod triggered;
mod vtables;
mod waiting;

use std::env;
use std::process::Command;

/// Runs the tests again over shared memory. By default they run over `tcp`. What operations do over either is
/// the subject of `host/tests/semantics.rs`.
#[test]
fn plugin_tests_pass_over_shared_memory() {
    let mut tests = Command::new(env::current_exe().expect("this test's path"));
    tests.args(["--skip", "plugin_tests_pass", "--skip", "info::"]).env("FI_HOMESPUN_DOMAIN", "shm");
    let output = tests.output().expect("this test's program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains(" 0 passed"), "{said}");
}
