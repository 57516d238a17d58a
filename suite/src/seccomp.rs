//! Seccomp filters, by which a process gives up system calls.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, apply_filter_all_threads,
};

/// The system calls that copy between processes.
pub const COPIES_ACROSS: [i64; 2] = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];

/// Makes these system calls fail with this error from now on, in all threads of this process.
pub fn fail_system_calls_of_process(system_calls: &[i64], errno: i32) {
    let filter = build_filter(system_calls, SeccompAction::Errno(errno.unsigned_abs()));
    apply_filter_all_threads(&filter).expect("a process may confine itself");
}

/// Makes these system calls fail with this error from now on, in this thread. Threads and processes that it
/// starts later inherit this.
pub fn fail_system_calls_of_thread(system_calls: &[i64], errno: i32) {
    let filter = build_filter(system_calls, SeccompAction::Errno(errno.unsigned_abs()));
    apply_filter(&filter).expect("a thread may confine itself");
}

/// The length of the longest Internet address, `struct sockaddr_in6`. The abstract names of endpoints are
/// longer.
const INTERNET_ADDRESS_MAX_BYTES: u64 = 28;

/// Makes these system calls fail with this error in this thread, if the address is longer than an Internet
/// address. The calls may be `bind(2)` and `connect(2)`. The third argument of either call is the length of
/// the address.
pub fn fail_system_calls_with_long_addresses(system_calls: &[i64], errno: i32) {
    let (length_argument, length_limit) = (2, INTERNET_ADDRESS_MAX_BYTES);
    let is_longer =
        SeccompCondition::new(length_argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, length_limit);
    let rule = SeccompRule::new(vec![is_longer.expect("an argument")]).expect("a condition");
    let rules = system_calls.iter().map(|&number| (number, vec![rule.clone()])).collect();
    let filter = compile_filter(rules, SeccompAction::Errno(errno.unsigned_abs()));
    apply_filter(&filter).expect("a thread may confine itself");
}

/// Makes the kernel kill this process when it makes any of these system calls.
pub fn kill_at_system_calls(system_calls: &[i64]) {
    let filter = build_filter(system_calls, SeccompAction::KillProcess);
    apply_filter_all_threads(&filter).expect("a process may confine itself");
}

fn build_filter(system_calls: &[i64], action: SeccompAction) -> BpfProgram {
    // A system call without rules matches whatever its arguments.
    compile_filter(system_calls.iter().map(|&number| (number, Vec::new())).collect(), action)
}

fn compile_filter(rules: BTreeMap<i64, Vec<SeccompRule>>, action: SeccompAction) -> BpfProgram {
    let architecture = ARCH.try_into().expect("an architecture that filters are made for");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture).expect("a filter");
    BpfProgram::try_from(filter).expect("a small filter")
}
