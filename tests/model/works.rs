//! Random programs of deferred work and triggered operations.

use homespun_engine::loopback::Faults;
use homespun_suite::model::works::{Program, any_program, run_and_check};
use homespun_suite::{TransportKind, Turns};
use proptest::prelude::*;

use crate::proptest_config;

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed(), faults }
}

proptest! {
    #![proptest_config(proptest_config(150))]

    #[test]
    fn programs_over_a_clean_network_match_the_model(program in any_program()) {
        run_and_check(Turns::Alternate, &faulty_loopback(&program, Faults::default()), &program);
    }

    #[test]
    fn programs_over_a_choppy_network_match_the_model(program in any_program()) {
        run_and_check(Turns::Alternate, &faulty_loopback(&program, Faults::choppy()), &program);
    }
}

proptest! {
    #![proptest_config(proptest_config(60))]

    #[test]
    fn programs_over_the_example_backend_match_the_model(program in any_program()) {
        run_and_check(Turns::Alternate, &crate::EXAMPLE, &program);
    }

    #[test]
    fn programs_over_tcp_match_the_model(program in any_program()) {
        run_and_check(Turns::Alternate, &TransportKind::Tcp4, &program);
    }

    #[test]
    fn programs_over_near_and_far_peers_match_the_model(program in any_program()) {
        run_and_check(Turns::Alternate, &TransportKind::MIXED4, &program);
    }

    #[test]
    fn programs_over_shared_memory_match_the_model(program in any_program()) {
        run_and_check(Turns::Alternate, &TransportKind::Shm4, &program);
    }
}

/// The peer in a process of its own.
mod across_processes {
    use super::*;

    proptest! {
        #![proptest_config(proptest_config(15))]

        #[test]
        fn programs_over_tcp_match_the_model(program in any_program()) {
            run_and_check(Turns::Processes, &TransportKind::Tcp4, &program);
        }

        #[test]
        fn programs_over_shared_memory_match_the_model(program in any_program()) {
            run_and_check(Turns::Processes, &TransportKind::Shm4, &program);
        }
    }
}
