//! Random programs of posts, reads, peeks, cancels, accesses to regions and atomic operations, over every
//! transport, checked against a model of matching, memory and elements.
//!
//! A [program](program) is run step by step; what it was told is its [history](history), which is
//! then [checked](check). A failure prints the program, shrunk as far as it still fails; the
//! transport's seed is part of it. Shared receive contexts ([`shared_context`]), connected
//! endpoints ([`connected`]) and work that waits for counters ([`works`]) have programs of their
//! own.
//!
//! The environment variable `PROPTEST_CASES` sets how many programs each test runs.

mod accesses;
mod atomics;
#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../../examples/backend.rs"]
#[allow(dead_code, reason = "its main function is another program's")]
mod backend;
mod buffers;
mod check;
mod connected;
mod elements;
mod history;
mod memory;
mod program;
mod reference;
mod rest;
mod run;
mod shared_context;
mod time_limit;
mod updates;
mod works;

use homespun::Fabric;
use homespun_engine::loopback::Faults;
use homespun_suite::{Backend, Net, Transport, Turns};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use crate::backend::ChannelProvider;
use crate::check::Promise;
use crate::program::{Disruption, Program, program};
use crate::time_limit::run_in_time;

homespun_suite::party_process_entry!();

/// The example of a backend.
const EXAMPLE: Transport = Transport::Backend(Backend {
    domain: "channel",
    install: |fabric: Fabric| fabric.with_provider(ChannelProvider::new()),
});

/// How many programs a test runs unless `PROPTEST_CASES` says otherwise.
fn cases(default: u32) -> Config {
    let asked = Config::default();
    Config {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { default },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 5_000,
        max_shrink_time: 60_000,
        ..asked
    }
}

fn run(transport: &Transport, program: &Program, promise: Promise) {
    run_by(Turns::Alternate, transport, program, promise);
}

fn run_by(turns: Turns, transport: &Transport, program: &Program, promise: Promise) {
    let net = Net::new(transport, turns);
    let history = run_in_time(program, || run::run(&net, program));
    check::check(&history, promise);
    memory::check(&history, promise, program.order);
    if program.completes_in_order {
        memory::check_turns(&history);
    }
}

fn loopback(program: &Program, faults: Faults) -> Transport {
    Transport::Loopback { seed: program.seed, faults }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn over_a_clean_network(program in program(Disruption::None)) {
        run(&loopback(&program, Faults::default()), &program, Promise::Everything);
    }

    #[test]
    fn over_a_choppy_network(program in program(Disruption::None)) {
        run(&loopback(&program, Faults::choppy()), &program, Promise::Everything);
    }

    #[test]
    fn over_a_choppy_network_while_endpoints_close(program in program(Disruption::Closing)) {
        run(&loopback(&program, Faults::choppy()), &program, Promise::BetweenTheLiving);
    }

    #[test]
    fn over_a_network_that_breaks_links_and_kills_endpoints(program in program(Disruption::Killing)) {
        run(&loopback(&program, Faults::nasty()), &program, Promise::WhatWasAcknowledged);
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn over_the_example_backend(program in program(Disruption::None)) {
        run(&EXAMPLE, &program, Promise::Everything);
    }

    #[test]
    fn over_the_example_backend_while_endpoints_close(program in program(Disruption::Closing)) {
        run(&EXAMPLE, &program, Promise::BetweenTheLiving);
    }

    #[test]
    fn over_tcp_ipv4(program in program(Disruption::None)) {
        run(&Transport::Tcp4, &program, Promise::Everything);
    }

    #[test]
    fn over_tcp_ipv6(program in program(Disruption::None)) {
        run(&Transport::Tcp6, &program, Promise::Everything);
    }

    #[test]
    fn over_shared_memory_ipv4(program in program(Disruption::None)) {
        run(&Transport::Shm4, &program, Promise::Everything);
    }

    #[test]
    fn over_shared_memory_ipv6(program in program(Disruption::None)) {
        run(&Transport::Shm6, &program, Promise::Everything);
    }

    #[test]
    fn over_shared_memory_while_endpoints_close(program in program(Disruption::Closing)) {
        run(&Transport::Shm4, &program, Promise::BetweenTheLiving);
    }

    #[test]
    fn over_tcp_while_endpoints_close(program in program(Disruption::Closing)) {
        run(&Transport::Tcp4, &program, Promise::BetweenTheLiving);
    }
}

/// Every endpoint in a process of its own. Killing an endpoint kills its process.
mod across_processes {
    use super::*;

    proptest! {
        #![proptest_config(cases(25))]

        #[test]
        fn over_tcp(program in program(Disruption::None)) {
            run_by(Turns::Processes, &Transport::Tcp4, &program, Promise::Everything);
        }

        #[test]
        fn over_tcp_while_endpoints_close(program in program(Disruption::Closing)) {
            run_by(Turns::Processes, &Transport::Tcp4, &program, Promise::BetweenTheLiving);
        }

        #[test]
        fn over_tcp_while_processes_are_killed(program in program(Disruption::Killing)) {
            run_by(Turns::Processes, &Transport::Tcp4, &program, Promise::WhatWasAcknowledged);
        }

        #[test]
        fn over_shared_memory(program in program(Disruption::None)) {
            run_by(Turns::Processes, &Transport::Shm4, &program, Promise::Everything);
        }

        #[test]
        fn over_shared_memory_while_endpoints_close(program in program(Disruption::Closing)) {
            run_by(Turns::Processes, &Transport::Shm4, &program, Promise::BetweenTheLiving);
        }

        #[test]
        fn over_shared_memory_while_processes_are_killed(program in program(Disruption::Killing)) {
            run_by(Turns::Processes, &Transport::Shm4, &program, Promise::WhatWasAcknowledged);
        }
    }
}
