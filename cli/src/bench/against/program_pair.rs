//! A server and a client of one program, each on a core of its own.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustix::process::{Pid, Signal, kill_process};

use super::libfabric::Libfabric;
use super::on_core;
use crate::failure::Failure;

/// How often a server is looked at that does not listen yet.
const LISTEN_INTERVAL: Duration = Duration::from_millis(2);

/// How long a process may take to end: a client once its output is complete, a server after its client, and
/// each after SIGTERM.
const END_LAG: Duration = Duration::from_secs(2);

/// How often the end is looked for.
const END_INTERVAL: Duration = Duration::from_millis(2);

/// What a client says that found no server at the port.
const REFUSAL: &str = "Connection refused";

/// How long it takes until a client that was refused is started again.
const REFUSAL_INTERVAL: Duration = Duration::from_millis(50);

/// How much of what a program says about its failure is repeated.
const COMPLAINT_MAX_CHARS: usize = 200;

/// A program, and what its two processes are told.
#[derive(Debug)]
pub(super) struct ProgramPair {
    pub(super) program: PathBuf,
    pub(super) server: Vec<OsString>,
    pub(super) client: Vec<OsString>,
    /// The TCP port at which the server waits for the client before they measure.
    pub(super) port: u16,
}

/// How both processes run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions<'a> {
    pub(super) libfabric: &'a Libfabric,
    /// The cores of the client and of the server; without them the system chooses.
    pub(super) cores: Option<(usize, usize)>,
    pub(super) timeout: Duration,
}

/// A port that is free now.
///
/// # Errors
///
/// Those of the system.
pub(super) fn free_port() -> io::Result<u16> {
    // A socket that listened for a moment could be taken for another pair's server.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let bound = SocketAddr::try_from(getsockname(&socket)?).map_err(io::Error::from)?;
    Ok(bound.port())
}

impl ProgramPair {
    /// Runs both to their ends. Returns what the client printed, or in words why that is not the whole
    /// result.
    ///
    /// # Errors
    ///
    /// [`Failure::Start`] if a process cannot even be started.
    pub(super) fn run(&self, conditions: Conditions<'_>) -> Result<Result<String, String>, Failure> {
        let (client_core, server_core) = conditions.cores.unzip();
        let deadline = Instant::now() + conditions.timeout;
        let mut server = Process::start(&self.program, &self.server, server_core, conditions.libfabric)?;
        while !is_listening(self.port) {
            if let Some(status) = server.ended()? {
                let said = server.said(&server.output_until(Instant::now() + END_LAG).unwrap_or_default());
                return Ok(Err(format!("the server ended early ({status}): {}", complaint(&said))));
            }
            if Instant::now() > deadline {
                return Ok(Err("the server does not listen".into()));
            }
            thread::sleep(LISTEN_INTERVAL);
        }
        loop {
            let mut client = Process::start(&self.program, &self.client, client_core, conditions.libfabric)?;
            let Some(output) = client.output_until(deadline) else {
                let seconds = conditions.timeout.as_secs_f64();
                return Ok(Err(format!("not done after {seconds} s")));
            };
            let Some(status) = client.ended_within(END_LAG)? else {
                return Ok(Err("the client closed its output but did not end".into()));
            };
            if status.success() {
                return Ok(match server.ended_within(END_LAG)? {
                    Some(status) if !status.success() => {
                        let said =
                            server.said(&server.output_until(Instant::now() + END_LAG).unwrap_or_default());
                        Err(format!("the server failed at its end ({status}): {}", complaint(&said)))
                    }
                    // The client's result is whole, also where its server has to be told to end.
                    _ => Ok(output),
                });
            }
            let said = client.said(&output);
            // A process that is no part of the pair may have listened at the port before the server does.
            let may_try_again = said.contains(REFUSAL) && Instant::now() < deadline;
            if !may_try_again || server.ended()?.is_some() {
                return Ok(Err(format!("the client ended early ({status}): {}", complaint(&said))));
            }
            thread::sleep(REFUSAL_INTERVAL);
        }
    }
}

/// A process of a program, told to end by SIGTERM when dropped, and killed if it does not.
struct Process {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Process {
    fn start(
        program: &PathBuf,
        arguments: &[OsString],
        core: Option<usize>,
        libfabric: &Libfabric,
    ) -> Result<Process, Failure> {
        let mut command = Command::new(env::current_exe().map_err(Failure::Start)?);
        command.args([on_core::COMMAND, "--parent", &std::process::id().to_string()]);
        command.args(core.map(|core| format!("--core={core}")));
        command.arg("--").arg(program).args(arguments);
        libfabric.give_to(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::Start)?;
        let (stdout, stderr) = (all_of(child.stdout.take()), all_of(child.stderr.take()));
        Ok(Process { child, stdout, stderr })
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child.try_wait().map_err(Failure::Start)
    }

    /// All that it prints, or none if it has not ended by then.
    fn output_until(&self, deadline: Instant) -> Option<String> {
        match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(text) => Some(text),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(String::new()),
        }
    }

    /// How it ended, or none if it still runs after `limit`.
    fn ended_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>, Failure> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.ended()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(END_INTERVAL);
        }
    }

    /// What it has printed, and then what it has said on standard error. It has ended.
    fn said(&self, output: &str) -> String {
        let complaints = self.stderr.recv_timeout(END_LAG).unwrap_or_default();
        format!("{output}\n{complaints}")
    }
}

/// The last line of what a program has said.
fn complaint(said: &str) -> String {
    let mut lines = said.lines().rev().filter(|line| !line.trim().is_empty());
    // A program's words must not steer the terminal.
    let line = lines.next().unwrap_or("it says nothing").escape_debug().to_string();
    line.chars().take(COMPLAINT_MAX_CHARS).collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(None)) {
            // libfabric's shm removes its segment from /dev/shm at SIGTERM. This fails only once it has ended.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.ended_within(END_LAG);
        }
        // Neither fails unless the process has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All of a pipe, once it is closed. A read cannot be given up, a thread can: it ends with the process.
fn all_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error counts.
            let _ = pipe.read_to_end(&mut bytes);
        }
        // Without a receiver the text is not needed any more.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

/// Whether a process of this network namespace listens at a TCP port.
fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .any(|table| fs::read_to_string(table).is_ok_and(|table| lists_listener(&table, port)))
}

/// Whether a table as in `proc_net_tcp(5)` has a listener at this port.
fn lists_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _remote, state) = (fields.next(), fields.next(), fields.next());
        local.is_some_and(|local| local.ends_with(&ending)) && state == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:23A4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:0050 0100007F:23A5 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
";

    #[test]
    fn listener_is_told_from_a_connection() {
        assert!(lists_listener(TABLE, 0x23a4));
        assert!(!lists_listener(TABLE, 0x50));
        assert!(!lists_listener(TABLE, 0x23a5));
    }

    #[test]
    fn complaint_is_the_last_line_and_steers_no_terminal() {
        assert_eq!(complaint("a table\nfirst\nlast \u{1b}[2J\n\n"), "last \\u{1b}[2J");
        assert_eq!(complaint("\n"), "it says nothing");
        assert_eq!(complaint(&"x".repeat(1000)).len(), COMPLAINT_MAX_CHARS);
    }

    #[test]
    fn listener_of_this_process_is_seen() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        assert!(is_listening(listener.local_addr().expect("an address").port()));
    }
}
