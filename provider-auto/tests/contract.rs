//! The contract of a transport over shared memory and TCP.

use std::process::ExitCode;

use homespun_auto::AutoProvider;
use homespun_conformance::transport::Features;
use homespun_conformance::{Contract, run_tests};
use homespun_shm::ShmProvider;
use homespun_suite::Neighbours;
use homespun_tcp::TcpProvider;

fn main() -> ExitCode {
    let of_both = Features::SPLITS | Features::WAKES;
    let of_near = of_both | Features::PULLS | Features::MAPS;
    let near = || AutoProvider::new(ShmProvider::new(), TcpProvider::new());
    // Connects often have to be repeated.
    let short_backlog =
        || AutoProvider::new(ShmProvider::new().with_backlog_connections(1), TcpProvider::new());
    // Every second endpoint is in the other neighbourhood, so some peers are far and some are near.
    let mixed = || Neighbours::new(0);
    let mut tests = Contract::new("near", near, of_near).tests();
    tests.extend(Contract::new("short_backlog", short_backlog, of_near | Features::BACKLOG).tests());
    tests.extend(Contract::new("mixed", mixed, of_both).tests());
    run_tests(tests)
}
