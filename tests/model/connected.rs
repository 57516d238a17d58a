//! Random programs of two connected endpoints.

use homespun_engine::loopback::Faults;
use homespun_suite::TransportKind;
use homespun_suite::model::connected::{Program, any_program, run_and_check};
use proptest::prelude::*;

use crate::proptest_config;

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed(), faults }
}

proptest! {
    #![proptest_config(proptest_config(150))]

    #[test]
    fn programs_over_a_clean_network_match_the_model(program in any_program()) {
        run_and_check(&faulty_loopback(&program, Faults::default()), &program);
    }

    #[test]
    fn programs_over_a_choppy_network_match_the_model(program in any_program()) {
        run_and_check(&faulty_loopback(&program, Faults::choppy()), &program);
    }
}

proptest! {
    #![proptest_config(proptest_config(60))]

    #[test]
    fn programs_over_the_example_backend_match_the_model(program in any_program()) {
        run_and_check(&crate::EXAMPLE, &program);
    }

    #[test]
    fn programs_over_tcp_match_the_model(program in any_program()) {
        run_and_check(&TransportKind::Tcp4, &program);
    }

    #[test]
    fn programs_over_near_and_far_peers_match_the_model(program in any_program()) {
        run_and_check(&TransportKind::MIXED4, &program);
    }

    #[test]
    fn programs_over_shared_memory_match_the_model(program in any_program()) {
        run_and_check(&TransportKind::Shm4, &program);
    }
}
