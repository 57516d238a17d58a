//! Runs the `homespun` command with a time limit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A process is busy once it has used this much processor time, in clock ticks: a few hundredths of a
/// second.
const BUSY_TICKS: u64 = 5;

/// The result of the command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The results without line breaks, for texts that may be wrapped anywhere.
    pub(crate) fn unwrapped_stdout(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A running command. Dropping it kills the command.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    seen: String,
}

/// Starts the command with these arguments. Its standard input is empty.
pub(crate) fn start(arguments: &[&str]) -> Running {
    start_with_environment(&[], arguments)
}

/// As [`start`], with these variables in the environment.
pub(crate) fn start_with_environment(variables: &[(&str, &str)], arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homespun"));
    command
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let stdout = read_lines_in_thread(child.stdout.take().expect("a pipe"));
    let stderr = read_lines_in_thread(child.stderr.take().expect("a pipe"));
    Running { child, stdout, stderr, seen: String::new() }
}

/// Runs the command to its end.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    start(arguments).wait_with_output()
}

/// As [`run`], with these variables in the environment.
pub(crate) fn run_with_environment(variables: &[(&str, &str)], arguments: &[&str]) -> Outcome {
    start_with_environment(variables, arguments).wait_with_output()
}

/// Returns those of the domains shm and tcp that `homespun info` lists, in the order of measurement.
pub(crate) fn available_domains() -> Vec<&'static str> {
    let info = run(&["info"]).stdout;
    let is_there = |name: &&str| info.lines().any(|line| line.starts_with(&format!("{name}: reliable")));
    ["shm", "tcp"].into_iter().filter(is_there).collect()
}

impl Running {
    /// Waits for a line of results that starts with `beginning`. Returns the rest of the line.
    pub(crate) fn await_line_rest(&mut self, beginning: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push_str(&line);
                    if let Some(rest) = line.strip_prefix(beginning) {
                        return rest.trim_end().to_owned();
                    }
                }
                Err(end) => {
                    let complaints = read_rest_until(&self.stderr, Instant::now() + Duration::from_secs(1));
                    panic!("no line begins with {beginning:?} ({end}): {:?}; {complaints:?}", self.seen);
                }
            }
        }
    }

    /// Waits until the command and all processes that it has started have ended. These processes share
    /// the command's standard error, so that pipe closes only when all have ended.
    pub(crate) fn wait_with_output(mut self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        let stdout = read_rest_until(&self.stdout, deadline).map(|rest| self.seen.clone() + &rest);
        let stderr = read_rest_until(&self.stderr, deadline);
        match (stdout, stderr) {
            (Ok(stdout), Ok(stderr)) => {
                // Both pipes are closed, so the command has ended or is about to end.
                let status = self.child.wait().expect("a child can be waited for");
                Outcome { status, stdout, stderr }
            }
            unfinished => panic!("the command does not end: {unfinished:?}"),
        }
    }

    /// Waits until the command has started this many processes. Returns their process ids.
    pub(crate) fn await_peer_processes(&self, count: usize) -> Vec<i32> {
        let pid = self.child.id();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.expect("a list of children");
            let pids: Vec<i32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            if pids.len() == count {
                return pids;
            }
            assert!(Instant::now() < deadline, "not {count} children: {pids:?}");
            thread::yield_now();
        }
    }

    /// Waits until the only process that the command has started is busy. Returns its process id.
    pub(crate) fn await_busy_peer_process(&self) -> i32 {
        let pid = self.await_peer_processes(1)[0];
        let deadline = Instant::now() + PATIENCE;
        while user_ticks(pid) < BUSY_TICKS {
            assert!(Instant::now() < deadline, "the peer process does nothing");
            thread::yield_now();
        }
        pid
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failure of either call means that the command has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The time that a process has run in user mode, in the kernel's ticks.
fn user_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain any characters. utime is the twelfth field after the name
    // (`proc(5)`).
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().nth(11).and_then(|ticks| ticks.parse().ok()).unwrap_or_default()
}

/// Sends a process a signal.
pub(crate) fn send_signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process number");
    kill_process(pid, signal).expect("the process is there");
}

fn read_lines_in_thread(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// Returns all text until the pipe is closed. If the deadline passes first, returns the text so far as
/// an error.
fn read_rest_until(lines: &Receiver<String>, deadline: Instant) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => text.push_str(&line),
            Err(RecvTimeoutError::Disconnected) => return Ok(text),
            Err(RecvTimeoutError::Timeout) => return Err(text),
        }
    }
}
