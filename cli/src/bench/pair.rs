//! The leader's view of the two processes of a measurement.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::access;
use super::bare::{self, BareMemory, BarePoller, Medium};
use super::follower::{self, DONE, ENDPOINT, PARTNER, READY, SOCKET};
use super::step::{Step, Way};
use crate::cores;
use crate::exchange::conversation::{Conversation, Settings};
use crate::exchange::host_and_port::HostAndPort;
use crate::exchange::measure;
use crate::exchange::pattern::MessageDirection;
use crate::exchange::port::Port;
use crate::exchange::remote_region::RemoteRegion;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;
use crate::peer_process::PeerProcess;

/// The hidden command of the follower.
const FOLLOWER: &str = "bench-follower";

/// The kind of medium between the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediumKind {
    Memory,
    Socket,
}

/// How the two processes run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    /// The cores of the two processes; `None` if the system chooses them.
    pub(super) cores: Option<(usize, usize)>,
    /// The longest time without any progress.
    pub(super) timeout: Duration,
}

/// This process and its follower, with the medium between them.
#[derive(Debug)]
pub(super) struct Pair {
    peer: PeerProcess,
    medium: Medium,
    poller: BarePoller,
    /// The reason, if one of the two processes cannot read the memory of the other.
    readv_refusal: Option<io::Error>,
    /// The region of the follower, or `None` until the follower has announced it.
    place: Option<RemoteRegion>,
}

/// The endpoints to open in both processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndpointSpec<'a> {
    pub(super) domain: &'a str,
    pub(super) tagged: bool,
    /// The length of the follower's region.
    pub(super) region_bytes: usize,
}

impl Pair {
    /// Starts the follower and connects to it by a medium. Pins both processes if `placement` names
    /// cores.
    pub(super) fn start(
        kind: MediumKind,
        fabric: Option<EndpointSpec<'_>>,
        placement: Placement,
    ) -> Result<Pair, CommandFailure> {
        let Placement { cores, timeout } = placement;
        if let Some((own, _)) = cores {
            cores::pin_thread_to_core(own)?;
        }
        let memory = (kind == MediumKind::Memory).then(BareMemory::create).transpose()?;
        let path = memory.as_ref().map(BareMemory::proc_fd_path);
        let mut arguments = vec![FOLLOWER];
        arguments.extend(path.iter().flat_map(|path| ["--memory", path]));
        let region_bytes = fabric.map_or(0, |fabric| fabric.region_bytes).to_string();
        if let Some(EndpointSpec { domain, tagged, .. }) = fabric {
            arguments.extend(["--domain", domain, "--region-bytes", &region_bytes]);
            arguments.extend(tagged.then_some("--tagged"));
        }
        let mut peer = PeerProcess::start(&arguments, cores.map(|(_, other)| other), timeout)?;
        let poller = BarePoller::new(peer.ended_flag(), timeout, cores.is_some());
        let line = peer.await_line()?;
        let (medium, readv_refusal) = match memory {
            Some(memory) => {
                let other_pid = i32::try_from(peer.pid()).unwrap_or_default();
                let refusal = follower::parse_readv_refusal(&line)?
                    .or_else(|| memory.check_readv_access(other_pid).err());
                (Medium::Memory { memory, other_pid }, refusal)
            }
            None => {
                let address: SocketAddr = follower::strip_keyword(&line, SOCKET)?
                    .parse()
                    .map_err(|_| CommandFailure::PeerProtocol)?;
                (Medium::from_tcp_stream(TcpStream::connect(address))?, None)
            }
        };
        Ok(Pair { peer, medium, poller, readv_refusal, place: None })
    }

    /// The reason why one of the two processes cannot read the memory of the other. `None` if both can.
    pub(super) fn readv_refusal(&self) -> Option<&io::Error> {
        self.readv_refusal.as_ref()
    }

    /// Fails if one of the two processes cannot read the memory of the other.
    pub(super) fn require_readv(&mut self) -> Result<(), CommandFailure> {
        let doing = "reading the memory of the other process";
        self.readv_refusal.take().map_or(Ok(()), |error| Err(CommandFailure::Bare { doing, error }))
    }

    /// Opens this process's endpoint. Returns its port, and the address of the follower's endpoint.
    pub(super) fn open_port_to_follower(
        &mut self,
        domain: &str,
    ) -> Result<(Port, homespun::Address), CommandFailure> {
        let line = self.peer.await_line()?;
        let endpoint =
            follower::strip_keyword(&line, ENDPOINT)?.split_once(' ').ok_or(CommandFailure::PeerProtocol)?;
        let listening: SocketAddr = endpoint.0.parse().map_err(|_| CommandFailure::PeerProtocol)?;
        self.place = Some(endpoint.1.parse().map_err(|_| CommandFailure::PeerProtocol)?);
        let target = HostAndPort::from(homespun::Address::from(listening));
        let opened = Port::open_to_peer(&target, Some(domain), access::CAPS)?;
        self.peer.write_line(format_args!("{PARTNER} {}", opened.0.address()))?;
        Ok(opened)
    }

    /// Measures one step.
    pub(super) fn measure_step(
        &mut self,
        step: &Step,
        conversation: Option<&mut Conversation<'_>>,
    ) -> Result<Timing, CommandFailure> {
        let led = self.try_measure_step(step, conversation);
        led.map_err(|failure| self.add_follower_exit_status(failure))
    }

    /// Adds the follower's exit status to a failure, if the follower has ended or ends soon.
    pub(super) fn add_follower_exit_status(&mut self, failure: CommandFailure) -> CommandFailure {
        self.peer.add_exit_status(failure)
    }

    fn try_measure_step(
        &mut self,
        step: &Step,
        conversation: Option<&mut Conversation<'_>>,
    ) -> Result<Timing, CommandFailure> {
        let Pair { peer, medium, poller, place, .. } = self;
        let Step { way, metric, run } = step;
        match way {
            Way::Fabric | Way::SendBuffers => {
                let conversation = conversation.ok_or(CommandFailure::PeerProtocol)?;
                conversation.use_send_buffers(*way == Way::SendBuffers);
                announce_step_and_await_ready(peer, step)?;
                measure::lead(conversation, *metric, run)
            }
            Way::Access(operation) => {
                let (conversation, place) = conversation.zip(*place).ok_or(CommandFailure::PeerProtocol)?;
                announce_step_and_await_ready(peer, step)?;
                access::lead(conversation, place, *operation, *metric, run)
            }
            Way::Ring | Way::Pipelined(_) | Way::Readv | Way::Memcpy | Way::Socket => {
                let mut end = medium.prepare_loop_end(step, poller)?;
                announce_step_and_await_ready(peer, step)?;
                let timing = bare::lead(&mut *end, step)?;
                await_word(peer, DONE)?;
                Ok(timing)
            }
        }
    }
}

/// Announces the step to the follower, and waits until the follower is ready.
fn announce_step_and_await_ready(peer: &mut PeerProcess, step: &Step) -> Result<(), CommandFailure> {
    peer.write_line(step)?;
    await_word(peer, READY)
}

/// Waits for this word from the follower.
fn await_word(peer: &mut PeerProcess, word: &str) -> Result<(), CommandFailure> {
    if peer.await_line()? == word { Ok(()) } else { Err(CommandFailure::PeerProtocol) }
}

/// The leader's settings of the conversation to the follower.
pub(super) fn leader_conversation_settings(tagged: bool, timeout: Duration) -> Settings {
    Settings { direction: MessageDirection::ToServer, tagged, check: false, timeout }
}
