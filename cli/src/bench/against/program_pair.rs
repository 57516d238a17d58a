//! A server and a client of one program, each pinned to a core if that is requested.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::process::{Pid, Signal, kill_process};

use super::libfabric::InstalledLibfabric;
use super::on_core;
use crate::failure::CommandFailure;

/// The interval between checks whether the server listens.
const LISTEN_INTERVAL: Duration = Duration::from_millis(2);

/// How long a process may take to end. A client ends after it has closed its output, a server after its
/// client has ended, and either after SIGTERM.
const END_LAG: Duration = Duration::from_secs(2);

/// The interval between checks for the end of a process.
const END_INTERVAL: Duration = Duration::from_millis(2);

/// A client prints this if no server listens at the port.
const REFUSAL: &str = "Connection refused";

/// The pause before a refused client is started again.
const REFUSAL_INTERVAL: Duration = Duration::from_millis(50);

/// The length to which a failure shortens the error message of a program.
const COMPLAINT_MAX_CHARS: usize = 200;

/// A program, and the arguments of its two processes.
#[derive(Debug)]
pub(super) struct ProgramPair {
    pub(super) program: PathBuf,
    pub(super) server: Vec<OsString>,
    pub(super) client: Vec<OsString>,
    /// The TCP port at which the server waits for the client.
    pub(super) port: u16,
}

/// The conditions under which both processes run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions<'a> {
    pub(super) libfabric: &'a InstalledLibfabric,
    /// The cores of the client and of the server; `None` if the system chooses.
    pub(super) cores: Option<(usize, usize)>,
    pub(super) timeout: Duration,
}

/// Ports below Linux's dynamic range. From that range the system could give the port to another socket before
/// the server binds it.
const PORTS: Range<u16> = 20_000..32_768;

/// Finds a free port.
///
/// # Errors
///
/// Errors of the system.
pub(super) fn find_free_port() -> io::Result<u16> {
    let first = RandomState::new().hash_one(0) % u64::from(PORTS.end - PORTS.start);
    let mut ports = (PORTS.start..PORTS.end).cycle().skip(first as usize).take(PORTS.len());
    loop {
        // Bind the socket, but do not listen. Another pair may be waiting for its server at this port, and
        // would take a listening socket for its server.
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let port = ports.next().ok_or(io::ErrorKind::AddrInUse)?;
        match bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            Ok(()) => return Ok(port),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl ProgramPair {
    /// Runs both processes to their ends. Returns the client's output, or the reason why it is incomplete.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::Start`] if a process cannot be started.
    pub(super) fn run(&self, conditions: Conditions<'_>) -> Result<Result<String, String>, CommandFailure> {
        let (client_core, server_core) = conditions.cores.unzip();
        let deadline = Instant::now() + conditions.timeout;
        let mut server = Process::start(&self.program, &self.server, server_core, conditions.libfabric)?;
        while !is_listening(self.port) {
            if let Some(status) = server.try_wait()? {
                let printed = server
                    .append_stderr(&server.await_output_until(Instant::now() + END_LAG).unwrap_or_default());
                return Ok(Err(format!(
                    "the server ended early ({status}): {}",
                    last_line_escaped(&printed)
                )));
            }
            if Instant::now() > deadline {
                return Ok(Err("the server does not listen".into()));
            }
            thread::sleep(LISTEN_INTERVAL);
        }
        loop {
            let mut client = Process::start(&self.program, &self.client, client_core, conditions.libfabric)?;
            let Some(output) = client.await_output_until(deadline) else {
                let seconds = conditions.timeout.as_secs_f64();
                return Ok(Err(format!("not done after {seconds} s")));
            };
            let Some(status) = client.await_exit_status_within(END_LAG)? else {
                return Ok(Err("the client closed its output but did not end".into()));
            };
            if status.success() {
                return Ok(match server.await_exit_status_within(END_LAG)? {
                    Some(status) if !status.success() => {
                        let printed = server.append_stderr(
                            &server.await_output_until(Instant::now() + END_LAG).unwrap_or_default(),
                        );
                        Err(format!(
                            "the server failed at its end ({status}): {}",
                            last_line_escaped(&printed)
                        ))
                    }
                    // Even if the server has to be terminated, the client's result is complete.
                    _ => Ok(output),
                });
            }
            let printed = client.append_stderr(&output);
            // Try again: this server may not have been ready, because another process may have listened
            // at the port.
            let may_try_again = printed.contains(REFUSAL) && Instant::now() < deadline;
            if !may_try_again || server.try_wait()?.is_some() {
                return Ok(Err(format!(
                    "the client ended early ({status}): {}",
                    last_line_escaped(&printed)
                )));
            }
            thread::sleep(REFUSAL_INTERVAL);
        }
    }
}

/// A running program. When dropped, sends SIGTERM to the program, and kills it if it does not end.
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
        libfabric: &InstalledLibfabric,
    ) -> Result<Process, CommandFailure> {
        let mut command = Command::new(env::current_exe().map_err(CommandFailure::Start)?);
        command.args([on_core::COMMAND, "--parent", &std::process::id().to_string()]);
        command.args(core.map(|core| format!("--core={core}")));
        command.arg("--").arg(program).args(arguments);
        libfabric.set_environment(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(CommandFailure::Start)?;
        let (stdout, stderr) = (read_in_thread(child.stdout.take()), read_in_thread(child.stderr.take()));
        Ok(Process { child, stdout, stderr })
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, CommandFailure> {
        self.child.try_wait().map_err(CommandFailure::Start)
    }

    /// Returns the complete output, or `None` if the process does not close its output by the deadline.
    fn await_output_until(&self, deadline: Instant) -> Option<String> {
        match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(text) => Some(text),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(String::new()),
        }
    }

    /// The exit status, or `None` if the process still runs after `limit`.
    fn await_exit_status_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>, CommandFailure> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(END_INTERVAL);
        }
    }

    /// Returns `output` followed by the standard error of the process. The process must have ended.
    fn append_stderr(&self, output: &str) -> String {
        let complaints = self.stderr.recv_timeout(END_LAG).unwrap_or_default();
        format!("{output}\n{complaints}")
    }
}

/// The last line of a program's output, with escape sequences made harmless.
fn last_line_escaped(printed: &str) -> String {
    let mut lines = printed.lines().rev().filter(|line| !line.trim().is_empty());
    // Escape sequences of a program must not reach the terminal.
    let line = lines.next().unwrap_or("it says nothing").escape_debug().to_string();
    line.chars().take(COMPLAINT_MAX_CHARS).collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.try_wait(), Ok(None)) {
            // At SIGTERM libfabric's shm provider removes its segment from /dev/shm. The call fails only
            // if the process has ended.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.await_exit_status_within(END_LAG);
        }
        // A failure of either call means that the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe in a thread until the pipe is closed, because a read cannot be cancelled. The thread ends
/// with the process.
fn read_in_thread(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, text) = unbounded();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // After an error, keep the bytes that came before it.
            let _ = pipe.read_to_end(&mut bytes);
        }
        // This fails once the receiver is gone. Then nothing needs the text.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

/// Whether a process of this network namespace listens at a TCP port.
fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .any(|table| fs::read_to_string(table).is_ok_and(|table| table_has_listener(&table, port)))
}

/// Whether a table as in `proc_net_tcp(5)` has a listener at this port.
fn table_has_listener(table: &str, port: u16) -> bool {
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
    fn listening_socket_differs_from_a_connection() {
        assert!(table_has_listener(TABLE, 0x23a4));
        assert!(!table_has_listener(TABLE, 0x50));
        assert!(!table_has_listener(TABLE, 0x23a5));
    }

    #[test]
    fn failure_reason_is_the_last_line_with_escape_sequences_escaped() {
        assert_eq!(last_line_escaped("a table\nfirst\nlast \u{1b}[2J\n\n"), "last \\u{1b}[2J");
        assert_eq!(last_line_escaped("\n"), "it says nothing");
        assert_eq!(last_line_escaped(&"x".repeat(1000)).len(), COMPLAINT_MAX_CHARS);
    }

    #[test]
    fn listener_of_this_process_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        assert!(is_listening(listener.local_addr().expect("an address").port()));
    }
}
