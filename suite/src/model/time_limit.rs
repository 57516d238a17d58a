//! A time limit for programs. Prints a program that never ends, since it cannot be shrunk.

use std::fmt::Debug;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Much longer than a program that waits in vain takes to fail.
const RUN_MAX: Duration = Duration::from_secs(600);

/// Runs a program. If it does not end, prints it and aborts the process.
pub(crate) fn run_with_time_limit<R>(program: &(impl Debug + Sync), run: impl FnOnce() -> R) -> R {
    thread::scope(|scope| {
        // Dropped at the end of the run, even if the run panics.
        let (_running, end) = mpsc::channel::<()>();
        scope.spawn(move || {
            if end.recv_timeout(RUN_MAX) == Err(RecvTimeoutError::Timeout) {
                print_unended_program(program);
                process::abort();
            }
        });
        run()
    })
}

#[expect(clippy::print_stderr, reason = "the test that runs does not end, so it cannot print this")]
fn print_unended_program(program: &impl Debug) {
    eprintln!("this program does not end: {program:?}");
}
