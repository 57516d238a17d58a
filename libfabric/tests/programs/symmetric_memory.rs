//! A program with symmetric memory, like those of OpenSHMEM.

use std::sync::OnceLock;

use crate::Program;

const RANKS: usize = 3;

fn run_symmetric_memory(domain: &str, progress: &str, wait: &str) {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    let Some(program) = PROGRAM.get_or_init(|| Program::compile("symmetric_memory")) else { return };
    program.run_ranks(RANKS, |rank| {
        [domain, &rank.to_string(), &RANKS.to_string(), progress, wait].map(String::from).into()
    });
}

#[test]
fn shm_counter_waits_end_after_updates_by_peers() {
    run_symmetric_memory("shm", "manual", "unspec");
}

#[test]
fn tcp_counter_waits_end_after_updates_by_peers() {
    run_symmetric_memory("tcp", "manual", "unspec");
}

#[test]
fn auto_counter_waits_end_after_updates_by_peers() {
    run_symmetric_memory("auto", "manual", "unspec");
}

#[test]
fn shm_counter_waits_end_after_updates_in_automatic_progress() {
    run_symmetric_memory("shm", "auto", "unspec");
}

#[test]
fn tcp_counter_waits_end_after_updates_in_automatic_progress() {
    run_symmetric_memory("tcp", "auto", "unspec");
}

#[test]
fn polled_counters_count_updates_by_peers() {
    run_symmetric_memory("shm", "manual", "none");
    run_symmetric_memory("tcp", "manual", "none");
}
