//! Random programs of endpoints that share a receive context, checked against a model of matching. If a
//! member leaves or a link ends, the model does not predict which messages are lost. Instead the model
//! limits how many receives may fail, and checks that each receive ends once and that no credit is lost.
//!
//! The members of the context are in this process. The peers are in this process or in processes of their
//! own.

mod check;
mod ending;
mod fixture;
mod history;
mod program;
mod run;

use homespun_engine::loopback::Faults;
use proptest::prelude::*;

use self::program::{Disruption, Program, any_program, any_program_of_kind};
use crate::proptest_config;
use crate::time_limit::run_with_time_limit;
use homespun_suite::{Net, TransportKind, Turns};

fn run_and_check(turns: Turns, transport: &TransportKind, program: &Program) {
    run_and_check_with_faults(None, &Net::new(transport, turns), program);
}

/// Runs a program, and checks its history. `faults`, if given, are the faults of the network during the
/// steps.
fn run_and_check_with_faults(faults: Option<Faults>, net: &Net, program: &Program) {
    let history = run_with_time_limit(program, || run::run_program(net, program, faults));
    check::check_history(&history, program.connected);
}

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed, faults }
}

proptest! {
    #![proptest_config(proptest_config(150))]

    #[test]
    fn programs_over_a_clean_network_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(Turns::Alternate, &faulty_loopback(&program, Faults::default()), &program);
    }

    #[test]
    fn programs_over_a_choppy_network_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(Turns::Alternate, &faulty_loopback(&program, Faults::choppy()), &program);
    }

    #[test]
    fn programs_over_a_clean_network_while_members_leave_match_the_model(
        program in any_program(Disruption::Any),
    ) {
        run_and_check(Turns::Alternate, &faulty_loopback(&program, Faults::default()), &program);
    }

    #[test]
    fn programs_over_a_choppy_network_while_members_leave_match_the_model(
        program in any_program(Disruption::Any),
    ) {
        run_and_check(Turns::Alternate, &faulty_loopback(&program, Faults::choppy()), &program);
    }

    #[test]
    fn programs_over_a_network_that_breaks_links_and_pulls_match_the_model(
        program in any_program(Disruption::Any),
    ) {
        let net = Net::new(&faulty_loopback(&program, Faults::choppy()), Turns::Alternate);
        run_and_check_with_faults(Some(Faults::nasty()), &net, &program);
    }
}

proptest! {
    #![proptest_config(proptest_config(60))]

    #[test]
    fn programs_over_the_example_backend_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(Turns::Alternate, &crate::EXAMPLE, &program);
    }

    #[test]
    fn programs_over_tcp_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(Turns::Alternate, &TransportKind::Tcp4, &program);
    }

    #[test]
    fn programs_over_shared_memory_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(Turns::Alternate, &TransportKind::Shm4, &program);
    }

    #[test]
    fn programs_over_near_and_far_peers_match_the_model(program in any_program(Disruption::None)) {
        run_and_check(Turns::Alternate, &TransportKind::MIXED4, &program);
    }

    #[test]
    fn programs_over_near_and_far_peers_while_members_leave_match_the_model(
        program in any_program(Disruption::Any),
    ) {
        run_and_check(Turns::Alternate, &TransportKind::MIXED4, &program);
    }

    #[test]
    fn programs_over_tcp_while_members_leave_match_the_model(program in any_program(Disruption::Any)) {
        run_and_check(Turns::Alternate, &TransportKind::Tcp4, &program);
    }

    #[test]
    fn programs_over_shared_memory_while_members_leave_match_the_model(
        program in any_program(Disruption::Any),
    ) {
        run_and_check(Turns::Alternate, &TransportKind::Shm4, &program);
    }
}

/// Every peer in a process of its own.
mod across_processes {
    use super::*;

    proptest! {
        #![proptest_config(proptest_config(15))]

        #[test]
        fn programs_over_tcp_match_the_model(program in any_program_of_kind(false, Disruption::None)) {
            run_and_check(Turns::Processes, &TransportKind::Tcp4, &program);
        }

        #[test]
        fn programs_over_near_and_far_peers_match_the_model(
            program in any_program_of_kind(false, Disruption::None),
        ) {
            run_and_check(Turns::Processes, &TransportKind::MIXED4, &program);
        }

        #[test]
        fn programs_over_shared_memory_match_the_model(
            program in any_program_of_kind(false, Disruption::None),
        ) {
            run_and_check(Turns::Processes, &TransportKind::Shm4, &program);
        }
    }
}
