//! `homespun info` on a system that forbids copies from process to process, as a container's seccomp
//! filter may.

use std::thread;

use homespun_suite::seccomp::{COPIES_ACROSS, fail_system_calls_of_thread};

use crate::command::{Outcome, run};

/// Runs `homespun info` in a thread with a seccomp filter: copies between processes fail with this
/// error.
fn run_info_with_copies_refused(errno: i32) -> Outcome {
    let confined = thread::spawn(move || {
        fail_system_calls_of_thread(&COPIES_ACROSS, errno);
        run(&["info", "--domain", "shm"])
    });
    confined.join().expect("the command runs")
}

#[test]
fn info_reports_refused_copies_with_the_reason() {
    let refusals = [(libc::EPERM, "Operation not permitted"), (libc::ENOSYS, "Function not implemented")];
    for (errno, reason) in refusals {
        let outcome = run_info_with_copies_refused(errno);
        assert!(outcome.status.success(), "{outcome:?}");
        let found = format!("cross-memory copies are barred here (process_vm_readv: {reason}");
        let found_text = outcome.unwrapped_stdout();
        assert!(found_text.contains(&found), "{found:?} is not in:\n{}", outcome.stdout);
        assert!(found_text.contains("large messages take two copies"), "{outcome:?}");
    }
}
