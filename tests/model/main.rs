//! Runs the random programs of [`homespun_suite::model`] over every transport. If the model does not explain
//! a history, the test prints the smallest program found that fails, with the seed of its transport.
//!
//! The environment variable `PROPTEST_CASES` sets the number of programs for each test.

#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../../examples/backend/provider.rs"]
mod backend;
mod replay;
mod shared_context;

use homespun::Fabric;
use homespun_engine::loopback::Faults;
use homespun_suite::model::{Disruption, Offer, Program, any_connected_program, any_program, run_and_check};
use homespun_suite::{Backend, TransportKind, Turns};
use proptest::prelude::*;
use proptest::strategy::Union;
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

/// Returns a loopback network with these faults, whose seed is that of each program.
fn loopback(faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: 0, faults }
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

fn over(turns: Turns, transport: TransportKind) -> impl Fn(&Program) {
    move |program| run_and_check(turns, &transport, &Offer::NATIVE, program)
}

/// Runs programs by this thread alone.
fn here(transport: TransportKind) -> impl Fn(&Program) {
    over(Turns::Alternate, transport)
}

/// Returns any program with one of these disruptions.
fn any_program_with<const N: usize>(disruptions: [Disruption; N]) -> impl Strategy<Value = Program> {
    Union::new(disruptions.map(any_program))
}

program_tests! { 100,
    programs_over_a_clean_network_match_the_model(any_program(Disruption::None))
        here(loopback(Faults::default()));
    programs_over_a_choppy_network_match_the_model(any_program(Disruption::None))
        here(loopback(Faults::choppy()));
    programs_over_a_choppy_network_while_endpoints_close_match_the_model(any_program(Disruption::Closing))
        here(loopback(Faults::choppy()));
    programs_over_a_network_that_breaks_links_and_kills_endpoints_match_the_model(
        any_program(Disruption::Killing)
    ) here(loopback(Faults::nasty()));
}

const WITHOUT_DEATHS: [Disruption; 2] = [Disruption::None, Disruption::Closing];

program_tests! { 100,
    programs_over_the_example_backend_match_the_model(any_program_with(WITHOUT_DEATHS)) here(EXAMPLE);
    programs_over_tcp_match_the_model(any_program_with(WITHOUT_DEATHS)) here(TransportKind::Tcp4);
    programs_over_shared_memory_match_the_model(any_program_with(WITHOUT_DEATHS)) here(TransportKind::Shm4);
    programs_over_near_and_far_peers_match_the_model(any_program_with(WITHOUT_DEATHS))
        here(TransportKind::MIXED4);
}

program_tests! { 75,
    connected_programs_over_a_clean_network_match_the_model(any_connected_program())
        here(loopback(Faults::default()));
    connected_programs_over_a_choppy_network_match_the_model(any_connected_program())
        here(loopback(Faults::choppy()));
}

program_tests! { 60,
    connected_programs_over_the_example_backend_match_the_model(any_connected_program()) here(EXAMPLE);
    connected_programs_over_tcp_match_the_model(any_connected_program()) here(TransportKind::Tcp4);
    connected_programs_over_near_and_far_peers_match_the_model(any_connected_program())
        here(TransportKind::MIXED4);
    connected_programs_over_shared_memory_match_the_model(any_connected_program()) here(TransportKind::Shm4);
}

/// Runs each endpoint in a process of its own. To kill an endpoint, the test kills its process.
mod across_processes {
    use super::*;

    const ALL: [Disruption; 3] = [Disruption::None, Disruption::Closing, Disruption::Killing];

    program_tests! { 40,
        programs_over_tcp_match_the_model(any_program_with(ALL)) over(Turns::Processes, TransportKind::Tcp4);
        programs_over_near_and_far_peers_match_the_model(any_program_with(ALL))
            over(Turns::Processes, TransportKind::MIXED4);
        programs_over_shared_memory_match_the_model(any_program_with(ALL))
            over(Turns::Processes, TransportKind::Shm4);
    }
}
