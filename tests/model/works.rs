//! Random programs of deferred work and triggered operations, checked against a model.
//!
//! The endpoint is in this process. The endpoint's peer is in this process or in one of its own.

mod check;
mod fixture;
mod operations;
mod program;
mod reference;
mod run;

use homespun_engine::loopback::Faults;
use proptest::prelude::*;

use self::program::{Program, any_program};
use crate::proptest_config;
use crate::time_limit::run_with_time_limit;
use homespun_suite::{Net, TransportKind, Turns};

fn run_and_check(turns: Turns, transport: &TransportKind, program: &Program) {
    let net = Net::new(transport, turns);
    check::check_works(&run_with_time_limit(program, || run::run_program(&net, program)));
}

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed, faults }
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
