//! The follower: the second process of a measurement. It does its part in each step that the leader
//! announces.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::access;
use super::bare::{self, BareMemory, BarePoller, Medium};
use super::step::{Step, Way};
use crate::console::Console;
use crate::cores;
use crate::exchange::conversation::{Conversation, Settings};
use crate::exchange::host_and_port::HostAndPort;
use crate::exchange::measure;
use crate::exchange::pattern::MessageDirection;
use crate::exchange::port::Port;
use crate::exchange::remote_region::RemoteRegion;
use crate::failure::CommandFailure;
use crate::peer_process;

/// The interval between progress calls while no step is under way. Progress calls send messages that the
/// endpoint still holds.
const IDLE_INTERVAL: Duration = Duration::from_millis(1);

/// The first word that a follower with shared memory writes. A reason follows if the follower cannot
/// read the leader's memory.
pub(super) const MEMORY: &str = "memory";

/// The first word that a follower without shared memory writes. The address at which the follower
/// listens comes next.
pub(super) const SOCKET: &str = "socket";

/// The word that the follower writes before its endpoint's address and its region.
pub(super) const ENDPOINT: &str = "endpoint";

/// The word that the leader writes before the address of its endpoint.
pub(super) const PARTNER: &str = "partner";

/// The follower's word that a step may begin.
pub(super) const READY: &str = "ready";

/// The word that the follower writes at the end of its part in a bare loop. Then the leader may clear
/// the shared memory.
pub(super) const DONE: &str = "done";

/// The other process of `bench` and `bare`.
#[derive(Debug, Args)]
pub(crate) struct FollowerArguments {
    /// The domain to open an endpoint in.
    #[arg(long)]
    domain: Option<String>,
    /// Send tagged messages.
    #[arg(long)]
    tagged: bool,
    /// How many bytes of memory the other process may access.
    #[arg(long, default_value_t = 0)]
    region_bytes: usize,
    /// The path of the shared memory; without it the processes use a connection.
    #[arg(long)]
    memory: Option<PathBuf>,
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// Give up when nothing has happened for this many seconds.
    #[arg(long)]
    timeout: u64,
}

/// Follows the leader's steps until the leader closes the pipe.
pub(crate) fn run(arguments: &FollowerArguments, console: &Console) -> Result<(), CommandFailure> {
    let lines = peer_process::read_parent_lines_or_exit();
    let follow = || {
        if let Some(core) = arguments.core {
            cores::pin_thread_to_core(core)?;
        }
        let timeout = Duration::from_secs(arguments.timeout);
        // The flag would show that the leader has ended. It stays false, because this process ends with
        // the leader.
        let poller = BarePoller::new(Arc::new(AtomicBool::new(false)), timeout, arguments.core.is_some());
        let medium = open_medium(arguments, console)?;
        let has_own_core = arguments.core.is_some();
        let follower = Follower { console, lines: &lines, medium: &medium, poller: &poller, has_own_core };
        match &arguments.domain {
            Some(domain) => follower.open_endpoint_and_follow(domain, arguments),
            None => follower.follow(None),
        }
    };
    follow().map_err(|failure| CommandFailure::InPeer(Box::new(failure)))
}

fn open_medium(arguments: &FollowerArguments, console: &Console) -> Result<Medium, CommandFailure> {
    if let Some(path) = &arguments.memory {
        let memory = BareMemory::open(path)?;
        let other_pid = rustix::process::getppid().map_or(0, rustix::process::Pid::as_raw_pid);
        match memory.check_readv_access(other_pid) {
            Ok(()) => console.print_line(MEMORY)?,
            Err(error) => console.print_line(format_args!("{MEMORY} {error}"))?,
        }
        Ok(Medium::Memory { memory, other_pid })
    } else {
        let listening = |error| CommandFailure::Bare { doing: "listening", error };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        console.print_line(format_args!("{SOCKET} {address}"))?;
        Medium::from_tcp_stream(listener.accept().map(|(stream, _)| stream))
    }
}

struct Follower<'a> {
    console: &'a Console,
    lines: &'a Receiver<String>,
    medium: &'a Medium,
    poller: &'a BarePoller,
    has_own_core: bool,
}

impl Follower<'_> {
    fn open_endpoint_and_follow(
        &self,
        domain: &str,
        arguments: &FollowerArguments,
    ) -> Result<(), CommandFailure> {
        let any = HostAndPort { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 };
        let port = Port::open_listening(&any, Some(domain), access::CAPS)?;
        let region = port.register_shared(arguments.region_bytes)?;
        let place = RemoteRegion { key: region.key(), address: region.address() };
        self.console.print_line(format_args!("{ENDPOINT} {} {place}", port.address()))?;
        let line = self.lines.recv().map_err(|_| CommandFailure::PeerGone)?;
        let partner: SocketAddr =
            strip_keyword(&line, PARTNER)?.parse().map_err(|_| CommandFailure::PeerProtocol)?;
        let timeout = Duration::from_secs(arguments.timeout);
        let settings = Settings {
            direction: MessageDirection::ToClient,
            tagged: arguments.tagged,
            check: false,
            timeout,
        };
        let mut conversation = Conversation::open(&port, partner.into(), settings)?;
        self.follow(Some((&port, &mut conversation)))
    }

    /// Takes part in each step that the leader announces.
    fn follow(&self, mut fabric: Option<(&Port, &mut Conversation<'_>)>) -> Result<(), CommandFailure> {
        loop {
            let received = match &fabric {
                Some(_) => self.lines.recv_timeout(IDLE_INTERVAL),
                // Between the steps of a bare loop this process sleeps.
                None => self.lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let line = match received {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some((port, _)) = &fabric {
                        port.cq.progress();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let step: Step = line.parse().map_err(|_| CommandFailure::PeerProtocol)?;
            if let Way::Fabric | Way::SendBuffers | Way::Access(_) = step.way {
                let (_, conversation) = fabric.as_mut().ok_or(CommandFailure::PeerProtocol)?;
                conversation.use_send_buffers(step.way == Way::SendBuffers);
                self.console.print_line(READY)?;
                match step.way {
                    Way::Access(_) => access::follow(conversation, self.has_own_core)?,
                    _ => measure::follow(conversation, step.metric, &step.run)?,
                }
            } else {
                let mut end = self.medium.prepare_loop_end(&step, self.poller)?;
                self.console.print_line(READY)?;
                bare::follow(&mut *end, &step)?;
                self.console.print_line(DONE)?;
            }
        }
    }
}

/// The text of a line after its first word, which must be `word`.
pub(super) fn strip_keyword<'a>(line: &'a str, word: &str) -> Result<&'a str, CommandFailure> {
    line.strip_prefix(word).map(str::trim_start).ok_or(CommandFailure::PeerProtocol)
}

/// Reads the first line of a follower with shared memory. Returns the reason why the follower cannot
/// read the leader's memory, or `None` if it can.
pub(super) fn parse_readv_refusal(line: &str) -> Result<Option<io::Error>, CommandFailure> {
    let reason = strip_keyword(line, MEMORY)?;
    Ok((!reason.is_empty()).then(|| io::Error::other(reason.to_owned())))
}
