//! The process that follows: it does its part of each step that it is told.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use clap::Args;

use super::access;
use super::bare::{self, Medium, Memory, Vigil};
use super::step::{Step, Way};
use crate::console::Console;
use crate::cores;
use crate::exchange::channel::{Channel, Settings};
use crate::exchange::measure;
use crate::exchange::pattern::Direction;
use crate::exchange::place::Place;
use crate::exchange::port::Port;
use crate::exchange::target::Target;
use crate::failure::Failure;
use crate::peer_process;

/// How long the endpoint is left alone between steps. What it has still to send then leaves.
const IDLE_INTERVAL: Duration = Duration::from_millis(1);

/// What is said first by a process that shares memory; why it cannot read the other's follows, if it cannot.
pub(super) const MEMORY: &str = "memory";

/// What is said first by a process that a connection is to be made to; its address follows.
pub(super) const SOCKET: &str = "socket";

/// What is said of the endpoint; its address follows, and the place of the memory that is accessed.
pub(super) const ENDPOINT: &str = "endpoint";

/// What is told of the other endpoint; its address follows.
pub(super) const PARTNER: &str = "partner";

/// What is said when a step may begin.
pub(super) const READY: &str = "ready";

/// What is said when the part of this process in a bare loop is over, so that the memory may be cleared.
pub(super) const DONE: &str = "done";

/// The other process of `bench` and `bare`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The domain to open an endpoint in.
    #[arg(long)]
    domain: Option<String>,
    /// Send tagged messages.
    #[arg(long)]
    tagged: bool,
    /// How much memory the other process may access.
    #[arg(long, default_value_t = 0)]
    region_bytes: usize,
    /// Where the shared memory is; without it there is a connection.
    #[arg(long)]
    memory: Option<PathBuf>,
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// How long nothing may happen, in seconds.
    #[arg(long)]
    timeout: u64,
}

/// Follows until nobody leads any more.
pub(crate) fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let lines = peer_process::lines_from_parent();
    let follow = || {
        if let Some(core) = arguments.core {
            cores::pin(core)?;
        }
        let timeout = Duration::from_secs(arguments.timeout);
        // If the other process ends, so does this one, at once.
        let vigil = Vigil::new(Arc::new(AtomicBool::new(false)), timeout, arguments.core.is_some());
        let medium = open_medium(arguments, console)?;
        let has_own_core = arguments.core.is_some();
        let follower = Follower { console, lines: &lines, medium: &medium, vigil: &vigil, has_own_core };
        match &arguments.domain {
            Some(domain) => follower.follow_on_the_fabric(domain, arguments),
            None => follower.follow(None),
        }
    };
    follow().map_err(|failure| Failure::InPeer(Box::new(failure)))
}

fn open_medium(arguments: &Arguments, console: &Console) -> Result<Medium, Failure> {
    if let Some(path) = &arguments.memory {
        let memory = Memory::open(path)?;
        let other_pid = rustix::process::getppid().map_or(0, rustix::process::Pid::as_raw_pid);
        match memory.probe(other_pid) {
            Ok(()) => console.line(MEMORY)?,
            Err(error) => console.line(format_args!("{MEMORY} {error}"))?,
        }
        Ok(Medium::Memory { memory, other_pid })
    } else {
        let listening = |error| Failure::Bare { doing: "listening", error };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        console.line(format_args!("{SOCKET} {address}"))?;
        Medium::socket(listener.accept().map(|(stream, _)| stream))
    }
}

struct Follower<'a> {
    console: &'a Console,
    lines: &'a Receiver<String>,
    medium: &'a Medium,
    vigil: &'a Vigil,
    has_own_core: bool,
}

impl Follower<'_> {
    fn follow_on_the_fabric(&self, domain: &str, arguments: &Arguments) -> Result<(), Failure> {
        let any = Target { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 };
        let port = Port::listening(&any, Some(domain), access::CAPS)?;
        let region = port.share(arguments.region_bytes)?;
        let place = Place { key: region.key(), address: region.address() };
        self.console.line(format_args!("{ENDPOINT} {} {place}", port.address()))?;
        let line = self.lines.recv().map_err(|_| Failure::PeerGone)?;
        let partner: SocketAddr = after(&line, PARTNER)?.parse().map_err(|_| Failure::PeerTalk)?;
        let timeout = Duration::from_secs(arguments.timeout);
        let settings =
            Settings { direction: Direction::ToClient, tagged: arguments.tagged, check: false, timeout };
        let mut channel = Channel::open(&port, partner.into(), settings)?;
        self.follow(Some((&port, &mut channel)))
    }

    /// Follows step after step.
    fn follow(&self, mut fabric: Option<(&Port, &mut Channel<'_>)>) -> Result<(), Failure> {
        loop {
            let told = match &fabric {
                Some(_) => self.lines.recv_timeout(IDLE_INTERVAL),
                // Between steps of a bare loop this process leaves its core alone.
                None => self.lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let line = match told {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((port, _)) = &fabric {
                        port.cq.progress();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let step: Step = line.parse().map_err(|_| Failure::PeerTalk)?;
            if let Way::Fabric | Way::Access(_) = step.way {
                let (_, channel) = fabric.as_mut().ok_or(Failure::PeerTalk)?;
                self.console.line(READY)?;
                match step.way {
                    Way::Access(_) => access::follow(channel, self.has_own_core)?,
                    _ => measure::follow(channel, step.metric, &step.run)?,
                }
            } else {
                let mut end = self.medium.prepare(&step, self.vigil)?;
                self.console.line(READY)?;
                bare::follow(&mut *end, &step)?;
                self.console.line(DONE)?;
            }
        }
    }
}

/// What follows a word.
pub(super) fn after<'a>(line: &'a str, word: &str) -> Result<&'a str, Failure> {
    line.strip_prefix(word).map(str::trim_start).ok_or(Failure::PeerTalk)
}

/// Reads why the other process cannot read this one's memory. None if it can.
pub(super) fn refusal(line: &str) -> Result<Option<io::Error>, Failure> {
    let reason = after(line, MEMORY)?;
    Ok((!reason.is_empty()).then(|| io::Error::other(reason.to_owned())))
}
