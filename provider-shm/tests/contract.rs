//! The contract of a transport over shared memory.

use std::process::ExitCode;

use homespun_conformance::transport::Features;
use homespun_conformance::{Contract, run_tests};
use homespun_shm::ShmProvider;

fn main() -> ExitCode {
    let features = Features::PULLS | Features::MAPS | Features::SPLITS | Features::WAKES;
    // Connects often have to be repeated.
    let short_backlog = || ShmProvider::new().with_backlog_connections(1);
    let mut tests = Contract::new("shm", ShmProvider::new, features).tests();
    tests.extend(Contract::new("short_backlog", short_backlog, features | Features::BACKLOG).tests());
    run_tests(tests)
}
