//! Random programs of deferred work and triggered operations, checked against a model.
//!
//! The endpoint lives in this process, and its peer there or in a process of its own.

mod bench;
mod check;
mod operations;
mod program;
mod reference;
mod run;

use homespun_engine::loopback::Faults;
use proptest::prelude::*;

use self::program::{Program, program};
use crate::cases;
use crate::time_limit::run_in_time;
use homespun_suite::{Net, Transport, Turns};

fn run(turns: Turns, transport: &Transport, program: &Program) {
    let net = Net::new(transport, turns);
    check::check(&run_in_time(program, || run::run(&net, program)));
}

fn loopback(program: &Program, faults: Faults) -> Transport {
    Transport::Loopback { seed: program.seed, faults }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn over_a_clean_network(program in program()) {
        run(Turns::Alternate, &loopback(&program, Faults::default()), &program);
    }

    #[test]
    fn over_a_choppy_network(program in program()) {
        run(Turns::Alternate, &loopback(&program, Faults::choppy()), &program);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn over_the_example_backend(program in program()) {
        run(Turns::Alternate, &crate::EXAMPLE, &program);
    }

    #[test]
    fn over_tcp(program in program()) {
        run(Turns::Alternate, &Transport::Tcp4, &program);
    }

    #[test]
    fn over_shared_memory(program in program()) {
        run(Turns::Alternate, &Transport::Shm4, &program);
    }
}

/// The peer in a process of its own.
mod across_processes {
    use super::*;

    proptest! {
        #![proptest_config(cases(15))]

        #[test]
        fn over_tcp(program in program()) {
            run(Turns::Processes, &Transport::Tcp4, &program);
        }

        #[test]
        fn over_shared_memory(program in program()) {
            run(Turns::Processes, &Transport::Shm4, &program);
        }
    }
}
