//! A program with deferred work: `fi_trigger(3)`.

use std::sync::OnceLock;

use crate::Program;

const RANKS: usize = 2;

fn run_triggers(domain: &str, progress: &str, wait: &str) {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    let Some(program) = PROGRAM.get_or_init(|| Program::compile("triggers")) else { return };
    program.run_ranks(RANKS, |rank| [domain, &rank.to_string(), progress, wait].map(String::from).into());
}

#[test]
fn deferred_work_over_shm_runs_while_a_counter_is_polled() {
    run_triggers("shm", "manual", "none");
}

#[test]
fn deferred_work_over_tcp_runs_while_a_counter_is_polled() {
    run_triggers("tcp", "manual", "none");
}

#[test]
fn deferred_work_over_shm_runs_while_the_application_sleeps() {
    run_triggers("shm", "manual", "unspec");
    run_triggers("shm", "auto", "unspec");
}

#[test]
fn deferred_work_over_tcp_runs_while_the_application_sleeps() {
    run_triggers("tcp", "manual", "unspec");
    run_triggers("tcp", "auto", "unspec");
}
