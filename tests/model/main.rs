//! Runs the random programs of [`homespun_suite::model`] over every transport. If the model does not explain
//! a history, the test prints the smallest program found that fails, with the seed of its transport.
//!
//! The environment variable `PROPTEST_CASES` sets the number of programs for each test.

#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../../examples/backend/provider.rs"]
mod backend;
mod connected;
mod shared_context;
mod works;

use homespun::Fabric;
use homespun_engine::loopback::Faults;
use homespun_suite::model::{Disruption, Offer, Program, Promise, any_program};
use homespun_suite::{Backend, TransportKind, Turns};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use crate::backend::ChannelProvider;

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
    homespun_suite::model::run_and_check(Turns::Alternate, transport, &Offer::NATIVE, program, promise);
}

fn run_and_check_across_processes(transport: &TransportKind, program: &Program, promise: Promise) {
    homespun_suite::model::run_and_check(Turns::Processes, transport, &Offer::NATIVE, program, promise);
}

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed(), faults }
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
