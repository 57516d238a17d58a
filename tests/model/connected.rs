//! Random programs of two connected endpoints. The results are checked against the rules of matching, and
//! against the order in which receives of a connection complete.

mod check;
mod program;
mod run;

use homespun_engine::loopback::Faults;
use proptest::prelude::*;

use self::program::{Program, Step, any_program};
use crate::history::Level;
use crate::proptest_config;
use crate::time_limit::run_with_time_limit;
use homespun_suite::{Net, TransportKind, Turns};

fn run_and_check(transport: &TransportKind, program: &Program) {
    let net = Net::new(transport, Turns::Alternate);
    check::check_observed(&run_with_time_limit(program, || run::run_program(&net, program)));
}

fn faulty_loopback(program: &Program, faults: Faults) -> TransportKind {
    TransportKind::Loopback { seed: program.seed, faults }
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

/// Two receives match nothing, and leave one slot for the receives of the test. The untagged messages find
/// no receive until the test has received a tagged message.
#[test]
fn runner_with_one_free_receive_slot_finishes() {
    let nothing = Step::Receive { at: 1, tagged: Some((1, 0)), len_bytes: 0 };
    let mut steps = vec![nothing.clone(), nothing];
    for message in 0..20 {
        let tag = (message < 18).then_some(2);
        steps.push(Step::Send { from: 0, tag, len_bytes: 1000, level: Level::Inject });
        steps.extend([Step::Drive { at: 0, rounds: 3 }, Step::Drive { at: 1, rounds: 3 }]);
        steps.push(Step::Read { at: 0, count: 2 });
    }
    let program = Program { seed: 0, depth_ops: 3, unexpected_bytes: 40_000, receives_first: false, steps };
    run_and_check(&crate::EXAMPLE, &program);
}
