//! Random programs of two connected endpoints.

use homespun_engine::loopback::Faults;
use homespun_suite::TransportKind;
use homespun_suite::model::connected::{Program, any_program, run_and_check};
use proptest::prelude::*;

use crate::{loopback, program_tests};

fn over(transport: TransportKind) -> impl Fn(&Program) {
    move |program| run_and_check(&transport, program)
}

program_tests! { 150,
    programs_over_a_clean_network_match_the_model(any_program())
        |program: &Program| run_and_check(&loopback(program.seed(), Faults::default()), program);
    programs_over_a_choppy_network_match_the_model(any_program())
        |program: &Program| run_and_check(&loopback(program.seed(), Faults::choppy()), program);
}

program_tests! { 60,
    programs_over_the_example_backend_match_the_model(any_program()) over(crate::EXAMPLE);
    programs_over_tcp_match_the_model(any_program()) over(TransportKind::Tcp4);
    programs_over_near_and_far_peers_match_the_model(any_program()) over(TransportKind::MIXED4);
    programs_over_shared_memory_match_the_model(any_program()) over(TransportKind::Shm4);
}
