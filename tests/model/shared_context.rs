//! Random programs of endpoints that share a receive context.

use homespun_engine::loopback::Faults;
use homespun_suite::model::shared_context::{
    Disruption, Program, any_program, any_program_of_kind, run_and_check, run_and_check_with_faults,
};
use homespun_suite::{Net, TransportKind, Turns};
use proptest::prelude::*;

use crate::proptest_config;

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed(), faults }
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
