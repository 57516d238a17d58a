//! The other end of a measurement on one host: this program once more, as a server.

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{self, Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::server::LISTENING;
use super::target::Target;
use crate::failure::Failure;

/// How long the end of a peer process may lag behind the end of its connections.
const END_LAG: Duration = Duration::from_millis(500);

/// How often it is looked for.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// A server in a process of its own, which ends with this value at the latest, or with this process.
#[derive(Debug)]
pub(super) struct PeerProcess {
    child: Child,
    /// The process ends when this is closed, however this process ends.
    _lifeline: Option<ChildStdin>,
    address: Target,
}

impl PeerProcess {
    /// Starts a server at some port of the loopback interface, on a core if one is given.
    pub(super) fn start(
        domain: &str,
        core: Option<usize>,
        timeout: Duration,
    ) -> Result<PeerProcess, Failure> {
        let mut command = Command::new(env::current_exe().map_err(Failure::Start)?);
        command.args(["pingpong", "--listen", "127.0.0.1:0", "--peer-process", "--domain", domain]);
        command.args(["--timeout", &timeout.as_secs().to_string()]);
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::Start)?;
        let lifeline = child.stdin.take();
        let stdout = child.stdout.take();
        // From here on the process does not outlive this function's failure.
        let mut peer =
            PeerProcess { child, _lifeline: lifeline, address: Target { host: String::new(), port: 0 } };
        let address = stdout.and_then(|stdout| listening_address(stdout, timeout));
        match address {
            Some(address) => peer.address = address,
            None => return Err(peer.blamed_for(Failure::NotListening)),
        }
        Ok(peer)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &Target {
        &self.address
    }

    /// A failure of this side, with the end of the process if that is what caused it.
    pub(super) fn blamed_for(&mut self, cause: Failure) -> Failure {
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

/// Ends this process, which is a peer process, as soon as the one that started it is gone.
pub(super) fn end_with_parent() {
    thread::spawn(|| {
        let mut nothing = [0];
        loop {
            match io::stdin().read(&mut nothing) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => process::exit(1),
            }
        }
    });
}

/// What a server says where it listens. None if it does not say so in time.
fn listening_address(stdout: ChildStdout, timeout: Duration) -> Option<Target> {
    let (sender, line) = mpsc::channel();
    // A read cannot be given up, a thread can: it ends with the process that it listens to.
    thread::spawn(move || {
        let mut first = String::new();
        let read = BufReader::new(stdout).read_line(&mut first);
        // Nobody listens any more if it took too long.
        let _ = sender.send(read.map(|_| first));
    });
    let line = line.recv_timeout(timeout).ok()?.ok()?;
    line.strip_prefix(LISTENING)?.split(' ').next()?.parse().ok()
}
