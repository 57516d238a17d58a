//! Other processes that a test starts: the test's own program, run again to do one thing.
//!
//! What such a process does is written as an ignored test, its entry. The two talk through a pair of sockets, one of
//! which is the process's standard input. It ends when the test closes its end, and it is killed when the thread that
//! started it ends, however that comes about.

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

use super::posix;

/// Says that a process was started by [`Process::spawn`].
const VARIABLE: &str = "HOMESPUN_TEST_PROCESS";

/// How long a process may take for an answer, or to end. Longer than anything that it waits for itself.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A process that a test has started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    channel: Channel,
    has_ended: bool,
}

/// One end of what connects two processes.
pub(crate) struct Channel(UnixStream);

impl Process {
    /// Starts a process at the ignored test `entry`, given by its path (`module_path!()` and its name).
    pub(crate) fn spawn(entry: &str) -> Process {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_read_timeout(Some(ANSWER_MAX)).expect("a time that is not zero");
        let (_crate_name, entry) = entry.split_once("::").expect("a path inside this crate");
        let child = Command::new(env::current_exe().expect("the test's own program"))
            .args([entry, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Process { child, channel: Channel(ours), has_ended: false }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it was seen to die, or to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    #[track_caller]
    pub(crate) fn tell<T: Serialize>(&mut self, message: &T) {
        self.channel.tell(message).expect("the process listens");
    }

    /// The next thing that it says. Fails the test if it ends instead.
    #[track_caller]
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> T {
        match self.channel.hear() {
            Ok(Some(message)) => message,
            Ok(None) => panic!("the process has ended: {}", self.ended()),
            Err(error) => panic!("the process does not answer: {error}"),
        }
    }

    /// As [`hear`](Self::hear), or `None` if it ends, or has died.
    pub(crate) fn hear_if_alive<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.channel.hear().unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::ConnectionReset => None,
            _ => panic!("the process does not answer: {error}"),
        })
    }

    /// Whether it has closed its end of the channel, as it does when it dies. It must have nothing more to say.
    pub(crate) fn is_silent(&self) -> bool {
        self.channel.has_news(Duration::ZERO)
    }

    /// Kills it, if it has not died yet, and waits until nothing is left of it.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.child.kill().expect("it was not waited for");
        self.ended()
    }

    /// Has it stand still. Returns when it does.
    pub(crate) fn stop(&self) {
        posix::stop(Pid::from_child(&self.child));
    }

    /// Has it go on.
    pub(crate) fn resume(&self) {
        posix::resume(Pid::from_child(&self.child));
    }

    /// Waits until it has died by itself.
    #[track_caller]
    pub(crate) fn died(&mut self) -> ExitStatus {
        self.wait_for_silence();
        self.ended()
    }

    /// Has it end in order, and waits until it has.
    #[track_caller]
    fn end(&mut self) {
        self.channel.0.shutdown(std::net::Shutdown::Write).expect("the channel is open");
        self.wait_for_silence();
        let status = self.ended();
        assert!(status.success(), "a process ended badly: {status}, signal {:?}", status.signal());
    }

    /// Waits until it has closed its end of the channel, which it does last of all.
    #[track_caller]
    fn wait_for_silence(&mut self) {
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

    fn ended(&mut self) -> ExitStatus {
        self.has_ended = true;
        self.child.wait().expect("a process that was started")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if thread::panicking() {
            self.kill();
        } else {
            self.end();
        }
    }
}

impl Channel {
    /// The channel to the test that has started this process, or `None` in a process that nobody has started for
    /// this. From now on the process dies with the test.
    pub(crate) fn inherited() -> Option<Channel> {
        env::var_os(VARIABLE)?;
        set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux knows this");
        let stream = io::stdin().as_fd().try_clone_to_owned().expect("standard input is open");
        Some(Channel(UnixStream::from(stream)))
    }

    pub(crate) fn tell<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        let bytes = postcard::to_extend(message, vec![0; size_of::<u64>()]).expect("it can be written down");
        let (len_bytes, mut bytes) = (bytes.len() - size_of::<u64>(), bytes);
        bytes[..size_of::<u64>()].copy_from_slice(&(len_bytes as u64).to_le_bytes());
        self.0.write_all(&bytes)
    }

    /// The next message, or `None` when the other side has closed.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
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

    /// Whether the other side has said something, or has closed. Waits for it for a moment if there is one to wait.
    pub(crate) fn has_news(&self, moment: Duration) -> bool {
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
