//! Random programs of deferred work and triggered operations.

use homespun_engine::loopback::Faults;
use homespun_suite::model::works::{Program, any_program, run_and_check};
use homespun_suite::{TransportKind, Turns};
use proptest::prelude::*;

use crate::{loopback, program_tests};

fn over(turns: Turns, transport: TransportKind) -> impl Fn(&Program) {
    move |program| run_and_check(turns, &transport, program)
}

program_tests! { 150,
    programs_over_a_clean_network_match_the_model(any_program())
        over(Turns::Alternate, loopback(Faults::default()));
    programs_over_a_choppy_network_match_the_model(any_program())
        over(Turns::Alternate, loopback(Faults::choppy()));
}

program_tests! { 60,
    programs_over_the_example_backend_match_the_model(any_program()) over(Turns::Alternate, crate::EXAMPLE);
    programs_over_tcp_match_the_model(any_program()) over(Turns::Alternate, TransportKind::Tcp4);
    programs_over_near_and_far_peers_match_the_model(any_program())
        over(Turns::Alternate, TransportKind::MIXED4);
    programs_over_shared_memory_match_the_model(any_program()) over(Turns::Alternate, TransportKind::Shm4);
}

/// The peer in a process of its own.
mod across_processes {
    use super::*;

    program_tests! { 15,
        programs_over_tcp_match_the_model(any_program()) over(Turns::Processes, TransportKind::Tcp4);
        programs_over_shared_memory_match_the_model(any_program())
            over(Turns::Processes, TransportKind::Shm4);
    }
}
