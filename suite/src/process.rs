//! Other processes of a test. Each is the test's own program, started again at another entry.
//!
//! The entry is an ignored test that does the work of the process. A pair of sockets connects the process
//! with the test. One of the sockets is the standard input of the process. When the test closes the other
//! socket, the process ends. When the thread that started the process ends, the kernel kills the process.

use std::env;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::deadline::patience;
use super::posix;

/// [`Process::spawn`] sets this environment variable in each process that it starts.
const VARIABLE: &str = "HOMESPUN_TEST_PROCESS";

/// How much longer a process may take to answer or to end than a test [waits](patience) for an event. A call
/// of another provider may never return.
const ANSWER_GRACE: Duration = Duration::from_secs(10);

/// How long a process may take to end by itself when its test has failed.
const FAILED_CLOSE_MAX: Duration = Duration::from_secs(2);

/// A process that a test has started.
#[derive(Debug)]
pub struct Process {
    child: Child,
    channel: Channel,
    was_reaped: bool,
}

/// One end of the connection between two processes.
pub struct Channel(UnixStream);

/// Whether [`Process::spawn`] has started this process.
pub(super) fn is_started_by_test() -> bool {
    env::var_os(VARIABLE).is_some()
}

impl Process {
    /// Starts a process at the ignored test with this path: `module_path!()` and the test's name.
    pub fn spawn(entry: &str) -> Process {
        let (_crate_name, entry) = entry.split_once("::").expect("a path inside a crate");
        Process::spawn_at_crate_path(entry, None)
    }

    /// Starts a process at the ignored test with this path, which begins inside the crate of the tests, with
    /// this variable in its environment.
    pub(super) fn spawn_at_crate_path(entry: &str, variable: Option<(&str, String)>) -> Process {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_read_timeout(Some(patience() + ANSWER_GRACE)).expect("a time that is not zero");
        let child = Command::new(env::current_exe().expect("the test's own program"))
            .args([entry, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, "1")
            .envs(variable)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Process { child, channel: Channel(ours), was_reaped: false }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the test has waited for the end of the process.
    pub fn was_reaped(&self) -> bool {
        self.was_reaped
    }

    /// Sends the process a message.
    #[track_caller]
    pub fn send_message<T: Serialize>(&mut self, message: &T) {
        self.channel.send_message(message).expect("the process listens");
    }

    /// Sends the process a message. Returns whether the process still listens.
    pub(super) fn send_if_alive<T: Serialize>(&mut self, message: &T) -> bool {
        match self.channel.send_message(message) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
            Err(error) => panic!("the process does not listen: {error}"),
        }
    }

    /// Waits for the next message of the process. Panics if the process ends or does not answer in time.
    #[track_caller]
    pub fn receive_message<T: DeserializeOwned>(&mut self) -> T {
        match self.channel.receive_message() {
            Ok(Some(message)) => message,
            Ok(None) => panic!("the process has ended: {}", self.reap()),
            Err(error) => panic!("the process does not answer: {error}"),
        }
    }

    /// As [`receive_message`](Self::receive_message), but returns `None` if the process ends.
    pub fn receive_if_alive<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.channel.receive_message().unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::ConnectionReset => None,
            _ => panic!("the process does not answer: {error}"),
        })
    }

    /// Whether the process has sent a message or has closed its end of the channel. A process that dies
    /// closes its end.
    pub fn is_channel_readable(&self) -> bool {
        self.channel.wait_readable(Duration::ZERO)
    }

    /// Kills the process, unless it has ended, and waits for its end.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().expect("it was not waited for");
        self.reap()
    }

    /// Stops the process. Returns when it has stopped.
    pub fn stop(&self) {
        posix::stop_child(Pid::from_child(&self.child));
    }

    /// Resumes the process.
    pub fn resume(&self) {
        posix::resume_child(Pid::from_child(&self.child));
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.wait_for_channel_close();
        self.reap()
    }

    /// Lets the process end regularly, and waits for its end.
    #[track_caller]
    fn close_and_wait(&mut self) {
        self.channel.0.shutdown(std::net::Shutdown::Write).expect("the channel is open");
        self.wait_for_channel_close();
        let status = self.reap();
        assert!(status.success(), "a process ended badly: {status}, signal {:?}", status.signal());
    }

    /// Waits until the process has closed its end of the channel. A process does this last.
    #[track_caller]
    fn wait_for_channel_close(&mut self) {
        let mut rest = Vec::new();
        match self.channel.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => {
                let status = self.kill();
                panic!("a process did not end and was killed: {error}, {status}");
            }
        }
    }

    /// Waits for the end of the process, which has closed its channel.
    pub(super) fn reap(&mut self) -> ExitStatus {
        self.was_reaped = true;
        self.child.wait().expect("a process that was started")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.was_reaped {
            return;
        }
        if thread::panicking() {
            // What a provider has put into the file system goes with a regular end alone.
            let _ = self.channel.0.shutdown(std::net::Shutdown::Write);
            self.channel.wait_readable(FAILED_CLOSE_MAX);
            self.kill();
        } else {
            self.close_and_wait();
        }
    }
}

impl Channel {
    /// Returns the channel to the test that has started this process. Returns `None` if [`Process::spawn`]
    /// has not started the process. After this call the process dies with the test.
    pub fn from_parent() -> Option<Channel> {
        env::var_os(VARIABLE)?;
        set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux knows this");
        let stream = io::stdin().as_fd().try_clone_to_owned().expect("standard input is open");
        Some(Channel(UnixStream::from(stream)))
    }

    /// Sends a message to the other side.
    pub fn send_message<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        let mut bytes = vec![0; size_of::<u64>()];
        // Do not use `to_extend`. It appends byte by byte, and so is slow in code that is not optimised.
        postcard::to_io(message, &mut bytes).expect("it can be written down");
        let len_bytes = bytes.len() - size_of::<u64>();
        bytes[..size_of::<u64>()].copy_from_slice(&(len_bytes as u64).to_le_bytes());
        self.0.write_all(&bytes)
    }

    /// Waits for the next message. Returns `None` when the other side has closed.
    pub fn receive_message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut len_bytes = [0; size_of::<u64>()];
        match self.0.read_exact(&mut len_bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(len_bytes)).expect("a length")];
        self.0.read_exact(&mut bytes)?;
        Ok(Some(postcard::from_bytes(&bytes).expect("both ends are the same program")))
    }

    /// Waits at most for `moment`. Returns whether a message has arrived or the other side has closed its
    /// end.
    pub fn wait_readable(&self, moment: Duration) -> bool {
        let timeout = Timespec::try_from(moment).expect("a short time");
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => ready > 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => panic!("the channel cannot be waited on: {error}"),
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Channel").finish_non_exhaustive()
    }
}
