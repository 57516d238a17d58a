//! Runs the random programs of [`homespun_suite::model`] over every transport. If the model does not explain
//! a history, the test prints the smallest program found that fails, with the seed of its transport.
//!
//! The environment variable `PROPTEST_CASES` sets the number of programs for each test.

#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../../examples/backend/provider.rs"]
mod backend;
mod replay;
mod shared_context;
mod works;

use homespun::Fabric;
use homespun_engine::loopback::Faults;
use homespun_suite::model::{Disruption, Offer, Program, any_connected_program, any_program, run_and_check};
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

fn loopback(seed: u64, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed, faults }
}

/// Defines tests that run this many programs each.
macro_rules! program_tests {
    ($count:expr, $($name:ident($programs:expr) $run:expr;)*) => {
        proptest! {
            #![proptest_config($crate::proptest_config($count))]
            $(#[test] fn $name(program in $programs) { $run(&program) })*
        }
    };
}
pub(crate) use program_tests;

/// Runs programs with these disruptions over loopback with these faults.
fn over_loopback(faults: Faults) -> impl Fn(&Program) {
    move |program| {
        let transport = loopback(program.seed(), faults.clone());
        run_and_check(Turns::Alternate, &transport, &Offer::NATIVE, program);
    }
}

/// Runs programs with these disruptions over this transport.
fn over(transport: TransportKind) -> impl Fn(&Program) {
    move |program| {
        run_and_check(Turns::Alternate, &transport, &Offer::NATIVE, program);
    }
}

program_tests! { 200,
    programs_over_a_clean_network_match_the_model(any_program(Disruption::None))
        over_loopback(Faults::default());
    programs_over_a_choppy_network_match_the_model(any_program(Disruption::None))
        over_loopback(Faults::choppy());
    programs_over_a_choppy_network_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
        over_loopback(Faults::choppy());
    programs_over_a_network_that_breaks_links_and_kills_endpoints_match_the_model(
        any_program(Disruption::Killing)
    ) over_loopback(Faults::nasty());
}

program_tests! { 100,
    programs_over_the_example_backend_match_the_model(any_program(Disruption::None))
        over(EXAMPLE);
    programs_over_the_example_backend_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
        over(EXAMPLE);
    programs_over_tcp_match_the_model(any_program(Disruption::None))
        over(TransportKind::Tcp4);
    programs_over_shared_memory_match_the_model(any_program(Disruption::None))
        over(TransportKind::Shm4);
    programs_over_shared_memory_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
        over(TransportKind::Shm4);
    programs_over_near_and_far_peers_match_the_model(any_program(Disruption::None))
        over(TransportKind::MIXED4);
    programs_over_near_and_far_peers_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
        over(TransportKind::MIXED4);
    programs_over_tcp_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
        over(TransportKind::Tcp4);
}

program_tests! { 150,
    connected_programs_over_a_clean_network_match_the_model(any_connected_program())
        over_loopback(Faults::default());
    connected_programs_over_a_choppy_network_match_the_model(any_connected_program())
        over_loopback(Faults::choppy());
}

program_tests! { 60,
    connected_programs_over_the_example_backend_match_the_model(any_connected_program()) over(EXAMPLE);
    connected_programs_over_tcp_match_the_model(any_connected_program()) over(TransportKind::Tcp4);
    connected_programs_over_near_and_far_peers_match_the_model(any_connected_program())
        over(TransportKind::MIXED4);
    connected_programs_over_shared_memory_match_the_model(any_connected_program()) over(TransportKind::Shm4);
}

/// Runs each endpoint in a process of its own. To kill an endpoint, the test kills its process.
mod across_processes {
    use super::*;

    fn over(transport: TransportKind) -> impl Fn(&Program) {
        move |program| {
            run_and_check(Turns::Processes, &transport, &Offer::NATIVE, program);
        }
    }

    program_tests! { 25,
        programs_over_tcp_match_the_model(any_program(Disruption::None))
            over(TransportKind::Tcp4);
        programs_over_tcp_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
            over(TransportKind::Tcp4);
        programs_over_tcp_while_processes_are_killed_match_the_model(any_program(Disruption::Killing))
            over(TransportKind::Tcp4);
        programs_over_near_and_far_peers_match_the_model(any_program(Disruption::None))
            over(TransportKind::MIXED4);
        programs_over_near_and_far_peers_while_processes_are_killed_match_the_model(
            any_program(Disruption::Killing)
        ) over(TransportKind::MIXED4);
        programs_over_shared_memory_match_the_model(any_program(Disruption::None))
            over(TransportKind::Shm4);
        programs_over_shared_memory_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
            over(TransportKind::Shm4);
        programs_over_shared_memory_while_processes_are_killed_match_the_model(
            any_program(Disruption::Killing)
        ) over(TransportKind::Shm4);
    }
}
