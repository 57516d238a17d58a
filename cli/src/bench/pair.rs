//! The process that leads, with the one that it has started to follow.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::access;
use super::bare::{self, Medium, Memory, Vigil};
use super::follower::{self, DONE, ENDPOINT, PARTNER, READY, SOCKET};
use super::step::{Step, Way};
use crate::cores;
use crate::exchange::channel::{Channel, Settings};
use crate::exchange::measure;
use crate::exchange::pattern::Direction;
use crate::exchange::place::Place;
use crate::exchange::port::Port;
use crate::exchange::target::Target;
use crate::exchange::timing::Timing;
use crate::failure::Failure;
use crate::peer_process::PeerProcess;

/// The hidden command of the process that follows.
const FOLLOWER: &str = "bench-follower";

/// Which medium two processes have between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediumKind {
    Memory,
    Socket,
}

/// How the two processes run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    /// The cores that this process and the other stay on.
    pub(super) cores: Option<(usize, usize)>,
    /// How long nothing may happen.
    pub(super) timeout: Duration,
}

/// This process and the other, which share a medium.
#[derive(Debug)]
pub(super) struct Pair {
    peer: PeerProcess,
    medium: Medium,
    vigil: Vigil,
    /// Why one of the two cannot read the memory of the other.
    readv_refusal: Option<io::Error>,
    /// The memory of the other process that may be accessed, once its endpoint is known.
    place: Option<Place>,
}

/// What an endpoint needs to be opened in both processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fabric<'a> {
    pub(super) domain: &'a str,
    pub(super) tagged: bool,
    /// How much memory of the other process may be accessed.
    pub(super) region_bytes: usize,
}

impl Pair {
    /// Starts the other process.
    pub(super) fn start(
        kind: MediumKind,
        fabric: Option<Fabric<'_>>,
        placement: Placement,
    ) -> Result<Pair, Failure> {
        let Placement { cores, timeout } = placement;
        if let Some((own, _)) = cores {
            cores::pin(own)?;
        }
        let memory = (kind == MediumKind::Memory).then(Memory::create).transpose()?;
        let path = memory.as_ref().map(Memory::path);
        let mut arguments = vec![FOLLOWER];
        arguments.extend(path.iter().flat_map(|path| ["--memory", path]));
        let region_bytes = fabric.map_or(0, |fabric| fabric.region_bytes).to_string();
        if let Some(Fabric { domain, tagged, .. }) = fabric {
            arguments.extend(["--domain", domain, "--region-bytes", &region_bytes]);
            arguments.extend(tagged.then_some("--tagged"));
        }
        let mut peer = PeerProcess::start(&arguments, cores.map(|(_, other)| other), timeout)?;
        let vigil = Vigil::new(peer.gone(), timeout, cores.is_some());
        let line = peer.next_line()?;
        let (medium, readv_refusal) = match memory {
            Some(memory) => {
                let other_pid = i32::try_from(peer.pid()).unwrap_or_default();
                let refusal = follower::refusal(&line)?.or_else(|| memory.probe(other_pid).err());
                (Medium::Memory { memory, other_pid }, refusal)
            }
            None => {
                let address: SocketAddr =
                    follower::after(&line, SOCKET)?.parse().map_err(|_| Failure::PeerTalk)?;
                (Medium::socket(TcpStream::connect(address))?, None)
            }
        };
        Ok(Pair { peer, medium, vigil, readv_refusal, place: None })
    }

    /// Why one of the two processes cannot read the memory of the other. None if both can.
    pub(super) fn readv_refusal(&self) -> Option<&io::Error> {
        self.readv_refusal.as_ref()
    }

    /// Fails where one of the two cannot read the memory of the other.
    pub(super) fn require_readv(&mut self) -> Result<(), Failure> {
        let doing = "reading the memory of the other process";
        self.readv_refusal.take().map_or(Ok(()), |error| Err(Failure::Bare { doing, error }))
    }

    /// Opens the endpoint of this process, from which the one of the other is reached.
    pub(super) fn open_port(&mut self, domain: &str) -> Result<(Port, homespun::Address), Failure> {
        let line = self.peer.next_line()?;
        let told = follower::after(&line, ENDPOINT)?.split_once(' ').ok_or(Failure::PeerTalk)?;
        let listening: SocketAddr = told.0.parse().map_err(|_| Failure::PeerTalk)?;
        self.place = Some(told.1.parse().map_err(|_| Failure::PeerTalk)?);
        let target = Target::from(homespun::Address::from(listening));
        let opened = Port::towards(&target, Some(domain), access::CAPS)?;
        self.peer.tell(format_args!("{PARTNER} {}", opened.0.address()))?;
        Ok(opened)
    }

    /// Makes one step.
    pub(super) fn lead(&mut self, step: &Step, channel: Option<&mut Channel<'_>>) -> Result<Timing, Failure> {
        let led = self.try_lead(step, channel);
        led.map_err(|failure| self.blamed_for(failure))
    }

    /// A failure of this process, with the end of the other if that is what caused it.
    pub(super) fn blamed_for(&mut self, failure: Failure) -> Failure {
        self.peer.blamed_for(failure)
    }

    fn try_lead(&mut self, step: &Step, channel: Option<&mut Channel<'_>>) -> Result<Timing, Failure> {
        let Pair { peer, medium, vigil, place, .. } = self;
        let Step { way, metric, run } = step;
        match way {
            Way::Fabric => {
                let channel = channel.ok_or(Failure::PeerTalk)?;
                begin(peer, step)?;
                measure::lead(channel, *metric, run)
            }
            Way::Access(operation) => {
                let (channel, place) = channel.zip(*place).ok_or(Failure::PeerTalk)?;
                begin(peer, step)?;
                access::lead(channel, place, *operation, *metric, run)
            }
            Way::Ring | Way::Pipelined(_) | Way::Readv | Way::Socket => {
                let mut end = medium.prepare(step, vigil)?;
                begin(peer, step)?;
                let timing = bare::lead(&mut *end, step)?;
                expect(peer, DONE)?;
                Ok(timing)
            }
        }
    }
}

/// Tells the other process what comes, and waits until it is ready for that.
fn begin(peer: &mut PeerProcess, step: &Step) -> Result<(), Failure> {
    peer.tell(step)?;
    expect(peer, READY)
}

/// Waits until the other process says this.
fn expect(peer: &mut PeerProcess, word: &str) -> Result<(), Failure> {
    if peer.next_line()? == word { Ok(()) } else { Err(Failure::PeerTalk) }
}

/// How a conversation over the fabric is held by this process.
pub(super) fn settings(tagged: bool, timeout: Duration) -> Settings {
    Settings { direction: Direction::ToServer, tagged, check: false, timeout }
}
