//! Random programs of endpoints that share a receive context.

use homespun_engine::loopback::Faults;
use homespun_suite::model::shared_context::{Program, any_program, any_program_of_kind, run_and_check};
use homespun_suite::{TransportKind, Turns};
use proptest::prelude::*;

use crate::{loopback, program_tests};

fn over(turns: Turns, transport: TransportKind) -> impl Fn(&Program) {
    move |program| run_and_check(turns, &transport, None, program)
}

fn here(transport: TransportKind) -> impl Fn(&Program) {
    over(Turns::Alternate, transport)
}

fn over_nasty_loopback(program: &Program) {
    run_and_check(Turns::Alternate, &loopback(Faults::choppy()), Some(&Faults::nasty()), program);
}

program_tests! { 150,
    programs_over_a_clean_network_match_the_model(any_program(false))
        here(loopback(Faults::default()));
    programs_over_a_choppy_network_match_the_model(any_program(false))
        here(loopback(Faults::choppy()));
    programs_over_a_clean_network_while_members_leave_match_the_model(any_program(true))
        here(loopback(Faults::default()));
    programs_over_a_choppy_network_while_members_leave_match_the_model(any_program(true))
        here(loopback(Faults::choppy()));
    programs_over_a_network_that_breaks_links_and_pulls_match_the_model(any_program(true))
        over_nasty_loopback;
}

program_tests! { 60,
    programs_over_the_example_backend_match_the_model(any_program(false))
        here(crate::EXAMPLE);
    programs_over_tcp_match_the_model(any_program(false))
        here(TransportKind::Tcp4);
    programs_over_shared_memory_match_the_model(any_program(false))
        here(TransportKind::Shm4);
    programs_over_near_and_far_peers_match_the_model(any_program(false))
        here(TransportKind::MIXED4);
    programs_over_near_and_far_peers_while_members_leave_match_the_model(any_program(true))
        here(TransportKind::MIXED4);
    programs_over_tcp_while_members_leave_match_the_model(any_program(true))
        here(TransportKind::Tcp4);
    programs_over_shared_memory_while_members_leave_match_the_model(any_program(true))
        here(TransportKind::Shm4);
}

/// Every peer in a process of its own.
mod across_processes {
    use super::*;

    program_tests! { 15,
        programs_over_tcp_match_the_model(any_program_of_kind(false, false))
            over(Turns::Processes, TransportKind::Tcp4);
        programs_over_near_and_far_peers_match_the_model(any_program_of_kind(false, false))
            over(Turns::Processes, TransportKind::MIXED4);
        programs_over_shared_memory_match_the_model(any_program_of_kind(false, false))
            over(Turns::Processes, TransportKind::Shm4);
    }
}
