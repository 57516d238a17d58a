//! The processes of a measurement. Each is the benchmark's own program, started again for one role.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use std::{env, io, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Result;

/// The role of a process and its arguments, in the environment.
const ROLE: &str = "HOMESPUN_BENCHMARK_ROLE";
const ARGUMENTS: &str = "HOMESPUN_BENCHMARK_ARGUMENTS";

/// How long a process may take for an answer.
const ANSWER_MAX_TIME: Duration = Duration::from_secs(60);

/// The role of this process; `None` for the one that starts the others.
pub(crate) fn role_of_this_process() -> Option<String> {
    env::var(ROLE).ok()
}

/// The arguments that this process was started with.
pub(crate) fn arguments() -> Vec<String> {
    env::var(ARGUMENTS).unwrap_or_default().split(' ').map(ToOwned::to_owned).collect()
}

/// A process that reads commands and writes answers, one on each line. Dropping this value kills the
/// process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    pub(crate) fn start(role: &str, arguments: &[String]) -> Result<Process> {
        let mut child = Command::new(env::current_exe()?)
            .env(ROLE, role)
            .env(ARGUMENTS, arguments.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = child.stdout.take().ok_or("no output")?;
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, input, answers })
    }

    pub(crate) fn send(&mut self, command: &str) -> Result<()> {
        Ok(writeln!(self.input, "{command}")?)
    }

    /// Waits for the answer that begins with this word. Returns the rest of its line.
    pub(crate) fn read_answer(&mut self, word: &str) -> Result<String> {
        self.await_answer(word, ANSWER_MAX_TIME).ok_or_else(|| format!("no answer \"{word}\"").into())
    }

    /// As [`read_answer`](Self::read_answer). Returns `None` if no line comes for `max_time`, or if the
    /// process has closed its output.
    pub(crate) fn await_answer(&mut self, word: &str, max_time: Duration) -> Option<String> {
        loop {
            let line = match self.answers.recv_timeout(max_time) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            };
            if let Some(rest) = line.strip_prefix(word) {
                return Some(rest.trim().to_owned());
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the commands of the process that has started this one. When that process ends, this process ends,
/// too.
pub(crate) fn commands() -> Receiver<String> {
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    commands
}

/// Raises the limit of descriptors of this process as far as the system allows. Returns the limit.
pub(crate) fn raise_descriptor_limit() -> Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}
