//! A program with deferred work: `fi_trigger(3)`.

use std::sync::OnceLock;

use crate::Program;

const RANKS: usize = 2;

fn check(domain: &str, progress: &str, wait: &str) {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    let Some(program) = PROGRAM.get_or_init(|| Program::compile("triggers")) else { return };
    program.run(RANKS, |rank| [domain, &rank.to_string(), progress, wait].map(String::from).into());
}

#[test]
fn deferred_work_over_shm_runs_while_a_counter_is_polled() {
    check("shm", "manual", "none");
}

#[test]
fn deferred_work_over_tcp_runs_while_a_counter_is_polled() {
    check("tcp", "manual", "none");
}

#[test]
fn deferred_work_over_shm_runs_while_the_application_sleeps() {
    check("shm", "manual", "unspec");
    check("shm", "auto", "unspec");
}

#[test]
fn deferred_work_over_tcp_runs_while_the_application_sleeps() {
    check("tcp", "manual", "unspec");
    check("tcp", "auto", "unspec");
}
