//! Runs random programs of posts, reads, peeks, cancels, accesses and atomic operations over every
//! transport. Checks the results against a model of matching, memory and elements.
//!
//! The runner executes a [program](program) step by step, and records the calls and their results as a
//! [history](history). Then it [checks](check) the history. If a check fails, the test prints the smallest
//! program found that fails, with the seed of its transport. Shared receive contexts ([`shared_context`]),
//! connected endpoints ([`connected`]) and deferred work ([`works`]) have their own programs.
//!
//! The environment variable `PROPTEST_CASES` sets the number of programs for each test.

mod accesses;
mod atomics;
#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../../examples/backend/provider.rs"]
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
use homespun_suite::{Backend, Net, TransportKind, Turns};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use crate::backend::ChannelProvider;
use crate::check::Promise;
use crate::program::{Disruption, Program, any_program};
use crate::time_limit::run_with_time_limit;

homespun_suite::party_process_entry!();

/// The example of a backend.
const EXAMPLE: TransportKind = TransportKind::Backend(Backend {
    domain: "channel",
    install: |fabric: Fabric| fabric.with_provider(ChannelProvider::new()),
});

/// Returns a configuration with this number of programs, or with `PROPTEST_CASES` if it is set.
fn proptest_config(default: u32) -> Config {
    let asked = Config::default();
    Config {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { default },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 5_000,
        max_shrink_time: 60_000,
        ..asked
    }
}

fn run_and_check(transport: &TransportKind, program: &Program, promise: Promise) {
    run_and_check_with_turns(Turns::Alternate, transport, program, promise);
}

fn run_and_check_across_processes(transport: &TransportKind, program: &Program, promise: Promise) {
    run_and_check_with_turns(Turns::Processes, transport, program, promise);
}

fn run_and_check_with_turns(turns: Turns, transport: &TransportKind, program: &Program, promise: Promise) {
    let net = Net::new(transport, turns);
    let history = run_with_time_limit(program, || run::run_program(&net, program));
    check::check_history(&history, promise);
    memory::check_accesses(&history, promise, program.order);
    if program.completes_in_order {
        memory::check_completion_order(&history);
    }
}

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed, faults }
}

proptest! {
    #![proptest_config(proptest_config(200))]

    #[test]
    fn programs_over_a_clean_network_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&faulty_loopback(&program, Faults::default()), &program, Promise::Everything);
    }

    #[test]
    fn programs_over_a_choppy_network_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&faulty_loopback(&program, Faults::choppy()), &program, Promise::Everything);
    }

    #[test]
    fn programs_over_a_choppy_network_while_endpoints_close_match_the_model(
        program in any_program(Disruption::Closing),
    ) {
        run_and_check(&faulty_loopback(&program, Faults::choppy()), &program, Promise::ToOpenReceivers);
    }

    #[test]
    fn programs_over_a_network_that_breaks_links_and_kills_endpoints_match_the_model(
        program in any_program(Disruption::Killing),
    ) {
        run_and_check(&faulty_loopback(&program, Faults::nasty()), &program, Promise::AcknowledgedOnly);
    }
}

proptest! {
    #![proptest_config(proptest_config(100))]

    #[test]
    fn programs_over_the_example_backend_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&EXAMPLE, &program, Promise::Everything);
    }

    #[test]
    fn programs_over_the_example_backend_while_endpoints_close_match_the_model(
        program in any_program(Disruption::Closing),
    ) {
        run_and_check(&EXAMPLE, &program, Promise::ToOpenReceivers);
    }

    #[test]
    fn programs_over_tcp_ipv4_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&TransportKind::Tcp4, &program, Promise::Everything);
    }

    #[test]
    fn programs_over_tcp_ipv6_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&TransportKind::Tcp6, &program, Promise::Everything);
    }

    #[test]
    fn programs_over_shared_memory_ipv4_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&TransportKind::Shm4, &program, Promise::Everything);
    }

    #[test]
    fn programs_over_shared_memory_ipv6_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&TransportKind::Shm6, &program, Promise::Everything);
    }

    #[test]
    fn programs_over_shared_memory_while_endpoints_close_match_the_model(
        program in any_program(Disruption::Closing),
    ) {
        run_and_check(&TransportKind::Shm4, &program, Promise::ToOpenReceivers);
    }

    #[test]
    fn programs_over_near_and_far_peers_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(&TransportKind::MIXED4, &program, Promise::Everything);
    }

    #[test]
    fn programs_over_near_and_far_peers_while_endpoints_close_match_the_model(
        program in any_program(Disruption::Closing),
    ) {
        run_and_check(&TransportKind::MIXED4, &program, Promise::ToOpenReceivers);
    }

    #[test]
    fn programs_over_tcp_while_endpoints_close_match_the_model(program in any_program(Disruption::Closing)) {
        run_and_check(&TransportKind::Tcp4, &program, Promise::ToOpenReceivers);
    }
}

/// Runs each endpoint in a process of its own. To kill an endpoint, the test kills its process.
mod across_processes {
    use super::*;

    proptest! {
        #![proptest_config(proptest_config(25))]

        #[test]
        fn programs_over_tcp_match_the_model(program in any_program(Disruption::None)) {
            run_and_check_across_processes(&TransportKind::Tcp4, &program, Promise::Everything);
        }

        #[test]
        fn programs_over_tcp_while_endpoints_close_match_the_model(
            program in any_program(Disruption::Closing),
        ) {
            run_and_check_across_processes(&TransportKind::Tcp4, &program, Promise::ToOpenReceivers);
        }

        #[test]
        fn programs_over_tcp_while_processes_are_killed_match_the_model(
            program in any_program(Disruption::Killing),
        ) {
            run_and_check_across_processes(&TransportKind::Tcp4, &program, Promise::AcknowledgedOnly);
        }

        #[test]
        fn programs_over_near_and_far_peers_match_the_model(program in any_program(Disruption::None)) {
            run_and_check_across_processes(&TransportKind::MIXED4, &program, Promise::Everything);
        }

        #[test]
        fn programs_over_near_and_far_peers_while_processes_are_killed_match_the_model(
            program in any_program(Disruption::Killing),
        ) {
            run_and_check_across_processes(&TransportKind::MIXED4, &program, Promise::AcknowledgedOnly);
        }

        #[test]
        fn programs_over_shared_memory_match_the_model(program in any_program(Disruption::None)) {
            run_and_check_across_processes(&TransportKind::Shm4, &program, Promise::Everything);
        }

        #[test]
        fn programs_over_shared_memory_while_endpoints_close_match_the_model(
            program in any_program(Disruption::Closing),
        ) {
            run_and_check_across_processes(&TransportKind::Shm4, &program, Promise::ToOpenReceivers);
        }

        #[test]
        fn programs_over_shared_memory_while_processes_are_killed_match_the_model(
            program in any_program(Disruption::Killing),
        ) {
            run_and_check_across_processes(&TransportKind::Shm4, &program, Promise::AcknowledgedOnly);
        }
    }
}
