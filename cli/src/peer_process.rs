//! The other end of a measurement on one host: this program once more, in a process of its own.
//!
//! The two processes have two pipes between them. What the peer process says are lines on its standard output; what it is
//! told are lines on its standard input, whose end means that nobody needs it any more.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// How long the end of a peer process may lag behind the end of its connections.
const END_LAG: Duration = Duration::from_millis(500);

/// How often it is looked for.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// This program in a process of its own, which ends with this value at the latest, or with this process.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    child: Child,
    /// The process ends when this is closed, however this process ends.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    gone: Arc<AtomicBool>,
    timeout: Duration,
}

impl PeerProcess {
    /// Starts this program with these arguments, and with a core to stay on if one is given. The process may be silent
    /// for as long as `timeout` when it is asked something.
    pub(crate) fn start(
        arguments: &[&str],
        core: Option<usize>,
        timeout: Duration,
    ) -> Result<PeerProcess, Failure> {
        PeerProcess::start_in(&[], arguments, core, timeout)
    }

    /// As [`start`](Self::start), with these variables in the environment.
    pub(crate) fn start_in(
        environment: &[(String, OsString)],
        arguments: &[&str],
        core: Option<usize>,
        timeout: Duration,
    ) -> Result<PeerProcess, Failure> {
        let mut command = Command::new(env::current_exe().map_err(Failure::Start)?);
        command.args(arguments).args(["--timeout", &timeout.as_secs().to_string()]);
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::Start)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let (sender, lines) = mpsc::channel();
        let gone = Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        // A read cannot be given up, a thread can: it ends with the process that it listens to.
        thread::spawn(move || {
            for line in
                stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
            {
                // What is said when nobody asks any more is not needed.
                let _ = sender.send(line);
            }
            flag.store(true, Ordering::Relaxed);
        });
        Ok(PeerProcess { child, stdin, lines, gone, timeout })
    }

    /// The next line that the process says.
    ///
    /// # Errors
    ///
    /// [`Failure::PeerSilent`] if there is none in time, [`Failure::PeerEnded`] if the process has ended.
    pub(crate) fn next_line(&mut self) -> Result<String, Failure> {
        let line = self.lines.recv_timeout(self.timeout);
        line.map_err(|_| self.blamed_for(Failure::PeerSilent { timeout: self.timeout }))
    }

    /// The next line of those that the process has said already.
    pub(crate) fn waiting_line(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Waits until the process has ended by itself. If it has not after `limit`, it is told to by SIGTERM, at
    /// which libraries clean up, and killed in the end.
    pub(crate) fn end_within(mut self, limit: Duration) {
        if self.has_ended_within(limit) {
            return;
        }
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // It fails only if the process has ended meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        self.has_ended_within(END_LAG);
    }

    fn has_ended_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(END_INTERVAL),
                ended => return !matches!(ended, Ok(None)),
            }
        }
    }

    /// Says a line to the process.
    ///
    /// # Errors
    ///
    /// [`Failure::PeerEnded`] if the process has ended.
    pub(crate) fn tell(&mut self, line: impl Display) -> Result<(), Failure> {
        let line = format!("{line}\n");
        let told = self.stdin.as_mut().map_or(Err(io::ErrorKind::BrokenPipe.into()), |stdin| {
            stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush())
        });
        told.map_err(|_| self.blamed_for(Failure::PeerGone))
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Becomes true when the process has ended.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }

    /// A failure of this side, with the end of the process if that is what caused it.
    pub(crate) fn blamed_for(&mut self, cause: Failure) -> Failure {
        if matches!(cause, Failure::Output(_) | Failure::PeerEnded { .. }) {
            return cause;
        }
        let deadline = Instant::now() + END_LAG;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Failure::PeerEnded { status, cause: Box::new(cause) },
                Ok(None) if Instant::now() < deadline => thread::sleep(END_INTERVAL),
                _ => return cause,
            }
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // Neither fails unless the process has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What this process, which is a peer process, is told line by line. Ends the process as soon as the one that started it
/// is gone, whatever it does at that moment.
pub(crate) fn lines_from_parent() -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            // Whoever is not interested in what is told is still interested in the end.
            let _ = sender.send(line);
        }
        process::exit(1);
    });
    lines
}
