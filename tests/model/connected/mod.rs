//! Random programs of two connected endpoints, compared with what matching means, and with the
//! order in which receives over a connection complete.

mod check;
mod program;
mod run;

use homespun_engine::loopback::Faults;
use proptest::prelude::*;

use self::program::{Program, program};
use crate::cases;
use crate::suite::{Net, Transport, Turns};

fn run(transport: &Transport, program: &Program) {
    check::check(&run::run(&Net::new(transport, Turns::Alternate), program));
}

fn loopback(program: &Program, faults: Faults) -> Transport {
    Transport::Loopback { seed: program.seed, faults }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn over_a_clean_network(program in program()) {
        run(&loopback(&program, Faults::default()), &program);
    }

    #[test]
    fn over_a_choppy_network(program in program()) {
        run(&loopback(&program, Faults::choppy()), &program);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn over_the_example_backend(program in program()) {
        run(&Transport::Backend, &program);
    }

    #[test]
    fn over_tcp(program in program()) {
        run(&Transport::Tcp4, &program);
    }

    #[test]
    fn over_shared_memory(program in program()) {
        run(&Transport::Shm4, &program);
    }
}
