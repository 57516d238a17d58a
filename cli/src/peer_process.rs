//! The peer of a measurement on one host: another process of this program.
//!
//! Two pipes connect the processes. The peer process writes lines to its standard output, and reads
//! lines from its standard input. When its standard input closes, the peer process ends.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::CommandFailure;
use crate::logging;

/// How long to wait until a peer process ends: after SIGTERM, and after a failure that its end may
/// explain.
const END_LAG: Duration = Duration::from_millis(500);

/// The interval between checks for the end.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// Another process of this program. The process ends at the latest when this value is dropped, or when
/// this process ends.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    child: Child,
    /// The peer process ends when this pipe closes. If this process is killed, the kernel closes the
    /// pipe.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    gone: Arc<AtomicBool>,
    timeout: Duration,
}

impl PeerProcess {
    /// Starts this program with these arguments. Pins it to `core`, if there is one. `timeout` limits
    /// the wait for each line of the peer process.
    pub(crate) fn start(
        arguments: &[&str],
        core: Option<usize>,
        timeout: Duration,
    ) -> Result<PeerProcess, CommandFailure> {
        PeerProcess::start_with_environment(&[], arguments, core, timeout)
    }

    /// As [`start`](Self::start), with these variables in the environment.
    pub(crate) fn start_with_environment(
        environment: &[(String, OsString)],
        arguments: &[&str],
        core: Option<usize>,
        timeout: Duration,
    ) -> Result<PeerProcess, CommandFailure> {
        let mut command = Command::new(env::current_exe().map_err(CommandFailure::Start)?);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        PeerProcess::start_command(command, arguments, core, timeout)
    }

    /// As [`start`](Self::start), in a process group of its own. So Ctrl-C in the terminal ends only this
    /// process, and the peer process can clean up after it: see [`exit_with_parent`].
    pub(crate) fn start_in_own_group(
        arguments: &[&str],
        core: Option<usize>,
        timeout: Duration,
    ) -> Result<PeerProcess, CommandFailure> {
        let mut command = Command::new(env::current_exe().map_err(CommandFailure::Start)?);
        command.process_group(0);
        PeerProcess::start_command(command, arguments, core, timeout)
    }

    fn start_command(
        mut command: Command,
        arguments: &[&str],
        core: Option<usize>,
        timeout: Duration,
    ) -> Result<PeerProcess, CommandFailure> {
        command.args(arguments).args(["--timeout", &timeout.as_secs().to_string()]);
        command.args(logging::verbosity_arguments());
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(CommandFailure::Start)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let (sender, lines) = unbounded();
        let gone = Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        // Read in a thread, because a read cannot be cancelled. The thread ends with the peer process.
        thread::spawn(move || {
            for line in
                stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
            {
                // This fails once the receiver is gone. Then nothing needs the line.
                let _ = sender.send(line);
            }
            flag.store(true, Ordering::Relaxed);
        });
        Ok(PeerProcess { child, stdin, lines, gone, timeout })
    }

    /// Waits for the next line of the process.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::PeerEnded`] if the process has ended, [`CommandFailure::PeerSilent`] after the
    /// time-out.
    pub(crate) fn await_line(&mut self) -> Result<String, CommandFailure> {
        let line = self.lines.recv_timeout(self.timeout);
        line.map_err(|_| self.add_exit_status(CommandFailure::PeerSilent { timeout: self.timeout }))
    }

    /// The next line, if the process has already written it.
    pub(crate) fn try_next_line(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Waits at most `limit` until the process ends by itself. After that sends SIGTERM, on which
    /// libraries clean up. Kills the process if it still runs [`END_LAG`] later.
    pub(crate) fn wait_or_terminate(mut self, limit: Duration) {
        if self.wait_for_exit(limit) {
            return;
        }
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // This fails only if the process has ended meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        self.wait_for_exit(END_LAG);
    }

    fn wait_for_exit(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(END_INTERVAL),
                ended => return !matches!(ended, Ok(None)),
            }
        }
    }

    /// Writes a line to the process.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::PeerEnded`] if the process has ended. [`CommandFailure::PeerGone`] if it has closed
    /// its input but still runs.
    pub(crate) fn write_line(&mut self, line: impl Display) -> Result<(), CommandFailure> {
        let line = format!("{line}\n");
        let written = self.stdin.as_mut().map_or(Err(io::ErrorKind::BrokenPipe.into()), |stdin| {
            stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush())
        });
        written.map_err(|_| self.add_exit_status(CommandFailure::PeerGone))
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A flag that becomes true when the process has ended.
    pub(crate) fn ended_flag(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }

    /// Adds the exit status of the peer process to a failure, if the peer process ends within
    /// [`END_LAG`]. Otherwise returns the failure unchanged, as it does with [`CommandFailure::Output`] and
    /// [`CommandFailure::PeerEnded`].
    pub(crate) fn add_exit_status(&mut self, cause: CommandFailure) -> CommandFailure {
        if matches!(cause, CommandFailure::Output(_) | CommandFailure::PeerEnded { .. }) {
            return cause;
        }
        let deadline = Instant::now() + END_LAG;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return CommandFailure::PeerEnded { status, cause: Box::new(cause) },
                Ok(None) if Instant::now() < deadline => thread::sleep(END_INTERVAL),
                _ => return cause,
            }
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // A failure of either call means that the peer process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Called by a peer process: returns the lines that its parent sends. Ends the peer process as soon as
/// the parent ends, even in the middle of a measurement.
pub(crate) fn read_parent_lines_or_exit() -> Receiver<String> {
    read_parent_lines_and_exit_after(|| ())
}

/// Called by a peer process whose parent sends no lines. As soon as the parent ends, calls `clean_up` and
/// ends the peer process.
pub(crate) fn exit_with_parent(clean_up: impl FnOnce() + Send + 'static) {
    drop(read_parent_lines_and_exit_after(clean_up));
}

fn read_parent_lines_and_exit_after(clean_up: impl FnOnce() + Send + 'static) -> Receiver<String> {
    let (sender, lines) = unbounded();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            // This fails if the caller has dropped the receiver. The loop goes on, so that it notices
            // the parent's end.
            let _ = sender.send(line);
        }
        clean_up();
        process::exit(1);
    });
    lines
}
