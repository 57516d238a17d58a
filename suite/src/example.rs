//! An example in a process of its own: the test's own program, run again.
//!
//! The test includes the example as a module. Its ignored test `example_process_entry` runs the example.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use super::deadline::{PATIENCE, poll_until};

/// The environment variable with the name of the example and its arguments, one on each line.
const VARIABLE: &str = "HOMESPUN_TEST_EXAMPLE";

/// The beginning of the line with an example's error.
pub const FAILED: &str = "it failed: ";

/// A running example. Dropping it kills the process.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

/// Runs the chosen example in a process that [`Program::start`] has started.
#[expect(clippy::print_stdout, reason = "the test reads it")]
pub fn run_chosen_example(
    example: impl FnOnce(&str, std::vec::IntoIter<String>) -> Result<(), Box<dyn Error>>,
) {
    let Ok(what) = env::var(VARIABLE) else { return };
    let mut words = what.split('\n').map(str::to_owned).collect::<Vec<_>>().into_iter();
    let name = words.next().expect("a name");
    if let Err(error) = example(&name, words) {
        println!("{FAILED}{error}");
        process::exit(1);
    }
}

impl Program {
    /// Starts an example with these arguments, over a domain.
    pub fn start(name: &str, domain: &str, arguments: &[&str]) -> Program {
        let mut child = Command::new(env::current_exe().expect("the test's own program"))
            .args(["example_process_entry", "--exact", "--ignored", "--nocapture"])
            .env(VARIABLE, [&[name], arguments].concat().join("\n"))
            .env("FI_HOMESPUN_DOMAIN", domain)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        // This thread ends with the process: the pipe closes when the process ends.
        thread::spawn(move || {
            let _reader_is_gone = stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        });
        Program { child, lines }
    }

    /// Waits for a line with this text. Returns what follows the text in the line. The test harness may
    /// print before the text.
    #[track_caller]
    pub fn await_rest_after_text(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|error| panic!("no line has {text:?} in it: {error}"));
            if let Some((_, rest)) = line.split_once(text) {
                return rest.to_owned();
            }
        }
    }

    /// Waits until the example has ended. Fails if it has not succeeded.
    #[track_caller]
    pub fn assert_ends_in_success(self) {
        assert!(self.wait_for_success_or_failure(), "the example fails");
    }

    /// Waits until the example has ended. Returns whether it succeeded.
    #[track_caller]
    pub fn wait_for_success_or_failure(mut self) -> bool {
        let try_wait = || self.child.try_wait().expect("a child can be waited for");
        poll_until("the end of the example", try_wait).success()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both calls fail only if the process was already reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
